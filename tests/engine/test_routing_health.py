"""Health is a shade, not a switch; a ceiling is learned where none is declared."""

import random

import pytest

from engine.outcomes import Outcome
from engine.routing.ceiling import CeilingConfig, LearnedCeiling
from engine.routing.health import HealthConfig, HealthScore, Vitals
from engine.scheduling.streams import usual_size
from engine.types import Protocol
from tests.engine.routing_table import SEED, end, replica, router, shares, trip


def _vitals(**changes: float | None) -> Vitals:
    fields: dict[str, float | None] = {
        "fault_ratio": 0.0,
        "latency_ms": 100.0,
        "median_ms": 100.0,
        "gpu_memory_ratio": 0.0,
        "occupied_ratio": 0.0,
    }
    return Vitals(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_score_is_four_tenths_errors_three_latency_two_memory_one_connections() -> None:
    cases = [
        (_vitals(), 1.0),
        (_vitals(fault_ratio=1.0), 0.6),
        (_vitals(latency_ms=200.0), 0.85),
        (_vitals(gpu_memory_ratio=0.5), 0.9),
        (_vitals(occupied_ratio=1.0), 0.9),
    ]
    for vitals, expected in cases:
        assert HealthScore(HealthConfig()).observe(vitals, 0.0) == pytest.approx(expected)


def test_what_nobody_measured_is_left_out_instead_of_counted_as_zero() -> None:
    unknown = HealthScore(HealthConfig())
    value = unknown.observe(_vitals(gpu_memory_ratio=None, latency_ms=None, fault_ratio=0.5), 0.0)
    assert value == pytest.approx((0.4 * 0.5 + 0.1 * 1.0) / 0.5)
    assert set(unknown.parts) == {"errors", "connections"}


def test_health_is_not_binary_a_poor_replica_still_gets_traffic() -> None:
    poor, good = replica("poor"), replica("good")
    made = router([poor, good])
    for number in range(200):
        end(poor, Outcome.FAULT if number % 12 == 0 else Outcome.SUCCESS, 100.0, 50.0)
        end(good, Outcome.SUCCESS, 100.0, 50.0)
    poor.report(100.0, gpu_memory_ratio=1.0)
    assert poor.healthy(2_000.0) < good.healthy(2_000.0)
    assert poor.why_not(2_000.0) is None
    chosen = shares(made, 300, 60_000.0)
    assert chosen["poor"] > 50


def test_scoring_is_not_exclusion_and_a_fine_score_does_not_readmit_what_is_broken() -> None:
    broken, fine = replica("broken"), replica("fine")
    made = router([broken, fine])
    for _ in range(500):
        end(broken, Outcome.SUCCESS, 100.0, 10.0)
        end(fine, Outcome.SUCCESS, 100.0, 400.0)
    fine.report(100.0, gpu_memory_ratio=1.0)
    trip(broken, 200.0)
    assert broken.healthy(300.0) > fine.healthy(300.0)
    assert set(shares(made, 50, 300.0)) == {"fine"}


def test_two_scores_that_tremble_do_not_swap_places() -> None:
    rng = random.Random(SEED)
    score = HealthScore(HealthConfig())
    published = set()
    for second in range(600):
        jitter = 0.05 * (rng.random() - 0.5)
        published.add(score.observe(_vitals(gpu_memory_ratio=0.5 + jitter), second * 1_000.0))
    assert len(published) == 1


def test_the_grade_falls_and_rises_at_different_heights() -> None:
    score = HealthScore(HealthConfig(tau_ms=1.0))
    grades = []
    for step, level in enumerate([0.8, 0.6, 0.45, 0.6, 0.6, 0.7, 0.6]):
        # only errors and places are known: 0.4 (1 - faults) + 0.1 (1 - occupied), over 0.5
        vitals = _vitals(
            fault_ratio=1.0 - level,
            occupied_ratio=1.0 - level,
            gpu_memory_ratio=None,
            latency_ms=None,
        )
        assert score.observe(vitals, step * 1_000.0) == pytest.approx(level, abs=0.05)
        grades.append(score.degraded)
    assert grades == [False, False, True, True, True, False, False]


def test_a_resident_model_raises_the_rank() -> None:
    score = HealthScore(HealthConfig())
    score.observe(_vitals(gpu_memory_ratio=0.6), 0.0)
    assert score.rank(resident=True) > score.rank(resident=False)


# -- ceilings ------------------------------------------------------------------------


def _serve(
    ceiling: LearnedCeiling,
    capacity: int,
    seconds: float,
    start_ms: float,
    demand: int = 1_000,
    alone_ms: float = 100.0,
) -> float:
    """A server that runs `capacity` at once in `alone_ms` and queues the rest; full all along."""
    now_ms = start_ms
    while now_ms < start_ms + seconds * 1000.0:
        in_flight = min(ceiling.value, demand)
        latency_ms = alone_ms * max(1.0, in_flight / capacity)
        for _ in range(in_flight):
            ceiling.answered(latency_ms, in_flight, now_ms)
        now_ms += latency_ms
    return now_ms


def test_the_ceiling_of_an_undeclared_server_grows_to_what_it_serves_without_queueing() -> None:
    ceiling = LearnedCeiling(CeilingConfig(first=4), 512)
    _serve(ceiling, 40, 60.0, 0.0)
    assert 40 <= ceiling.value <= 110


def test_it_shrinks_when_the_server_gets_weaker_and_never_passes_the_declared_most() -> None:
    ceiling = LearnedCeiling(CeilingConfig(first=4), 60)
    now_ms = _serve(ceiling, 60, 60.0, 0.0)
    assert ceiling.value == 60
    _serve(ceiling, 6, 20.0, now_ms)
    assert ceiling.value < 30


def test_a_model_that_became_slower_by_itself_keeps_its_concurrency_in_the_end() -> None:
    ceiling = LearnedCeiling(CeilingConfig(first=4), 512)
    now_ms = _serve(ceiling, 40, 60.0, 0.0)
    _serve(ceiling, 40, 200.0, now_ms, alone_ms=500.0)
    assert 40 <= ceiling.value <= 110


def test_a_server_that_batches_honestly_is_not_taken_for_a_full_one() -> None:
    """9 ms alone and 39 ms with sixteen at once is where its throughput is best."""
    ceiling = LearnedCeiling(CeilingConfig(first=4), 64)
    now_ms = 0.0
    for _ in range(4000):
        in_flight = ceiling.value
        latency_ms = 9.0 + 2.0 * (in_flight - 1)
        ceiling.answered(latency_ms, in_flight, now_ms)
        now_ms += latency_ms / in_flight
    assert ceiling.value >= 16


def test_it_is_not_measured_at_a_quarter_while_nothing_holds_it_back() -> None:
    ceiling = LearnedCeiling(CeilingConfig(first=4), 40)
    now_ms = _serve(ceiling, 40, 20.0, 0.0)
    seen = set()
    for _ in range(1200):
        now_ms = _serve(ceiling, 40, 0.1, now_ms)
        seen.add(ceiling.value)
    assert seen == {40}


def test_long_answers_do_not_make_a_server_look_full() -> None:
    state = replica("a", protocol=Protocol.OPENAI, max_concurrency=64)
    now_ms = 0.0
    for tokens in (100, 2000):
        for _ in range(100):
            leases = [state.acquire(now_ms) for _ in range(state.ceiling)]
            now_ms += tokens * 5.0
            for lease in leases:
                lease.release(Outcome.SUCCESS, tokens * 5.0, now_ms, usual_size(0, tokens))
    assert state.ceiling == 64


def test_a_quiet_night_does_not_raise_it() -> None:
    ceiling = LearnedCeiling(CeilingConfig(first=16), 512)
    _serve(ceiling, 40, 600.0, 0.0, demand=2)
    assert ceiling.value == 16


def test_busy_answers_cut_it_once_a_window_to_below_what_was_out() -> None:
    state = replica("a", protocol=Protocol.OPENAI, max_concurrency=512)
    assert state.ceiling == 16
    leases = [state.acquire(0.0) for _ in range(16)]
    for lease in leases[:8]:
        lease.release(Outcome.BACKPRESSURE, 1.0, 10.0)
        state.backpressure(None, 10.0)
    assert 10 <= state.ceiling <= 14
    for lease in leases[8:]:
        lease.release(Outcome.SUCCESS, 100.0, 100.0)
    assert state.in_flight == 0


def test_a_batch_replica_keeps_the_concurrency_that_it_declares_or_reports() -> None:
    state = replica("a", max_concurrency=3)
    for _ in range(200):
        end(state, Outcome.SUCCESS, 100.0, 5_000.0)
    assert state.ceiling == 3
    state.report(200.0, max_concurrency=7)
    assert state.ceiling == 7


def test_the_view_says_why_a_replica_gets_nothing_and_leaves_unknowns_empty() -> None:
    state = replica("a")
    fresh = state.view(0.0)
    assert (fresh["status"], fresh["why"]) == ("unknown", None)
    assert (fresh["p95Ms"], fresh["errorRatio"], fresh["latencyMs"]) == (None, None, None)
    end(state, Outcome.SUCCESS, 100.0, 50.0)
    assert state.view(100.0)["status"] == "healthy"
    trip(state, 200.0)
    down = state.view(200.0)
    assert (down["status"], down["why"]) == ("down", "breaker_open")
    assert down["breaker"]["trips"] == 1
    assert down["breaker"]["reopensInMs"] == pytest.approx(1_000.0, rel=0.21)
