"""A breaker opens on evidence, closes on proof, and counts nothing that is not its business."""

import random

import pytest

from engine.outcomes import Outcome
from engine.routing.breaker import BreakerConfig, BreakerState
from engine.routing.eligibility import WhyNot
from tests.engine.routing_table import SEED, end, replica, router, trip


def test_five_faults_in_a_row_open_it_and_four_do_not() -> None:
    state = replica()
    for _ in range(4):
        end(state, Outcome.FAULT, 100.0)
    assert state.why_not(100.0) is None
    end(state, Outcome.SUCCESS, 100.0)
    for _ in range(4):
        end(state, Outcome.FAULT, 100.0)
    assert state.why_not(100.0) is None
    end(state, Outcome.FAULT, 100.0)
    assert state.why_not(100.0) is WhyNot.BREAKER_OPEN


def test_sixty_requests_that_the_upstream_calls_bad_leave_it_closed() -> None:
    state = replica()
    for outcome in (Outcome.CLIENT_ERROR, Outcome.BACKPRESSURE, Outcome.CANCELLED):
        for _ in range(60):
            end(state, outcome, 100.0)
    assert state.breaker.state is BreakerState.CLOSED
    assert state.breaker.fault_ratio(100.0) is None


def test_a_replica_that_fails_every_third_request_is_out_within_a_few_dozen() -> None:
    state = replica()
    for number in range(90):
        end(state, Outcome.FAULT if number % 3 == 0 else Outcome.SUCCESS, 100.0 + number)
        if state.breaker.state is BreakerState.OPEN:
            break
    assert state.breaker.trips == 1


@pytest.mark.parametrize("ratio", [0.01, 0.05])
def test_random_errors_do_not_trip_it_in_an_hour(ratio: float) -> None:
    rng = random.Random(SEED)
    state = replica()
    breaker = state.breaker
    requests = 360_000 if ratio > 0.01 else 120_000
    for number in range(requests):
        breaker.record(
            Outcome.FAULT if rng.random() < ratio else Outcome.SUCCESS,
            probe=False,
            generation=0,
            silent=False,
            now_ms=number * 3_600_000.0 / requests,
        )
    assert breaker.trips == 0
    assert breaker.state is BreakerState.CLOSED


def test_two_early_faults_of_three_are_no_proof_of_anything() -> None:
    state = replica()
    for outcome in (Outcome.FAULT, Outcome.FAULT, Outcome.SUCCESS):
        end(state, outcome, 100.0)
    assert state.why_not(100.0) is None


@pytest.mark.parametrize("probes", [1, 3])
def test_half_open_lets_exactly_k_probes_through_of_a_hundred_waiting_requests(
    probes: int,
) -> None:
    state = replica(breaker=BreakerConfig(probes=probes), max_concurrency=100)
    made = router([state, replica("b"), replica("c")])
    trip(state, 100.0)
    later = 2_000.0
    leases = [state.acquire(later) for _ in range(100) if state.why_not(later) is None]
    assert len(leases) == probes
    assert all(lease.is_probe for lease in leases)
    assert state.why_not(later) is WhyNot.PROBING
    assert made.panic is False


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_probe_returns_its_permit_however_it_ends(outcome: Outcome) -> None:
    state = replica()
    router([state, replica("b"), replica("c")])
    trip(state, 100.0)
    later = 2_000.0
    assert state.why_not(later) is None
    state.acquire(later).release(outcome, 10.0, later)
    much_later = later + 60_000.0
    assert state.why_not(much_later) is None
    lease = state.acquire(much_later)
    assert lease.is_probe is (state.breaker.state is BreakerState.HALF_OPEN)


def test_answers_to_requests_sent_before_the_trip_change_nothing() -> None:
    state = replica(max_concurrency=40)
    before = [state.acquire(0.0) for _ in range(30)]
    trip(state, 100.0)
    reopens_ms = state.breaker.open_until_ms
    latency_ms = state.latency.value_ms
    for number, lease in enumerate(before):
        outcome = Outcome.SUCCESS if number % 2 else Outcome.FAULT
        lease.release(outcome, 100_000.0, 200.0)
    assert state.breaker.state is BreakerState.OPEN
    assert state.breaker.open_until_ms == reopens_ms
    assert state.breaker.trips == 1
    assert state.latency.value_ms == latency_ms
    assert state.in_flight == 0


def test_a_late_answer_of_an_older_probe_neither_closes_nor_reopens_it() -> None:
    state = replica(breaker=BreakerConfig(probes=2))
    trip(state, 0.0)
    assert state.why_not(2_000.0) is None
    slow, fast = state.acquire(2_000.0), state.acquire(2_000.0)
    fast.release(Outcome.FAULT, 2.0, 2_002.0)
    assert state.breaker.state is BreakerState.OPEN
    slow.release(Outcome.SUCCESS, 100.0, 2_100.0)
    assert state.breaker.state is BreakerState.OPEN
    assert state.why_not(10_000.0) is None
    assert [state.acquire(10_000.0).is_probe for _ in range(2)] == [True, True]
    assert state.why_not(10_000.0) is WhyNot.PROBING


def test_each_failed_probe_makes_the_next_wait_longer_up_to_a_bound() -> None:
    config = BreakerConfig(jitter_ratio=0.0)
    state = replica(breaker=config)
    trip(state, 0.0)
    now_ms = 0.0
    waits = [state.breaker.open_until_ms]
    for _ in range(6):
        now_ms = state.breaker.open_until_ms
        assert state.why_not(now_ms) is None
        end(state, Outcome.FAULT, now_ms, 0.0)
        waits.append(state.breaker.open_until_ms - now_ms)
    assert waits == [1_000.0, 2_000.0, 4_000.0, 4_000.0, 4_000.0, 4_000.0, 4_000.0]


def test_gateways_do_not_probe_in_step() -> None:
    times = set()
    for seed in range(20):
        state = replica()
        state.breaker._rng.seed(seed)
        trip(state, 0.0)
        times.add(round(state.breaker.open_until_ms))
    assert len(times) > 15
    assert min(times) >= 800
    assert max(times) <= 1_200


def test_three_successful_probes_close_it_and_two_do_not() -> None:
    state = replica()
    trip(state, 0.0)
    assert state.why_not(2_000.0) is None
    for _ in range(2):
        end(state, Outcome.SUCCESS, 2_000.0, 0.0)
        assert state.breaker.state is BreakerState.HALF_OPEN
    end(state, Outcome.SUCCESS, 2_000.0, 0.0)
    assert state.breaker.state is BreakerState.CLOSED
    assert state.slow_start.ratio(2_000.0) < 0.2


def test_a_replica_that_flaps_waits_longer_each_time() -> None:
    state = replica(breaker=BreakerConfig(jitter_ratio=0.0))
    waits = []
    now_ms = 0.0
    for _ in range(3):
        trip(state, now_ms)
        waits.append(state.breaker.open_until_ms - now_ms)
        now_ms = state.breaker.open_until_ms
        assert state.why_not(now_ms) is None
        for _ in range(3):
            end(state, Outcome.SUCCESS, now_ms, 0.0)
        now_ms += 100.0
    assert waits == [1_000.0, 2_000.0, 4_000.0]


def test_a_replica_that_hangs_is_out_after_three_deadlines_without_a_byte() -> None:
    state = replica()
    for now_ms in (500.0, 1_000.0, 1_500.0):
        assert state.why_not(now_ms) is None
        lease = state.acquire(now_ms)
        lease.release(Outcome.DEADLINE, None, now_ms + 400.0)
    assert state.why_not(2_000.0) is WhyNot.WEDGED
    assert state.why_not(4_000.0) is None  # and is probed


def test_a_replica_that_streams_slowly_is_not_taken_for_a_hanging_one() -> None:
    state = replica()
    for start_ms in range(0, 10_000, 1_000):
        lease = state.acquire(start_ms)
        lease.begin(start_ms + 200.0)
        lease.release(Outcome.DEADLINE, None, start_ms + 900.0)
    assert state.why_not(10_000.0) is None


def test_deadlines_too_tight_for_anybody_do_not_make_a_replica_look_hung() -> None:
    state = replica()
    end(state, Outcome.SUCCESS, 1_000.0, 100.0)
    for start_ms in range(2_000, 10_000, 1_000):
        state.acquire(start_ms).release(Outcome.DEADLINE, None, start_ms + 20.0)
    assert state.why_not(10_000.0) is None


def test_a_hanging_replica_is_probed_ever_more_rarely() -> None:
    state = replica(breaker=BreakerConfig(jitter_ratio=0.0))
    now_ms = 0.0
    for _ in range(3):
        state.acquire(now_ms).release(Outcome.DEADLINE, 500.0, now_ms + 500.0)
        now_ms += 500.0
    waits = []
    for _ in range(7):
        waits.append(state.breaker.open_until_ms - now_ms)
        now_ms = state.breaker.open_until_ms
        assert state.why_not(now_ms) is None
        state.acquire(now_ms).release(Outcome.DEADLINE, 500.0, now_ms)
    assert waits == [1_000.0, 2_000.0, 4_000.0, 8_000.0, 16_000.0, 30_000.0, 30_000.0]


def test_a_health_check_that_sees_it_return_lets_the_probe_through_at_once() -> None:
    state = replica()
    router([state, replica("b"), replica("c")])
    trip(state, 0.0)
    state.report(10.0, ready=False)
    assert state.why_not(10.0) is WhyNot.NOT_READY
    state.report(50.0, ready=True)
    assert state.why_not(50.0) is None
    assert state.acquire(50.0).is_probe


def test_another_process_under_the_same_name_starts_with_a_clean_slate() -> None:
    state = replica(age_s=100.0)
    trip(state, 1_000.0)
    state.update(replica(age_s=0.5).spec, 2_000.0)
    assert state.why_not(2_000.0) is None
    assert state.latency.value_ms is None
    assert state.slow_start.ratio(2_000.0) < 1.0
