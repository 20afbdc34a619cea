"""Busy is not broken."""

from itertools import pairwise

import pytest

from engine.outcomes import Outcome
from engine.routing.breaker import BreakerState
from engine.routing.eligibility import WhyNot
from engine.routing.replica_state import ReplicaState
from tests.engine.routing_table import end, replica, router


def _busy(state: ReplicaState, now_ms: float, retry_after_ms: float | None = None) -> None:
    state.acquire(now_ms).release(Outcome.BACKPRESSURE, 1.0, now_ms)
    state.backpressure(retry_after_ms, now_ms)


def test_forty_busy_answers_leave_the_breaker_closed_and_the_next_request_goes_through() -> None:
    states = [replica("a"), replica("b")]
    made = router(states)
    now_ms = attempts = 0
    for _ in range(40):
        decision = made.pick(now_ms)
        if decision is None:
            assert made.earliest_probe_ms(now_ms) > now_ms  # type: ignore[operator]
        else:
            attempts += 1
            _busy(decision.replica, now_ms)
        now_ms += 5
    assert attempts <= 6
    assert all(state.breaker.state is BreakerState.CLOSED for state in states)
    soonest_ms = made.earliest_probe_ms(now_ms)
    assert soonest_ms is not None
    assert soonest_ms - now_ms <= 1_000.0
    assert made.pick(soonest_ms) is not None


def test_the_pause_grows_while_it_stays_busy_and_starts_short_again_after_a_success() -> None:
    state = replica()
    pauses = []
    now_ms = 0.0
    for _ in range(6):
        _busy(state, now_ms)
        assert state.why_not(now_ms) is WhyNot.BACKPRESSURE
        pauses.append(state.busy.until_ms - now_ms)
        now_ms = state.busy.until_ms
        assert state.why_not(now_ms) is None
    assert 80.0 <= pauses[0] <= 120.0
    assert all(later > earlier for earlier, later in pairwise(pauses[:4]))
    assert max(pauses) <= 1_000.0
    end(state, Outcome.SUCCESS, now_ms)
    _busy(state, now_ms)
    assert state.busy.until_ms - now_ms <= 120.0


def test_a_wave_of_busy_answers_is_one_piece_of_news() -> None:
    state = replica(max_concurrency=40)
    leases = [state.acquire(0.0) for _ in range(40)]
    for lease in leases:
        lease.release(Outcome.BACKPRESSURE, 1.0, 1.0)
        state.backpressure(None, 1.0)
    assert state.busy.until_ms <= 121.0
    assert state.busy.answers == 40


@pytest.mark.parametrize(("asked_ms", "at_most_ms"), [(300.0, 360.0), (60_000.0, 1_000.0)])
def test_it_is_left_alone_as_long_as_it_asked_but_never_for_more_than_a_second(
    asked_ms: float, at_most_ms: float
) -> None:
    state = replica()
    _busy(state, 0.0, asked_ms)
    assert min(asked_ms, 1_000.0) * 0.8 <= state.busy.until_ms <= at_most_ms
