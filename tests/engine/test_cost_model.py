"""What a batch costs, learned from what it took."""

import math
import random

import pytest

from engine.batching.cost_model import CostModel, CostPrior, SharedPrior
from engine.errors import InvalidInput
from engine.types import WorkUnit

WRONG = CostPrior(fixed_ms=8.0, per_work_ms=0.05)


def feed(model: CostModel, batches: int, rng: random.Random, *, slope: float = 0.022) -> None:
    for _ in range(batches):
        work = rng.uniform(300.0, 3500.0)
        model.observe(work, 16, work / 8.0, (18.0 + slope * work) * rng.uniform(0.92, 1.08))


def test_before_any_sample_the_prior_is_the_prediction() -> None:
    model = CostModel(WorkUnit.TOKENS, WRONG)
    assert model.predict_ms(1000.0) == pytest.approx(58.0)
    assert model.samples == 0
    assert model.standard_errors is None


def test_a_wrong_prior_is_corrected_within_a_few_batches() -> None:
    model = CostModel(WorkUnit.TOKENS, WRONG)
    feed(model, 10, random.Random(1))
    assert model.predict_ms(2500.0) == pytest.approx(73.0, rel=0.08)
    feed(model, 100, random.Random(2))
    assert model.fixed_ms == pytest.approx(18.0, rel=0.1)
    assert model.per_work_ms == pytest.approx(0.022, rel=0.05)
    assert model.deviation_ratio == pytest.approx(0.16 / math.sqrt(12.0), rel=0.4)


def test_standard_errors_shrink_as_samples_come_in() -> None:
    model = CostModel(WorkUnit.TOKENS, WRONG)
    rng = random.Random(3)
    feed(model, 5, rng)
    early = model.standard_errors
    feed(model, 60, rng)
    late = model.standard_errors
    assert early is not None
    assert late is not None
    assert late[0] < early[0]
    assert late[1] < early[1]


def test_batches_of_one_shape_fix_the_scale_and_keep_the_shape_of_the_prior() -> None:
    model = CostModel(WorkUnit.TOKENS, CostPrior(fixed_ms=20.0, per_work_ms=0.02))
    for _ in range(200):
        model.observe(1000.0, 10, 200.0, 80.0)
    assert model.predict_ms(1000.0) == pytest.approx(80.0, rel=0.01)
    assert model.fixed_ms / model.per_work_ms == pytest.approx(1000.0, rel=0.02)


def test_a_service_time_that_falls_with_size_never_inflates_the_intercept() -> None:
    model = CostModel(WorkUnit.TOKENS, WRONG)
    for index in range(200):
        work = 2000.0 + 40.0 * (index % 20)
        model.observe(work, 16, 300.0, 90.0 - 0.02 * (work - 2000.0))
    assert model.per_work_ms >= 0.0
    assert 0.0 <= model.fixed_ms <= 95.0
    assert model.predict_ms(2400.0) == pytest.approx(82.0, rel=0.1)


def test_a_line_through_the_origin_never_gives_a_negative_fixed_cost() -> None:
    model = CostModel(WorkUnit.TOKENS, WRONG)
    for index in range(200):
        work = 500.0 + 150.0 * (index % 20)
        model.observe(work, 16, 300.0, 0.03 * work - 6.0)
    assert model.fixed_ms >= 0.0
    assert model.per_work_ms == pytest.approx(0.027, rel=0.15)


def test_a_slope_that_grows_by_sixty_percent_is_learned_within_ten_batches() -> None:
    model = CostModel(WorkUnit.TOKENS, WRONG)
    rng = random.Random(4)
    feed(model, 200, rng)
    feed(model, 10, rng, slope=0.0352)
    assert model.predict_ms(2500.0) == pytest.approx(106.0, rel=0.06)
    assert model.deviation_ratio < 0.1


@pytest.mark.parametrize("truth_ms", [60_000.0, 0.05])
def test_a_prior_that_is_wrong_by_a_factor_of_a_thousand_is_corrected_by_one_batch(
    truth_ms: float,
) -> None:
    model = CostModel(WorkUnit.TOKENS, WRONG)
    model.observe(1000.0, 4, 250.0, truth_ms)
    assert model.predict_ms(1000.0) == pytest.approx(truth_ms, rel=0.01)


def test_one_odd_batch_does_not_widen_every_margin() -> None:
    model = CostModel(WorkUnit.TOKENS, WRONG)
    rng = random.Random(5)
    feed(model, 200, rng)
    before = model.deviation_ratio
    model.observe(2000.0, 16, 300.0, 2000.0)
    assert model.deviation_ratio < 1.3 * before


def test_an_encoder_that_pads_is_learned_in_its_own_terms() -> None:
    model = CostModel(WorkUnit.PADDED_QUADRATIC)
    rng = random.Random(6)
    for _ in range(300):
        count = rng.randint(1, 16)
        longest = rng.choice((16.0, 32.0, 64.0, 128.0, 256.0))
        cells = count * longest
        truth_ms = 2.0 + 0.185 * cells + 0.00054 * cells * longest
        model.observe(0.7 * cells, count, longest, truth_ms * rng.uniform(0.95, 1.05))
    assert model.predict_ms(400.0, 16, 256.0) == pytest.approx(1326.0, rel=0.05)
    assert model.predict_ms(16.0, 1, 16.0) == pytest.approx(5.1, rel=0.1)


def test_a_new_replica_starts_from_what_its_siblings_know() -> None:
    shared = SharedPrior(WorkUnit.TOKENS, WRONG)
    feed(shared.new_model(), 100, random.Random(7))
    newcomer = shared.new_model()
    assert newcomer.samples == 0
    assert newcomer.predict_ms(2500.0) == pytest.approx(73.0, rel=0.05)
    assert shared.predict_ms(2500.0) == pytest.approx(73.0, rel=0.05)


def test_a_slower_sibling_takes_the_shape_and_learns_its_own_speed() -> None:
    shared = SharedPrior(WorkUnit.TOKENS, WRONG)
    feed(shared.new_model(), 100, random.Random(8))
    slow = shared.new_model()
    slow.observe(2000.0, 16, 300.0, 2.0 * 62.0)
    assert slow.predict_ms(500.0) == pytest.approx(58.0, rel=0.2)


@pytest.mark.parametrize("service_ms", [math.nan, math.inf, 0.0, -1.0])
def test_a_service_time_that_makes_no_sense_is_refused_by_name(service_ms: float) -> None:
    model = CostModel()
    with pytest.raises(InvalidInput, match="service_ms"):
        model.observe(100.0, 1, 100.0, service_ms)
    assert model.samples == 0


def test_a_prior_in_another_unit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="prior"):
        CostModel(WorkUnit.TOKENS, SharedPrior(WorkUnit.PADDED))
    with pytest.raises(InvalidInput, match="per_work_ms"):
        CostPrior(per_work_ms=0.0)
