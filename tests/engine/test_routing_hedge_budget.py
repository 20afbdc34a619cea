"""Second attempts: when they pay, and how many there may be."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInput
from engine.routing.budget import BudgetConfig, RetryBudget
from engine.routing.hedge import HedgeConfig, HedgePolicy
from tests.engine.routing_table import SEED


@given(
    seed=st.integers(0, 2**32),
    mean_gap_ms=st.floats(0.1, 200.0),
    eagerness=st.floats(0.1, 1.0),
    ratio=st.floats(0.01, 0.2),
)
def test_hedges_never_pass_the_budget_in_any_ten_seconds(
    seed: int, mean_gap_ms: float, eagerness: float, ratio: float
) -> None:
    rng = random.Random(seed)
    budget = RetryBudget(BudgetConfig(ratio=ratio))
    now_ms = 0.0
    requests: list[float] = []
    hedges: list[float] = []
    for _ in range(400):
        now_ms += rng.expovariate(1.0 / mean_gap_ms)
        budget.deposit(now_ms)
        requests.append(now_ms)
        if rng.random() < eagerness and budget.withdraw(now_ms, reserve=False):
            hedges.append(now_ms)
    for until_ms in hedges:
        spent = sum(until_ms - 10_000.0 < at <= until_ms for at in hedges)
        came = sum(until_ms - 10_500.0 < at <= until_ms for at in requests)
        assert spent <= ratio * came + 1e-9


def test_a_thousand_failing_requests_cause_at_most_a_tenth_more_attempts() -> None:
    budget = RetryBudget()
    retries = 0
    for number in range(1_000):
        budget.deposit(number * 2.0)
        retries += budget.withdraw(number * 2.0)
    assert retries <= 100
    assert budget.refused == 1_000 - retries


def test_a_quiet_hour_is_not_saved_up_for_one_second_of_trouble() -> None:
    budget = RetryBudget()
    for number in range(36_000):
        budget.deposit(number * 100.0)
    now_ms = 3_600_000.0
    assert sum(budget.withdraw(now_ms) for _ in range(1_000)) <= 16


def test_at_one_request_a_minute_a_fault_is_retried_and_a_hedge_is_not() -> None:
    budget = RetryBudget()
    for minute in range(30):
        budget.deposit(minute * 60_000.0)
        assert budget.withdraw(minute * 60_000.0)
        assert not budget.withdraw(minute * 60_000.0 + 1.0, reserve=False)


def _trained(**changes: object) -> HedgePolicy:
    rng = random.Random(SEED)
    policy = HedgePolicy(HedgeConfig(**changes))  # type: ignore[arg-type]
    for number in range(2_000):
        policy.observe(100.0, 50.0 + 50.0 * rng.random(), number * 10.0)
        policy.observe(4_000.0, 500.0 + 500.0 * rng.random(), number * 10.0)
    return policy


def test_a_hedge_waits_for_the_p95_of_its_own_size() -> None:
    policy = _trained()
    small, large = policy.delay_ms(100.0, 20_000.0), policy.delay_ms(4_000.0, 20_000.0)
    assert small == pytest.approx(97.5, rel=0.03)
    assert large == pytest.approx(975.0, rel=0.03)


def test_a_size_that_was_hardly_seen_is_not_hedged() -> None:
    policy = _trained()
    assert policy.delay_ms(100_000.0, 20_000.0) is None
    for _ in range(29):
        policy.observe(100_000.0, 10.0, 20_000.0)
    assert policy.delay_ms(100_000.0, 20_000.0) is None


def test_the_delay_follows_a_slowdown_within_seconds() -> None:
    policy = _trained()
    before = policy.delay_ms(100.0, 20_000.0)
    for number in range(600):
        policy.observe(100.0, 400.0, 20_000.0 + number * 5.0)
    assert policy.delay_ms(100.0, 20_500.0) == before
    after = policy.delay_ms(100.0, 23_100.0)
    assert after == pytest.approx(400.0, rel=0.02)


def test_hedging_is_not_unconditional_a_full_fleet_hedges_only_what_can_be_stopped() -> None:
    policy = _trained()
    assert policy.allowed(0.79, 20_000.0)
    assert not policy.allowed(0.80, 20_000.0)
    assert _trained(losers_cancel=True).allowed(0.95, 20_000.0)
    disabled = _trained(enabled=False)
    assert not disabled.allowed(0.1, 20_000.0)
    assert disabled.delay_ms(100.0, 20_000.0) is None


@pytest.mark.parametrize(
    ("field", "value"), [("quantile", 1.5), ("min_samples", 0), ("refresh_ms", 0.0)]
)
def test_a_setting_out_of_range_names_itself(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=field):
        HedgeConfig(**{field: value})  # type: ignore[arg-type]
