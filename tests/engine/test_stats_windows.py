"""Means and windows that forget by time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInput
from engine.stats.ewma import DecayingEwma
from engine.stats.window import RotatingCounter, RotatingHistogram, TumblingWindow


def test_an_unmeasured_mean_is_none() -> None:
    assert DecayingEwma(1000.0).value is None


def test_the_first_sample_is_the_mean_and_later_ones_pull_it() -> None:
    mean = DecayingEwma(1000.0)
    mean.add(100.0, 0.0)
    assert mean.value == 100.0
    mean.add(200.0, 1000.0)
    weight = math.exp(-1.0)
    assert mean.value == pytest.approx((100.0 * weight + 200.0) / (weight + 1.0))


def test_samples_of_one_instant_weigh_the_same() -> None:
    mean = DecayingEwma(1000.0)
    for value in (10.0, 20.0, 60.0):
        mean.add(value, 5.0)
    assert mean.value == pytest.approx(30.0)


def test_a_mean_forgets_by_time_and_not_by_count() -> None:
    slow, fast = DecayingEwma(1000.0), DecayingEwma(1000.0)
    for mean, every_ms in ((slow, 100.0), (fast, 1.0)):
        at_ms = 0.0
        while at_ms < 10_000.0:
            mean.add(10.0 if at_ms < 9000.0 else 50.0, at_ms)
            at_ms += every_ms
    assert slow.value == pytest.approx(fast.value, rel=0.05)


@given(st.lists(st.tuples(st.floats(0.0, 1e6), st.floats(-50.0, 5000.0)), min_size=1, max_size=50))
def test_a_mean_stays_within_its_samples_even_if_time_repeats(
    steps: list[tuple[float, float]],
) -> None:
    mean = DecayingEwma(300.0)
    now_ms = 0.0
    for value, pause_ms in steps:
        now_ms += pause_ms
        mean.add(value, now_ms)
    recorded = [value for value, _ in steps]
    assert mean.value is not None
    assert min(recorded) - 1e-6 <= mean.value <= max(recorded) + 1e-6


def test_the_samples_behind_a_mean_fade_when_none_come() -> None:
    mean = DecayingEwma(1000.0)
    assert mean.samples(0.0) == 0.0
    mean.add(1.0, 0.0)
    assert mean.samples(1000.0) == pytest.approx(math.exp(-1.0))


@given(st.lists(st.tuples(st.floats(0.0, 900.0), st.integers(1, 5)), max_size=60))
def test_a_rotating_sum_holds_the_last_slots_and_nothing_older(
    steps: list[tuple[float, int]],
) -> None:
    counter = RotatingCounter(1000.0, 10)
    events: list[tuple[float, int]] = []
    now_ms = 0.0
    for pause_ms, n in steps:
        now_ms += pause_ms
        counter.add(n, now_ms)
        events.append((now_ms, n))
    oldest_slot = int(now_ms // 100.0) - 9
    expected = sum(n for at_ms, n in events if int(at_ms // 100.0) >= oldest_slot)
    assert counter.total(now_ms) == expected
    assert counter.total(now_ms + 1100.0) == 0


def test_a_rate_is_right_from_the_first_second_on() -> None:
    counter = RotatingCounter(10_000.0, 10)
    rates = {}
    for tick in range(3000):
        now_ms = 50_000.0 + 10.0 * tick
        counter.add(1, now_ms)
        if tick in (150, 2999):
            rates[tick] = counter.per_second(now_ms)
    assert rates[150] == pytest.approx(100.0, rel=0.02)
    assert rates[2999] == pytest.approx(100.0, rel=0.02)
    assert RotatingCounter(1000.0, 10).per_second(5.0) == 0.0


def test_a_window_of_quantiles_forgets_an_incident_without_new_traffic() -> None:
    window = RotatingHistogram(10_000.0, 10)
    for n in range(100):
        window.record(5000.0, 10.0 * n)
    assert window.quantile(0.95, 1000.0) == pytest.approx(5000.0, rel=0.01)
    assert window.count(1000.0) == 100
    assert window.quantile(0.95, 12_000.0) is None
    assert window.count(12_000.0) == 0


def test_a_tumbling_window_hands_each_window_over_once_after_it_closed() -> None:
    window: TumblingWindow[list[float]] = TumblingWindow(1000.0, lambda start_ms: [start_ms])
    window.at(100.0).append(1.0)
    window.at(900.0).append(2.0)
    assert window.drain(999.0) == []
    window.at(2500.0).append(3.0)
    assert window.drain(2600.0) == [[0.0, 1.0, 2.0]]
    assert window.drain(2700.0) == []
    assert window.drain(3000.0) == [[2000.0, 3.0]]
    assert window.drain(9000.0) == []


@pytest.mark.parametrize(
    "build",
    [
        lambda: DecayingEwma(0.0),
        lambda: RotatingCounter(-1.0, 10),
        lambda: RotatingHistogram(1000.0, 1),
        lambda: TumblingWindow(math.nan, list),
    ],
)
def test_a_width_that_is_none_is_refused(build: object) -> None:
    with pytest.raises(InvalidInput):
        build()  # type: ignore[operator]
