"""When most of the fleet looks broken: spread, slowly, and say so."""

import random
from collections import Counter

from engine.outcomes import Outcome
from engine.routing import hard_gate
from engine.routing.breaker import BreakerState
from engine.routing.replica_state import ReplicaState
from engine.routing.router import Router
from tests.engine.routing_table import SEED, end, replica, router, trip


def _drive(made: Router, until_ms: float, fails: Counter[str] | set[str]) -> Counter[str]:
    """A request every 5 ms; replicas in `fails` fail it. Returns who got how many."""
    chosen: Counter[str] = Counter()
    now_ms = 10_000.0
    while now_ms < until_ms:
        decision = made.pick(now_ms)
        if decision is not None:
            state = decision.replica
            chosen[state.replica_id] += 1
            bad = state.replica_id in fails
            state.acquire(now_ms).release(
                Outcome.FAULT if bad else Outcome.SUCCESS, 2.0 if bad else 20.0, now_ms
            )
        now_ms += 5.0
    return chosen


def _fleet(n: int) -> tuple[list[ReplicaState], Router]:
    states = [replica(f"r{number}") for number in range(n)]
    return states, router(states)


def test_one_of_two_broken_is_ejected_and_both_broken_is_panic() -> None:
    (first, second), made = _fleet(2)
    trip(first, 0.0)
    assert made.panic is False
    assert {made.pick(1.0).replica for _ in range(20)} == {second}  # type: ignore[union-attr]
    trip(second, 0.0)
    assert made.panic is True


def test_two_of_three_broken_leaves_none_ejected_and_is_flagged() -> None:
    states, made = _fleet(3)
    trip(states[0], 0.0)
    assert made.panic is False
    trip(states[1], 0.0)
    assert made.panic is True
    # each is tried again within a second, though its own backoff has not ended
    seen = set()
    for now_ms in range(0, 1_200, 10):
        seen |= {state.replica_id for state in states if state.why_not(now_ms) is None}
    assert seen == {"r0", "r1", "r2"}
    decision = made.pick(100.0)
    assert decision is not None
    assert decision.panic is True
    assert decision.numbers["panic"] is True


def test_with_all_broken_the_traffic_is_spread_over_all() -> None:
    states, made = _fleet(3)
    for state in states:
        trip(state, 10_000.0)
    chosen = _drive(made, 20_000.0, {"r0", "r1", "r2"})
    assert set(chosen) == {"r0", "r1", "r2"}
    assert max(chosen.values()) <= 2 * min(chosen.values())
    assert sum(chosen.values()) <= 3 * 10 * 2  # and not at the pace at which they fail


def test_two_dead_of_three_do_not_eat_what_the_third_could_serve() -> None:
    states, made = _fleet(3)
    trip(states[0], 10_000.0)
    trip(states[1], 10_000.0)
    chosen = _drive(made, 20_000.0, {"r0", "r1"})
    assert chosen["r2"] >= 0.97 * sum(chosen.values())


def test_a_fleet_that_fails_at_random_is_served_and_not_switched_off() -> None:
    rng = random.Random(SEED)
    states, made = _fleet(4)
    served = asked = 0
    now_ms = 0.0
    while now_ms < 60_000.0:
        now_ms += 10.0
        asked += 1
        decision = made.pick(now_ms)
        if decision is None:
            continue
        fails = rng.random() < 0.3
        served += not fails
        decision.replica.acquire(now_ms).release(
            Outcome.FAULT if fails else Outcome.SUCCESS, 20.0, now_ms
        )
    assert any(state.breaker.trips for state in states)
    assert served / asked > 0.6


def test_a_dead_fleet_that_comes_back_is_noticed_within_a_second() -> None:
    states, made = _fleet(3)
    for state in states:
        for _ in range(20):
            end(state, Outcome.FAULT, 10_000.0, 2.0)
    first = None
    now_ms = 10_000.0
    while first is None:
        now_ms += 5.0
        decision = made.pick(now_ms)
        if decision is not None:
            first = now_ms
            decision.replica.acquire(now_ms).release(Outcome.SUCCESS, 20.0, now_ms)
    assert first <= 11_000.0
    _drive(made, 14_000.0, set())
    assert all(state.breaker.state is BreakerState.CLOSED for state in states)
    assert made.panic is False


def test_when_nothing_can_be_sent_the_router_says_when_something_can() -> None:
    for n in (1, 2, 3):
        states, made = _fleet(n)
        for state in states:
            trip(state, 10_000.0)
        assert made.pick(10_000.0) is None
        earliest_ms = made.earliest_probe_ms(10_000.0)
        assert earliest_ms is not None
        assert 10_000.0 < earliest_ms <= 11_000.0
        assert made.next_change_ms(10_000.0) == earliest_ms
        assert (
            min(hard_gate.ready_in_ms(state, 10_000.0) for state in states)
            == earliest_ms - 10_000.0
        )
        assert made.pick(earliest_ms - 1.0) is None
        decision = made.pick(earliest_ms)
        assert decision is not None


def test_replicas_that_drain_do_not_count_as_healthy_company() -> None:
    states = [replica("a"), replica("b"), replica("c", draining=True), replica("d", draining=True)]
    made = router(states)
    trip(states[0], 0.0)
    assert made.panic is False
    trip(states[1], 0.0)
    assert made.panic is True
