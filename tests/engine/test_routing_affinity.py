"""Where a key's state is warm, its requests go, as long as that is good for all."""

import random
from bisect import bisect_left
from collections import Counter, deque
from itertools import accumulate

from engine.outcomes import Outcome
from engine.routing.decision import Rule
from engine.routing.lease import Lease
from engine.routing.replica_state import ReplicaState
from engine.routing.router import Router
from engine.types import Priority, Strategy
from tests.engine.routing_table import SEED, end, replica, router, trip

_AFFINITY = Strategy.AFFINITY


def _fleet(n: int = 10, **changes: object) -> tuple[list[ReplicaState], Router]:
    states = [replica(f"r{number}", **changes) for number in range(n)]
    return states, router(states)


def _home(made: Router, key: str) -> ReplicaState:
    decision = made.pick(0.0, key=key, strategy=_AFFINITY)
    assert decision is not None
    assert decision.rule is Rule.HOME
    return decision.replica


def test_a_session_comes_back_to_the_replica_that_knows_it() -> None:
    _, made = _fleet()
    for number in range(50):
        home = _home(made, f"session-{number}")
        assert all(_home(made, f"session-{number}") is home for _ in range(5))
    assert len({_home(made, f"session-{number}") for number in range(200)}) == 10


def test_a_session_whose_home_is_full_or_ejected_spills_to_the_same_neighbour_each_time() -> None:
    states, made = _fleet(max_concurrency=2)
    home = _home(made, "session")
    trip(home, 0.0)
    spilled = {made.pick(1.0, key="session", strategy=_AFFINITY) for _ in range(20)}
    neighbours = {decision.replica for decision in spilled if decision is not None}
    assert len(neighbours) == 1
    assert home not in neighbours
    (neighbour,) = neighbours
    for state in states:
        for _ in range(2):
            if state is not neighbour and state is not home:
                state.acquire(1.0)
    decision = made.pick(1.0, key="session", strategy=_AFFINITY)
    assert decision is not None
    assert decision.replica is neighbour


def test_one_hot_key_does_not_overload_its_home() -> None:
    states, made = _fleet(max_concurrency=64)
    leases: list[Lease] = []
    for _ in range(200):
        decision = made.pick(0.0, key="hot", strategy=_AFFINITY)
        assert decision is not None
        leases.append(decision.replica.acquire(0.0))
    # reach is eight nodes: they carry it all, and none of them more than its bound
    assert max(state.in_flight for state in states) <= 1.3 * 200 / 8
    for lease in leases:
        lease.release(Outcome.SUCCESS, 10.0, 10.0)


def test_popular_keys_stay_at_home_and_the_load_stays_even() -> None:
    rng = random.Random(SEED)
    states, made = _fleet(max_concurrency=64)
    weights = list(accumulate(rank**-1.1 for rank in range(1, 1_001)))
    open_leases: deque[Lease] = deque()
    rules: Counter[Rule] = Counter()
    peaks = []
    for number in range(6_000):
        key = f"session-{bisect_left(weights, rng.random() * weights[-1])}"
        decision = made.pick(number, key=key, strategy=_AFFINITY)
        assert decision is not None
        rules[decision.rule] += 1
        open_leases.append(decision.replica.acquire(number))
        if len(open_leases) > 100:
            open_leases.popleft().release(Outcome.SUCCESS, 50.0, number)
            peaks.append(max(state.in_flight for state in states) / 10.0)
    assert sum(peaks) / len(peaks) <= 1.30
    assert rules[Rule.HOME] / sum(rules.values()) >= 0.60


def test_locality_is_not_ignored_a_warm_replica_beats_a_cold_home() -> None:
    states, made = _fleet()
    for state in states:
        state.report(0.0, loaded_models=frozenset({"other"}))
    far_along = made._ring.current(0.0).home("llama", 6)[5]
    warm = next(s for s in states if s.replica_id == far_along)
    warm.report(0.0, loaded_models=frozenset({"llama"}))
    decision = made.pick(1.0, key="llama", model="llama", strategy=_AFFINITY)
    assert decision is not None
    assert (decision.replica, decision.rule) == (warm, Rule.WARM)


def test_a_cold_model_is_loaded_where_there_is_memory_to_spare() -> None:
    states, made = _fleet()
    order = made._ring.current(0.0).home("llama", 8)
    for state in states:
        state.report(0.0, loaded_models=frozenset({"other"}), gpu_memory_ratio=1.0)
    roomy = next(s for s in states if s.replica_id == order[3])
    roomy.report(0.0, gpu_memory_ratio=0.4)
    decision = made.pick(0.0, key="llama", model="llama", strategy=_AFFINITY)
    assert decision is not None
    assert decision.replica is roomy


def test_while_warm_replicas_are_full_the_model_is_copied_now_and_then_and_not_each_time() -> None:
    states, made = _fleet(max_concurrency=2)
    for state in states:
        state.report(0.0, loaded_models=frozenset({"other"}))
    order = made._ring.current(0.0).home("llama", 8)
    warm = next(s for s in states if s.replica_id == order[0])
    warm.report(0.0, loaded_models=frozenset({"llama"}))
    for _ in range(2):
        warm.acquire(0.0)
    copies = 0
    for now_ms in range(0, 10_000, 10):
        decision = made.pick(now_ms, key="llama", model="llama", strategy=_AFFINITY)
        copies += decision is not None
    assert 4 <= copies <= 6


def test_a_model_moves_to_a_new_replica_only_once_it_is_warm_there() -> None:
    states, made = _fleet(9)
    for state in states:
        state.report(0.0, loaded_models=frozenset({"base"}))
    keys = [f"model-{number}" for number in range(40)]
    homes: dict[str, ReplicaState] = {}
    for key in keys:
        homes[key] = _home(made, key)
        homes[key].report(0.0, loaded_models=homes[key].loaded_models | {key})
    newcomer = replica("new", loaded_models=frozenset({"base"}))
    made.set_replicas([*states, newcomer], 60_000.0)
    for key in keys:
        decision = made.pick(61_000.0, key=key, model=key, strategy=_AFFINITY)
        assert decision is not None
        assert decision.replica is homes[key]
    moved = [key for key in keys if made._ring.current(61_000.0).home(key)[0] == "new"]
    assert moved
    newcomer.report(61_000.0, loaded_models=frozenset({"base", moved[0]}))
    decision = made.pick(61_000.0, key=moved[0], model=moved[0], strategy=_AFFINITY)
    assert decision is not None
    assert decision.replica is newcomer


def test_urgency_widens_the_choice_to_whoever_is_fastest() -> None:
    states, made = _fleet()
    for state in states:
        end(state, Outcome.SUCCESS, 100.0, 500.0)
    order = made._ring.current(100.0).home("session", 8)
    third = next(s for s in states if s.replica_id == order[2])
    for _ in range(3):
        third.latency.forget()
        end(third, Outcome.SUCCESS, 200.0, 20.0)
    made.roster.advance(300.0)
    normal = made.pick(300.0, key="session", strategy=_AFFINITY)
    high = made.pick(300.0, key="session", strategy=_AFFINITY, priority=Priority.HIGH)
    critical = made.pick(300.0, key="session", strategy=_AFFINITY, priority=Priority.CRITICAL)
    assert normal is not None
    assert normal.replica.replica_id == order[0]
    for urgent in (high, critical):
        assert urgent is not None
        assert (urgent.replica, urgent.rule) == (third, Rule.WIDENED)


def test_affinity_is_let_go_where_the_warm_replica_would_miss_the_deadline() -> None:
    states, made = _fleet(3)
    for state in states:
        end(state, Outcome.SUCCESS, 100.0, 50.0)
    home = _home(made, "session")
    end(home, Outcome.SUCCESS, 5_000.0, 2_000.0)
    relaxed = made.pick(5_000.0, key="session", strategy=_AFFINITY, within_ms=10_000.0)
    tight = [
        made.pick(5_000.0, key="session", strategy=_AFFINITY, within_ms=300.0) for _ in range(20)
    ]
    assert relaxed is not None
    assert relaxed.replica is home
    for decision in tight:
        assert decision is not None
        assert decision.rule is Rule.LET_GO
        assert decision.replica is not home


def test_without_a_key_affinity_is_power_of_two_choices() -> None:
    _, made = _fleet()
    decision = made.pick(0.0, strategy=_AFFINITY)
    assert decision is not None
    assert decision.rule is Rule.TWO_CHOICES


def test_a_retry_of_a_session_goes_to_its_next_replica() -> None:
    _, made = _fleet()
    home = _home(made, "session")
    again = made.pick(0.0, key="session", strategy=_AFFINITY, tried=(home.replica_id,))
    assert again is not None
    assert again.replica is not home
    assert again.rule is Rule.HOME
