"""The histogram: relative error, exact merge, and nothing where nothing was recorded."""

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInput
from engine.stats.censored import censored_quantile
from engine.stats.histogram import BOTTOM, LogHistogram, bucket_of, value_of

values = st.floats(min_value=1e-5, max_value=1e12)
samples = st.lists(values, max_size=60)


def histogram_of(recorded: list[float]) -> LogHistogram:
    histogram = LogHistogram()
    for value in recorded:
        histogram.record(value)
    return histogram


@given(values)
def test_a_bucket_stands_for_its_values_within_one_percent(value: float) -> None:
    assert abs(value_of(bucket_of(value)) - value) <= 0.01 * value * (1.0 + 1e-9)


@given(st.lists(values, min_size=1, max_size=200), st.floats(0.0, 1.0))
def test_a_quantile_is_within_one_percent_of_the_sorted_sample(
    recorded: list[float], q: float
) -> None:
    exact = sorted(recorded)[max(0, math.ceil(q * len(recorded) - 1e-9) - 1)]
    told = histogram_of(recorded).quantile(q)
    assert told is not None
    assert abs(told - exact) <= 0.0101 * exact


@given(samples, samples, samples)
def test_merging_is_exact_in_any_order_and_grouping(
    first: list[float], second: list[float], third: list[float]
) -> None:
    whole = histogram_of(first + second + third)
    left = histogram_of(first)
    left.merge(histogram_of(second))
    left.merge(histogram_of(third))
    tail = histogram_of(third)
    tail.merge(histogram_of(second))
    right = tail
    right.merge(histogram_of(first))
    assert left == whole == right
    assert left.to_sparse() == whole.to_sparse()
    assert left.count == whole.count == len(first) + len(second) + len(third)


@given(samples)
def test_the_sparse_form_survives_json(recorded: list[float]) -> None:
    histogram = histogram_of(recorded)
    again = LogHistogram.from_sparse(json.loads(json.dumps(histogram.to_sparse())))
    assert again == histogram
    assert again.count == histogram.count


def test_an_empty_histogram_has_no_quantile_rather_than_zero() -> None:
    assert LogHistogram().quantile(0.95) is None
    assert LogHistogram().mean() is None


def test_zero_is_a_value_like_any_other() -> None:
    histogram = histogram_of([0.0, 0.0, 5.0])
    assert histogram.quantile(0.5) == 0.0
    assert histogram.count_above(0.0) == 1


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_value_that_is_no_duration_is_refused_by_name(value: float) -> None:
    with pytest.raises(InvalidInput, match="value"):
        LogHistogram().record(value)


@pytest.mark.parametrize("buckets", [{"3": -1}, {str(BOTTOM - 1): 1}])
def test_a_sparse_form_that_nothing_wrote_is_refused(buckets: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="buckets"):
        LogHistogram.from_sparse(buckets)


def test_counts_above_a_threshold_are_those_of_the_buckets_above_it() -> None:
    histogram = histogram_of([float(n) for n in range(1, 1001)])
    assert histogram.count_above(500.0) == pytest.approx(500, abs=11)
    assert histogram.count_above(2000.0) == 0


def test_the_mean_is_within_one_percent() -> None:
    rng = random.Random(3)
    recorded = [rng.expovariate(0.01) for _ in range(5000)]
    mean = histogram_of(recorded).mean()
    assert mean == pytest.approx(sum(recorded) / len(recorded), rel=0.01)


def test_durations_cut_short_make_the_quantile_longer_never_shorter() -> None:
    rng = random.Random(4)
    ended, cut_short, truth = LogHistogram(), LogHistogram(), LogHistogram()
    for _ in range(20_000):
        duration = rng.expovariate(1.0 / 100.0)
        patience = rng.choice((120.0, 900.0))
        truth.record(duration)
        if duration <= patience:
            ended.record(duration)
        else:
            cut_short.record(patience)
    estimate = censored_quantile(ended, cut_short, 0.95)
    exact = truth.quantile(0.95)
    assert estimate is not None
    assert exact is not None
    assert estimate == pytest.approx(exact, rel=0.05)


def test_where_everything_was_cut_short_the_quantile_is_unknown() -> None:
    cut_short = histogram_of([120.0] * 50)
    assert censored_quantile(LogHistogram(), cut_short, 0.95) is None
    assert censored_quantile(histogram_of([10.0]), cut_short, 0.95) is None


def test_without_cuts_the_censored_quantile_is_the_plain_one() -> None:
    histogram = histogram_of([float(n) for n in range(1, 101)])
    assert censored_quantile(histogram, LogHistogram(), 0.95) == histogram.quantile(0.95)
