"""Whole fleets in virtual time: what clients notice when a replica goes wrong."""

import pytest

from bench.routing_fleet import RoutedFleet
from engine.outcomes import Outcome
from engine.routing.breaker import BreakerState
from engine.routing.hedge import HedgePolicy
from engine.types import RequestType
from tests.engine.routing_table import SEED, replica, router


def _fleet(n: int, *, mean_ms: float = 20.0, **options: object) -> RoutedFleet:
    fleet = RoutedFleet(SEED, **options)  # type: ignore[arg-type]
    for number in range(n):
        fleet.add(f"r{number}").mean_ms = mean_ms
    return fleet


def _p95(fleet: RoutedFleet, from_ms: float) -> float:
    times = sorted(latency for arrived, latency in fleet.log.answers if arrived >= from_ms)
    return times[int(0.95 * len(times))]


def test_a_replica_that_fails_in_two_milliseconds_costs_no_client_an_error_and_comes_back() -> None:
    fleet = _fleet(2)
    fleet.servers["r0"].fault_ratio = 1.0
    fleet.offer(60.0, 30_000.0)
    fleet.loop.run(10_000.0)
    assert len(fleet.log.answers) >= 550
    assert fleet.log.errors == 0
    eaten = fleet.servers["r0"].sent
    assert eaten <= 0.02 * len(fleet.log.attempts)
    fleet.servers["r0"].fault_ratio = 0.0
    fleet.loop.run(20_000.0)
    before = fleet.servers["r0"].sent
    fleet.loop.run(30_000.0)
    assert fleet.servers["r0"].sent - before > 100
    assert fleet.log.errors == 0


@pytest.mark.parametrize("rate_per_s", [5.0, 50.0, 500.0])
def test_both_replicas_failing_a_thousand_requests_make_at_most_eleven_hundred_attempts(
    rate_per_s: float,
) -> None:
    fleet = _fleet(2, patience_ms=2_000.0)
    for server in fleet.servers.values():
        server.fault_ratio = 1.0
    fleet.offer(rate_per_s, 1_000_000.0 / rate_per_s)
    fleet.loop.run(1_000_000.0 / rate_per_s + 10_000.0)
    requests = len(fleet.log.arrivals)
    assert requests > 900
    assert fleet.log.errors >= 0.99 * requests
    assert len(fleet.log.answers) == 0
    assert len(fleet.log.attempts) <= 1.1 * requests
    assert len(fleet.log.extra) <= 0.1 * requests


def test_at_one_request_a_second_a_dead_replica_of_two_stays_invisible_to_clients() -> None:
    fleet = _fleet(2)
    fleet.servers["r0"].fault_ratio = 1.0
    fleet.offer(1.0, 600_000.0)
    fleet.loop.run(610_000.0)
    assert fleet.servers["r0"].sent > 20
    assert fleet.log.errors == 0


def test_a_slow_replica_does_not_move_the_p95_of_the_others() -> None:
    fleet = _fleet(4)
    fleet.servers["r0"].mean_ms = 200.0
    fleet.offer(250.0, 20_000.0)
    fleet.loop.run(20_000.0)
    assert _p95(fleet, 5_000.0) < 60.0
    assert fleet.servers["r0"].sent > 20


def test_a_hanging_replica_is_ejected_while_the_others_go_on_as_before() -> None:
    states = [replica(f"r{number}", max_concurrency=2) for number in range(4)]
    made = router(states)
    hung = states[0]
    lost = 0
    now_ms = 0.0
    waiting = []
    for _ in range(400):
        now_ms += 25.0
        for started_ms, lease in [w for w in waiting if w[0] + 500.0 <= now_ms]:
            lease.release(Outcome.DEADLINE, None, now_ms)
            waiting.remove((started_ms, lease))
            lost += 1
        decision = made.pick(now_ms)
        assert decision is not None
        lease = decision.replica.acquire(now_ms)
        if decision.replica is hung:
            waiting.append((now_ms, lease))
        else:
            lease.release(Outcome.SUCCESS, 20.0, now_ms)
    assert hung.breaker.state is not BreakerState.CLOSED
    assert hung.breaker.trips == 1
    assert lost <= 8
    assert all(state.breaker.trips == 0 for state in states[1:])


def test_five_hundred_arrivals_in_ten_milliseconds_never_overfill_a_replica_of_eight() -> None:
    fleet = RoutedFleet(SEED)
    fleet.add("only", places=8)
    worst = 0

    def watch(now_ms: float) -> None:
        nonlocal worst
        worst = max(worst, fleet.servers["only"].state.in_flight)

    fleet.on_arrival(watch)
    fleet.offer(50_000.0, 10.0)
    fleet.loop.run(60_000.0)
    assert len(fleet.log.arrivals) > 400
    assert len(fleet.log.answers) == len(fleet.log.arrivals)
    assert worst == 8


def test_a_newcomer_to_a_fast_fleet_has_half_of_its_share_in_five_seconds_and_no_flood() -> None:
    fleet = _fleet(9)
    fleet.offer(600.0, 28_000.0)
    fleet.loop.run(10_000.0)
    server = fleet.add("new", age_s=0.0)
    server.mean_ms = 20.0

    def share_of(from_ms: float, to_ms: float) -> float:
        fleet.loop.run(from_ms)
        mine, all_ = server.sent, len(fleet.log.attempts)
        fleet.loop.run(to_ms)
        return 10.0 * (server.sent - mine) / (len(fleet.log.attempts) - all_)

    assert share_of(10_000.0, 11_000.0) <= 1.5
    assert share_of(14_000.0, 15_000.0) >= 0.5
    assert 0.8 <= share_of(25_000.0, 28_000.0) <= 1.2


def test_hedging_shortens_the_tail_where_the_lateness_is_one_replicas_own() -> None:
    tails = []
    for hedging in (None, HedgePolicy()):
        fleet = _fleet(6, hedging=hedging)
        for server in fleet.servers.values():
            server.straggle_ratio = 0.03
        fleet.offer(400.0, 12_000.0)
        fleet.loop.run(13_000.0)
        times = sorted(latency for _, latency in fleet.log.answers)
        tails.append(times[int(0.99 * len(times))])
        assert len(fleet.log.extra) <= 0.055 * len(fleet.log.arrivals)
    assert tails[1] < 0.7 * tails[0]


def test_hedging_does_not_make_a_slowdown_that_all_share_any_worse() -> None:
    p95 = []
    for hedging in (None, HedgePolicy()):
        fleet = _fleet(6, hedging=hedging)
        fleet.offer(360.0, 24_000.0)
        fleet.loop.run(12_000.0)
        for server in fleet.servers.values():
            server.mean_ms = 60.0
        fleet.loop.run(24_000.0)
        p95.append(_p95(fleet, 12_000.0))
    assert p95[1] <= 1.05 * p95[0]


def test_an_update_during_an_outage_goes_to_a_replica_that_is_in_service() -> None:
    states = [replica(name) for name in "abc"]
    made = router(states)
    states[0].report(0.0, ready=False)
    states[1].backpressure(None, 0.0)
    for _ in range(20):
        decision = made.pick(1.0, request_type=RequestType.UPDATE)
        assert decision is not None
        assert decision.replica is states[2]
