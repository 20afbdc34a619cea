"""What is taken is given back exactly once, on every path."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BrokenInvariant
from engine.outcomes import Outcome
from engine.routing.breaker import BreakerState
from engine.routing.eligibility import WhyNot
from engine.routing.lease import Lease
from engine.types import Strategy
from tests.engine.routing_table import replica, router, spec


def test_giving_a_lease_back_twice_is_an_error_and_changes_nothing() -> None:
    state = replica()
    lease = state.acquire(0.0)
    lease.release(Outcome.SUCCESS, 10.0, 10.0)
    with pytest.raises(BrokenInvariant, match="released twice"):
        lease.release(Outcome.SUCCESS, 10.0, 10.0)
    assert state.in_flight == 0


def test_a_replica_never_holds_more_than_its_ceiling_in_a_burst() -> None:
    state = replica(max_concurrency=8)
    made = router([state])
    taken = 0
    for number in range(500):
        decision = made.pick(number * 0.02)
        if decision is not None:
            decision.replica.acquire(number * 0.02)
            taken += 1
    assert taken == 8
    assert state.why_not(10.0) is WhyNot.CEILING
    with pytest.raises(BrokenInvariant, match="ceiling"):
        state.acquire(10.0)


def test_registering_again_with_ten_in_flight_keeps_ten_and_comes_back_to_zero() -> None:
    state = replica(max_concurrency=16)
    made = router([state])
    leases = [state.acquire(0.0) for _ in range(10)]
    for changes in ({"max_concurrency": 4}, {"address": "http://elsewhere"}, {"age_s": 0.0}):
        state.update(spec("a", **{"max_concurrency": 16, **changes}), 100.0)
        made.set_replicas([state], 100.0)
        assert state.in_flight == 10
        assert made.roster.in_flight == 10
    for lease in leases:
        lease.release(Outcome.SUCCESS, 10.0, 200.0)
        assert state.in_flight >= 0
    assert state.in_flight == 0
    assert made.roster.in_flight == 0


def test_a_replica_removed_with_leases_out_takes_their_return_quietly() -> None:
    gone, kept = replica("gone"), replica("kept")
    made = router([gone, kept])
    lease = gone.acquire(0.0)
    made.set_replicas([kept], 10.0)
    lease.release(Outcome.FAULT, 10.0, 20.0)
    assert gone.in_flight == 0
    assert made.roster.in_flight == 0
    assert {made.pick(30.0).replica for _ in range(20)} == {kept}  # type: ignore[union-attr]


def test_a_replica_that_moves_to_another_version_moves_with_its_leases() -> None:
    state, other = replica("a"), replica("b")
    old, new = router([state, other]), router([])
    lease = state.acquire(0.0)
    new.set_replicas([state], 10.0)
    old.set_replicas([other], 10.0)
    assert (old.roster.in_flight, new.roster.in_flight) == (0, 1)
    assert old.roster.free == [other]
    lease.release(Outcome.SUCCESS, 10.0, 20.0)
    assert (old.roster.in_flight, new.roster.in_flight) == (0, 0)


_steps = st.lists(
    st.tuples(
        st.sampled_from(["pick", "pick", "end", "busy", "drain", "ready", "update", "members"]),
        st.integers(0, 5),
        st.sampled_from(list(Outcome)),
        st.sampled_from([0.0, 0.0, 1.0, 40.0, 700.0, 5_000.0]),
    ),
    max_size=150,
)


@settings(max_examples=60)
@given(_steps)
def test_whatever_happens_the_books_of_router_and_replicas_agree(
    steps: list[tuple[str, int, Outcome, float]],
) -> None:
    states = [replica(f"r{n}", max_concurrency=1 + n % 3) for n in range(5)]
    made = router(states)
    listed = list(states)
    leases: list[Lease] = []
    rng = random.Random(1)
    now_ms = 0.0
    for verb, number, outcome, wait_ms in steps:
        now_ms += wait_ms
        state = states[number % 5]
        if verb == "pick":
            strategy = rng.choice(list(Strategy))
            decision = made.pick(now_ms, key=str(number), strategy=strategy)
            if decision is not None:
                assert decision.replica in listed
                assert decision.replica.why_not(now_ms) is None
                leases.append(decision.replica.acquire(now_ms))
            else:
                assert all(s.why_not(now_ms) is not None for s in listed)
        elif verb == "end" and leases:
            leases.pop(rng.randrange(len(leases))).release(outcome, 2.0 * number, now_ms)
        elif verb == "busy":
            state.backpressure(None if number else 400.0, now_ms)
        elif verb == "drain":
            state.update(spec(state.replica_id, draining=number > 3), now_ms)
        elif verb == "ready":
            state.report(now_ms, ready=number > 1)
        elif verb == "update":
            state.report(now_ms, max_concurrency=1 + number)
        elif verb == "members":
            listed = [s for n, s in enumerate(states) if n != number]
            made.set_replicas(listed, now_ms)
        made.roster.advance(now_ms)
        roster = made.roster
        assert roster.in_flight == sum(s.in_flight for s in listed)
        assert set(roster.free) == {s for s in listed if s.why_not(now_ms) is None}
        assert [s.slot for s in roster.free] == list(range(len(roster.free)))
        assert sum(s.in_flight for s in states) == len(leases)
        assert set(roster.probing) == {
            s for s in roster.free if s.breaker.state is BreakerState.HALF_OPEN
        }
        available = [s for s in listed if s.ready and not s.spec.draining]
        tripped = [s for s in available if s.breaker.state is not BreakerState.CLOSED]
        assert made.panic is (len(tripped) > len(available) / 2)
    for lease in leases:
        lease.release(Outcome.CANCELLED, None, now_ms)
    assert all(s.in_flight == 0 for s in states)
