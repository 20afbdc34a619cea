"""The adaptive limits: what they hold on to, what they let go, and what they ignore."""

import random
from collections.abc import Callable, Iterator

import pytest

from bench.limiters.rig import Job, Run, Workers, drive
from engine.admission.gradient_limit import GradientConfig, GradientLimit
from engine.admission.headroom_limit import HeadroomConfig, HeadroomLimit
from engine.admission.limit import Limit
from engine.errors import InvalidInput
from engine.outcomes import Outcome

POLICIES = [HeadroomLimit, GradientLimit]


def poisson(
    rate_per_s: float, work: Callable[[random.Random], float], until_ms: float, deadline_ms: float
) -> Iterator[Job]:
    rng = random.Random(3)
    at_ms = 0.0
    while (at_ms := at_ms + rng.expovariate(rate_per_s / 1000.0)) < until_ms:
        yield Job(at_ms, work(rng), at_ms + deadline_ms)


def erlang(rng: random.Random) -> float:
    return 25.0 * sum(rng.expovariate(1.0) for _ in range(4))


def run(
    rate_per_s: float,
    *,
    workers: int,
    until_ms: float,
    slo_ms: float = 1000.0,
    deadline_ms: float = 2000.0,
    work: Callable[[random.Random], float] = erlang,
    slowness: Callable[[float], float] = lambda now_ms: 1.0,
) -> Run:
    """The headroom limit before `workers` workers, 100 ms a request unless told."""
    return drive(
        poisson(rate_per_s, work, until_ms, deadline_ms),
        lambda loop: Workers(loop, workers, slowness),
        HeadroomLimit,
        slo_ms,
        until_ms=until_ms,
    )


def limit_at(result: Run, at_ms: float) -> float:
    """The mean limit over the ten seconds before `at_ms`."""
    values = [limit for ms, limit, _ in result.track if at_ms - 10_000.0 <= ms <= at_ms]
    return sum(values) / len(values)


def settled(limit: Limit, latency_ms: float, outcome: Outcome, seconds: int, busy: bool) -> None:
    for second in range(1, seconds + 1):
        for n in range(100):
            limit.observe(latency_ms, outcome, 1000.0 * second + n)
        limit.tick(round(limit.value) if busy else 0, 1000.0 * second + 999.0)


def test_short_and_long_work_side_by_side_is_not_taken_for_a_queue() -> None:
    result = run(
        0.9 * 32 / 0.098,
        workers=32,
        until_ms=120_000.0,
        work=lambda rng: 20.0 if rng.random() < 0.9 else 800.0,
    )
    assert result.refused_ratio <= 0.01


def test_ten_minutes_of_overload_end_where_the_second_minute_was() -> None:
    result = run(
        50.0,
        workers=5,
        until_ms=600_000.0,
        slo_ms=2000.0,
        deadline_ms=4000.0,
        work=lambda rng: 2.0 * erlang(rng),
    )
    assert limit_at(result, 600_000.0) == pytest.approx(limit_at(result, 120_000.0), rel=0.3)
    assert result.good / 600.0 >= 0.95 * 25.0


@pytest.mark.parametrize("deadline_ms", [1000.0, 10_000.0])
def test_when_capacity_halves_and_doubles_the_limit_follows(deadline_ms: float) -> None:
    result = run(
        200.0,
        workers=10,
        until_ms=150_000.0,
        deadline_ms=deadline_ms,
        slowness=lambda now_ms: 2.0 if 50_000.0 <= now_ms < 100_000.0 else 1.0,
    )
    full, half = limit_at(result, 50_000.0), limit_at(result, 90_000.0)
    assert half == pytest.approx(full / 2.0, rel=0.25)
    assert limit_at(result, 130_000.0) == pytest.approx(full, rel=0.2)


def test_an_objective_that_no_limit_can_meet_does_not_close_the_gate() -> None:
    result = run(
        75.0,
        workers=300,
        until_ms=200_000.0,
        deadline_ms=30_000.0,
        work=lambda rng: 3000.0 * rng.uniform(0.7, 1.3),
    )
    assert result.refused_ratio <= 0.05


@pytest.mark.parametrize("policy", POLICIES)
def test_an_idle_hour_moves_nothing(policy: type[HeadroomLimit | GradientLimit]) -> None:
    limit = policy(1000.0)
    limit.value = 20.0 if policy is GradientLimit else 40.0
    before = limit.value
    settled(limit, 10.0, Outcome.SUCCESS, 1, busy=False)
    for second in range(3600):
        limit.tick(0, 2000.0 + 1000.0 * second)
    assert limit.value == before
    assert limit.reason.startswith("held")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_limit_that_is_not_used_does_not_grow(
    policy: type[HeadroomLimit | GradientLimit],
) -> None:
    limit = policy(1000.0)
    before = limit.value
    for second in range(1, 60):
        for n in range(50):
            limit.observe(10.0, Outcome.SUCCESS, 1000.0 * second + n)
        limit.tick(int(0.45 * before), 1000.0 * second + 999.0)
    assert limit.value <= before


def test_a_burst_after_an_idle_hour_finds_the_limit_where_it_was() -> None:
    limit = HeadroomLimit(1000.0, HeadroomConfig(initial=20.0, floor=8.0))
    settled(limit, 10.0, Outcome.SUCCESS, 2, busy=False)
    limit.tick(0, 3_600_000.0)
    assert limit.value == 20.0
    for n in range(200):
        limit.observe(300.0, Outcome.SUCCESS, 3_600_000.0 + n)
    limit.tick(20, 3_601_000.0)
    assert 20.0 < limit.value <= 30.0


def test_when_every_request_times_out_the_limit_falls_to_its_floor() -> None:
    limit = HeadroomLimit(1000.0)
    settled(limit, 120.0, Outcome.DEADLINE, 10, busy=True)
    assert limit.value == 32.0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_fast_failure_is_no_fast_fleet(policy: type[HeadroomLimit | GradientLimit]) -> None:
    limit = policy(1000.0)
    settled(limit, 700.0, Outcome.SUCCESS, 10, busy=True)
    before = limit.value
    for outcome in (Outcome.FAULT, Outcome.CLIENT_ERROR, Outcome.CANCELLED):
        for second in range(20, 40):
            for n in range(50):
                limit.observe(2.0, outcome, 1000.0 * second + n)
            limit.tick(round(limit.value), 1000.0 * second + 999.0)
    assert limit.value == before


def test_impatient_clients_alone_are_no_reason_to_shrink() -> None:
    limit = HeadroomLimit(900.0)
    for second in range(1, 30):
        for n in range(80):
            limit.observe(400.0, Outcome.SUCCESS, 1000.0 * second + n)
        for n in range(20):
            limit.observe(120.0, Outcome.DEADLINE, 1000.0 * second + n)
        limit.tick(40, 1000.0 * second + 999.0)
    assert limit.value == 256.0


def test_clients_that_waited_out_the_objective_are() -> None:
    limit = HeadroomLimit(900.0)
    for second in range(1, 30):
        for n in range(80):
            limit.observe(400.0, Outcome.SUCCESS, 1000.0 * second + n)
        for n in range(20):
            limit.observe(900.0, Outcome.DEADLINE, 1000.0 * second + n)
        limit.tick(40, 1000.0 * second + 999.0)
    assert limit.value == 32.0


def test_a_planner_that_uses_every_deadline_to_the_last_is_left_alone() -> None:
    limit = HeadroomLimit(900.0)
    rng = random.Random(2)
    for second in range(1, 60):
        for n in range(200):
            limit.observe(rng.uniform(60.0, 899.0), Outcome.SUCCESS, 1000.0 * second + n)
        limit.tick(200, 1000.0 * second + 999.0)
    assert limit.value == 256.0
    assert "were late" in limit.reason


def test_one_bad_second_of_a_quiet_model_is_counted_once() -> None:
    limit = HeadroomLimit(1000.0)
    for n in range(60):
        limit.observe(1000.0, Outcome.DEADLINE, float(n))
    limit.tick(60, 1000.0)
    assert limit.value == 128.0
    for second in range(2, 30):
        limit.observe(100.0, Outcome.SUCCESS, 1000.0 * second)
        limit.tick(1, 1000.0 * second)
    assert limit.value == 128.0


def test_a_new_fleet_lifts_the_limit_before_any_latency_is_seen() -> None:
    limit = HeadroomLimit(1000.0)
    limit.expect(4000.0, 128, 64, 0.0)
    assert limit.value == 2000.0
    settled(limit, 1500.0, Outcome.SUCCESS, 2, busy=True)
    assert limit.value == 2000.0
    settled(limit, 5000.0, Outcome.DEADLINE, 30, busy=True)
    assert limit.value == 64.0


def test_the_reason_names_the_numbers_that_were_compared() -> None:
    limit = HeadroomLimit(1000.0)
    settled(limit, 1500.0, Outcome.SUCCESS, 1, busy=True)
    assert limit.reason.startswith("shrank: p95 1495 ms")
    assert "800 ms, 256 ->" in limit.reason


def test_the_gradient_shrinks_when_latency_rises_and_recovers() -> None:
    limit = GradientLimit(1000.0, GradientConfig(initial=100.0))
    settled(limit, 100.0, Outcome.SUCCESS, 60, busy=True)
    high = limit.value
    for second in range(100, 105):
        for n in range(100):
            limit.observe(400.0, Outcome.SUCCESS, 1000.0 * second + n)
        limit.tick(round(limit.value), 1000.0 * second + 999.0)
    assert limit.value < 0.8 * high
    assert "long" in limit.reason


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (HeadroomConfig, {"floor": 0.0}),
        (HeadroomConfig, {"target_ratio": 1.5}),
        (HeadroomConfig, {"ceiling": 5.0}),
        (HeadroomConfig, {"patience_ms": float("nan")}),
        (GradientConfig, {"long_ms": 10.0}),
        (GradientConfig, {"smoothing": 0.0}),
    ],
)
def test_a_knob_out_of_range_is_named(config: type, changes: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(changes))):
        config(**changes)
