"""Who is chosen: fairly among equals, rarely where slow, gently where new."""

import random
from collections import Counter

import pytest

from engine.outcomes import Outcome
from engine.routing.decision import Rule
from engine.types import Priority, RequestType, Strategy
from tests.engine.routing_table import SEED, end, replica, router, shares, trip


def test_four_equal_replicas_share_four_hundred_requests_in_sequence() -> None:
    rng = random.Random(SEED)
    states = [replica(name) for name in "abcd"]
    made = router(states)
    chosen: Counter[str] = Counter()
    now_ms = 0.0
    firsts = set()
    for number in range(400):
        decision = made.pick(now_ms)
        assert decision is not None
        chosen[decision.replica.replica_id] += 1
        if number % 20 == 0:
            firsts.add(decision.replica.replica_id)
        lease = decision.replica.acquire(now_ms)
        latency_ms = 50.0 * rng.uniform(0.92, 1.08)
        now_ms += latency_ms
        lease.release(Outcome.SUCCESS, latency_ms, now_ms)
    assert all(abs(count / 400 - 0.25) <= 0.08 for count in chosen.values())
    assert len(firsts) == 4


def test_a_replica_ten_times_slower_is_used_only_when_the_other_is_full_and_not_forgotten() -> None:
    fast, slow = replica("fast", max_concurrency=4), replica("slow", max_concurrency=4)
    made = router([fast, slow])
    for now_ms in range(0, 2_000, 100):
        end(fast, Outcome.SUCCESS, now_ms, 20.0)
        end(slow, Outcome.SUCCESS, now_ms, 200.0)
    first = made.pick(2_000.0)
    assert first is not None
    assert first.replica is fast
    leases = [fast.acquire(2_000.0) for _ in range(4)]
    second = made.pick(2_000.0)
    assert second is not None
    assert second.replica is slow
    for lease in leases:
        lease.release(Outcome.SUCCESS, 20.0, 2_020.0)
    # left alone, it drifts back toward what the fleet usually takes, and is tried again
    for now_ms in range(2_100, 60_000, 100):
        end(fast, Outcome.SUCCESS, now_ms, 180.0)
    assert shares(made, 200, 60_000.0)["slow"] > 20


def test_an_idle_replica_drifts_to_the_median_and_not_to_zero() -> None:
    states = [replica(name) for name in "abc"]
    made = router(states)
    for state in states:
        end(state, Outcome.SUCCESS, 100.0, 100.0)
    end(states[0], Outcome.SUCCESS, 200.0, 1_000.0)
    made.roster.advance(2_000.0)
    just_now = states[0].score(2_000.0)
    made.roster.advance(600_000.0)
    assert just_now > 800.0
    assert states[0].score(600_000.0) == pytest.approx(100.0, rel=0.05)


def test_a_hanging_replica_does_not_look_better_the_longer_it_hangs() -> None:
    states = [replica(name) for name in "abc"]
    made = router(states)
    for state in states:
        end(state, Outcome.SUCCESS, 100.0, 100.0)
    end(states[0], Outcome.SUCCESS, 200.0, 1_000.0)
    states[0].acquire(300.0)
    made.roster.advance(60_000.0)
    assert states[0].score(60_000.0) == pytest.approx(2_000.0)


def test_failing_in_two_milliseconds_is_not_being_fast() -> None:
    states = [replica(name) for name in "abc"]
    made = router(states)
    for state in states:
        end(state, Outcome.SUCCESS, 100.0, 100.0)
    made.roster.advance(1_500.0)
    end(states[0], Outcome.FAULT, 1_500.0, 2.0)
    assert states[0].score(1_500.0) == pytest.approx(300.0)
    assert shares(made, 200, 1_500.0)["a"] == 0


def test_penalties_do_not_feed_on_each_other_in_a_fleet_that_fails_a_little() -> None:
    rng = random.Random(SEED)
    states = [replica(name) for name in "abcd"]
    made = router(states)
    for now_ms in range(0, 600_000, 20):
        made.roster.advance(now_ms)
        outcome = Outcome.FAULT if rng.random() < 0.05 else Outcome.SUCCESS
        end(rng.choice(states), outcome, now_ms, 100.0)
    assert all(state.score(600_000.0) < 400.0 for state in states)
    assert made.roster.median_ms == pytest.approx(100.0)


def test_a_slow_newcomer_ramps_up_instead_of_being_flooded() -> None:
    states = [replica(name) for name in "abcdefghi"]
    for state in states:
        end(state, Outcome.SUCCESS, 100.0, 50.0)
    newcomer = replica("new", now_ms=10_000.0, age_s=0.0)
    made = router(states)
    made.set_replicas([*states, newcomer], 10_000.0)
    end(newcomer, Outcome.SUCCESS, 10_050.0, 50.0)
    at_once = shares(made, 2_000, 10_060.0)["new"] / 200.0
    half_way = shares(made, 2_000, 15_000.0)["new"] / 200.0
    at_last = shares(made, 2_000, 20_050.0)["new"] / 200.0
    assert 0.02 < at_once < 0.5
    assert 0.5 < half_way < at_last
    assert at_last == pytest.approx(1.0, abs=0.25)


def test_a_newcomer_that_is_the_only_one_free_is_used_at_once() -> None:
    newcomer = replica("new", age_s=0.0)
    made = router([newcomer])
    assert shares(made, 100, 1.0)["new"] == 100


def test_an_unmeasured_replica_counts_as_one_and_a_half_medians() -> None:
    known, unknown = replica("known"), replica("unknown")
    made = router([known, unknown])
    end(known, Outcome.SUCCESS, 100.0, 100.0)
    made.roster.advance(2_000.0)
    assert unknown.score(2_000.0) == pytest.approx(150.0)


def test_a_weight_of_two_halves_the_score() -> None:
    plain, heavy = replica("plain"), replica("heavy", weight=2.0)
    for state in (plain, heavy):
        end(state, Outcome.SUCCESS, 100.0, 100.0)
    assert heavy.score(100.0) == plain.score(100.0) / 2.0


def test_work_that_waits_at_the_replica_itself_counts_against_it() -> None:
    state = replica()
    end(state, Outcome.SUCCESS, 100.0, 100.0)
    state.report(0.0, queued=4)
    state.report(0.0, queued=None)
    assert state.score(100.0) == pytest.approx(500.0)


def test_a_half_open_replica_is_sent_the_next_request_but_not_an_urgent_one() -> None:
    states = [replica(name) for name in "abc"]
    made = router(states)
    trip(states[0], 0.0)
    now_ms = 3_000.0
    urgent = [made.pick(now_ms, priority=Priority.HIGH) for _ in range(50)]
    assert all(decision is not None and decision.replica is not states[0] for decision in urgent)
    probe = made.pick(now_ms)
    assert probe is not None
    assert (probe.replica, probe.rule) == (states[0], Rule.PROBE)
    again = made.pick(now_ms, tried=("a",))
    assert again is not None
    assert again.replica is not states[0]
    states[0].acquire(now_ms)
    after = made.pick(now_ms)
    assert after is not None
    assert after.replica is not states[0]


def test_a_retry_never_goes_where_it_has_been() -> None:
    states = [replica(name) for name in "abcdefgh"]
    made = router(states)
    for _ in range(200):
        decision = made.pick(0.0, tried=("a", "b", "c", "d", "e", "f", "g"))
        assert decision is not None
        assert decision.replica is states[7]
    assert made.pick(0.0, tried=tuple("abcdefgh")) is None


def test_round_robin_takes_turns_and_passes_over_who_is_full() -> None:
    states = [replica(name, max_concurrency=1) for name in "abcd"]
    made = router(states)
    in_turn = [made.pick(0.0, strategy=Strategy.ROUND_ROBIN) for _ in range(8)]
    assert [d.replica.replica_id for d in in_turn if d is not None] == list("abcdabcd")
    states[1].acquire(0.0)
    assert shares(made, 300, 0.0, strategy=Strategy.ROUND_ROBIN) == {"a": 100, "c": 100, "d": 100}


def test_updates_go_to_the_least_loaded_however_fast_the_others_are() -> None:
    states = [replica(name) for name in "ab"]
    made = router(states)
    end(states[0], Outcome.SUCCESS, 100.0, 10.0)
    end(states[1], Outcome.SUCCESS, 100.0, 12.0)
    for _ in range(3):
        states[0].acquire(100.0)
    for strategy in Strategy:
        decision = made.pick(
            100.0, key="session", strategy=strategy, request_type=RequestType.UPDATE
        )
        assert decision is not None
        assert (decision.replica, decision.rule) == (states[1], Rule.LEAST_LOADED)


def test_updates_avoid_the_unhealthy_of_two_equally_loaded_replicas() -> None:
    sick, well = replica("sick"), replica("well")
    made = router([sick, well])
    for number in range(40):
        end(sick, Outcome.FAULT if number % 6 == 0 else Outcome.SUCCESS, 100.0, 400.0)
        end(well, Outcome.SUCCESS, 100.0, 40.0)
    sick.report(100.0, gpu_memory_ratio=0.95)
    well.report(100.0, gpu_memory_ratio=0.20)
    made.roster.advance(2_000.0)
    chosen = shares(made, 200, 2_000.0, request_type=RequestType.UPDATE)
    assert chosen["well"] == 200


def test_updates_of_a_model_prefer_the_replica_that_has_it_in_memory() -> None:
    states = [replica("a", loaded_models=frozenset({"x"})), replica("b")]
    made = router(states)
    for state in states:
        end(state, Outcome.SUCCESS, 100.0, 50.0)
    options = {"request_type": RequestType.UPDATE, "model": "x"}
    assert shares(made, 100, 100.0, **options)["a"] == 100
    for _ in range(2):
        states[0].acquire(100.0)
    assert shares(made, 100, 100.0, **options)["b"] == 100


def test_nothing_is_chosen_among_the_draining_and_the_down_and_the_router_says_so() -> None:
    draining, down = replica("draining", draining=True), replica("down")
    down.report(0.0, ready=False)
    made = router([draining, down])
    assert made.pick(0.0) is None
    assert made.earliest_probe_ms(0.0) is None
    assert made.utilisation(0.0) == 1.0
    down.report(10.0, ready=True)
    assert made.earliest_probe_ms(10.0) == 10.0


def test_a_full_fleet_is_worth_waiting_for() -> None:
    state = replica(max_concurrency=1)
    made = router([state])
    state.acquire(0.0)
    assert made.pick(0.0) is None
    assert made.earliest_probe_ms(0.0) == 0.0
    assert made.utilisation(0.0) == 1.0


class _CountedWork:
    """A rate that counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0


@pytest.mark.parametrize("full", [0, 990])
def test_choosing_among_a_thousand_looks_at_two_however_many_are_full(
    full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [replica(f"r{n}", max_concurrency=1) for n in range(1_000)]
    made = router(states)
    for state in states[:full]:
        state.acquire(0.0)
    counted = _CountedWork()
    state_type = type(states[0])
    why_not = state_type.why_not

    def watched(self: object, now_ms: float) -> object:
        counted.calls += 1
        return why_not(self, now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(state_type, "why_not", watched)
    decision = made.pick(1.0)
    assert decision is not None
    assert len(decision.candidates) == 2
    assert counted.calls == 0
    decision.replica.acquire(1.0).release(Outcome.SUCCESS, 1.0, 2.0)
    assert counted.calls <= 2
