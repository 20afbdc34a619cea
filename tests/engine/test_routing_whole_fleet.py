"""The whole scheduler over a fleet in which replicas fail, hang, are busy or slow."""

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from engine.actions import Deliver, Dispatch
from engine.errors import Refusal
from engine.scheduler import Scheduler
from engine.simulation.device import Fault, FaultKind, SimulatedReplica, affine, jittered
from engine.simulation.events import EventLoop
from engine.simulation.fleet import SimulatedFleet
from engine.types import Request
from tests.engine.harness import SEED, replica, snapshot


class Clients:
    """Sends requests at a steady pace and notes how each ended."""

    def __init__(self, replicas: dict[str, SimulatedReplica]) -> None:
        self.loop = EventLoop()
        self.scheduler = Scheduler(self.loop.clock, random.Random(SEED))
        self.scheduler.apply(snapshot([r.spec for r in replicas.values()]))
        self.outcomes: Counter[str] = Counter()
        self.latencies: dict[str, float] = {}
        self.refusals: dict[str, Refusal] = {}
        self.attempts: list[tuple[float, str]] = []
        self.most_attempts = 0
        self.requests = 0
        self.fleet = SimulatedFleet(
            self.loop,
            self.scheduler,
            list(replicas.values()),
            random.Random(SEED),
            on_deliver=self._delivered,
            on_dispatch=self._dispatched,
        )

    def _delivered(self, deliver: Deliver) -> None:
        name = deliver.request.request_id
        self.most_attempts = max(self.most_attempts, deliver.attempts)
        if deliver.refusal is None:
            self.outcomes["served"] += 1
            self.latencies[name] = deliver.total_ms
        else:
            self._refused(deliver.request, deliver.refusal)

    def _refused(self, request: Request, refusal: Refusal) -> None:
        self.outcomes[str(refusal.code)] += 1
        self.refusals[request.request_id] = refusal

    def _dispatched(self, dispatch: Dispatch) -> None:
        self.attempts.append((self.loop.now_ms(), dispatch.replica_id))

    def ask(self, n: int, every_ms: float, deadline_ms: float = 2_000.0) -> None:
        """Send `n` requests, one each `every_ms`, and let them all end."""
        start_ms = self.loop.now_ms()

        def requests() -> Iterator[Request]:
            for number in range(n):
                self.requests += 1
                at_ms = start_ms + number * every_ms
                yield Request(
                    request_id=f"q{self.requests}",
                    tenant="acme",
                    model="m",
                    prompt_tokens=100,
                    arrived_ms=at_ms,
                    deadline_ms=at_ms + deadline_ms,
                )

        self.fleet.play(requests(), self._refused)
        self.loop.run(start_ms + n * every_ms + deadline_ms + 100.0)
        assert sum(self.outcomes.values()) == self.requests
        assert self.scheduler.conservation()["balanced"]

    def sent_to(self, name: str, since_ms: float = 0.0) -> int:
        return sum(who == name and at >= since_ms for at, who in self.attempts)


def _replica(
    name: str, *faults: Fault, fixed_ms: float = 18.0, **changes: object
) -> SimulatedReplica:
    return SimulatedReplica(
        spec=replica(name, **changes),
        service=jittered(affine(fixed_ms, 0.02), 0.08),
        faults=list(faults),
        stoppable=True,
    )


def _clients(*replicas: SimulatedReplica) -> Clients:
    return Clients({r.spec.replica_id: r for r in replicas})


def _panicked(clients: Clients, number: int) -> bool:
    """Whether the decision record of a request says that ejections were suspended."""
    record = clients.scheduler.explain(f"q{number}")
    assert record is not None
    stages = record["stages"]
    assert isinstance(stages, list)
    return any(stage["numbers"].get("panic") is True for stage in stages)


def test_of_six_hundred_requests_none_fails_while_one_of_two_replicas_answers_500() -> None:
    clients = _clients(
        _replica("bad", Fault(kind=FaultKind.FAIL, end_ms=10_000.0)), _replica("good")
    )
    clients.ask(600, 16.0)
    assert clients.outcomes == {"served": 600}
    assert clients.sent_to("bad") <= 20
    clients.loop.run(15_000.0)
    clients.ask(600, 5.0)
    assert clients.sent_to("bad", 15_000.0) > 100
    assert clients.outcomes == {"served": 1_200}


def test_when_every_replica_was_busy_and_then_is_free_the_next_request_is_served() -> None:
    busy = Fault(kind=FaultKind.BUSY, end_ms=2_000.0, retry_after_ms=1_000.0)
    clients = _clients(_replica("a", busy), _replica("b", busy))
    clients.ask(40, 10.0, deadline_ms=1_500.0)
    assert len(clients.attempts) <= 44
    clients.loop.run(2_050.0)
    served = clients.outcomes["served"]
    clients.ask(1, 1.0)
    assert clients.outcomes["served"] == served + 1
    replicas = clients.scheduler.view()["replicas"]
    assert all(r["breaker"]["trips"] == 0 for r in replicas)


@pytest.mark.parametrize("every_ms", [1.0, 20.0, 200.0])
def test_with_both_replicas_failing_a_thousand_requests_make_at_most_eleven_hundred_attempts(
    every_ms: float,
) -> None:
    clients = _clients(
        _replica("a", Fault(kind=FaultKind.FAIL)), _replica("b", Fault(kind=FaultKind.FAIL))
    )
    clients.ask(1_000, every_ms)
    assert clients.outcomes["served"] == 0
    assert len(clients.attempts) <= 1_100
    assert clients.most_attempts <= 2
    assert all(refusal.retry_after_ms for refusal in clients.refusals.values())


def test_a_slow_replica_of_two_does_not_raise_the_p95_above_what_the_deadline_asks() -> None:
    clients = _clients(_replica("fast"), _replica("slow", fixed_ms=198.0))
    clients.ask(40, 100.0)
    clients.ask(600, 6.0, deadline_ms=100.0)
    late = sorted(list(clients.latencies.values())[40:])
    assert clients.outcomes["served"] >= 0.98 * 640
    assert late[int(0.95 * len(late))] < 60.0
    before = clients.loop.now_ms()
    clients.ask(600, 1.0, deadline_ms=2_000.0)
    assert clients.sent_to("slow", before) > 0


def test_a_hanging_replica_loses_requests_to_nothing_but_their_own_deadline() -> None:
    hang = Fault(kind=FaultKind.HANG, start_ms=5_000.0)
    clients = _clients(_replica("hung", hang), _replica("b"), _replica("c"))
    clients.ask(500, 10.0, deadline_ms=500.0)
    assert clients.outcomes == {"served": 500}
    usual = sorted(clients.latencies.values())[int(0.95 * 500)]
    clients.ask(400, 10.0, deadline_ms=500.0)
    assert set(clients.outcomes) <= {"served", "deadline_exceeded"}
    recent = sorted(list(clients.latencies.values())[500:])
    assert recent[int(0.90 * len(recent))] <= 2.0 * usual
    assert clients.outcomes["deadline_exceeded"] <= 30
    row = next(r for r in clients.scheduler.view()["replicas"] if r["replicaId"] == "hung")
    assert row["breaker"]["trips"] == 1
    assert row["why"] == "wedged"
    before = clients.outcomes["deadline_exceeded"]
    clients.ask(40, 10.0, deadline_ms=500.0)
    assert clients.outcomes["deadline_exceeded"] - before <= 1


def test_two_of_three_failing_and_then_all_three_are_spread_over_and_flagged() -> None:
    failing = Fault(kind=FaultKind.FAIL, start_ms=2_000.0)
    late = Fault(kind=FaultKind.FAIL, start_ms=6_000.0)
    clients = _clients(_replica("a", failing), _replica("b", failing), _replica("c", late))
    clients.ask(100, 10.0)
    clients.loop.run(2_000.0)
    clients.ask(100, 20.0)
    assert clients.outcomes["served"] >= 190
    clients.loop.run(6_000.0)
    clients.ask(200, 20.0)
    since_ms = 7_500.0
    assert all(clients.sent_to(name, since_ms) >= 2 for name in "abc")
    assert any(_panicked(clients, number) for number in range(200, clients.requests))


def test_with_every_breaker_open_a_patient_request_is_served_and_a_hasty_one_told_when() -> None:
    fault = Fault(kind=FaultKind.FAIL, end_ms=3_000.0)
    clients = _clients(_replica("a", fault), _replica("b", fault))
    clients.ask(60, 15.0, deadline_ms=2_000.0)
    clients.loop.run(3_000.0)
    assert all(r["why"] for r in clients.scheduler.view()["replicas"])
    clients.ask(1, 1.0, deadline_ms=10.0)
    hasty = clients.refusals[f"q{clients.requests}"]
    assert hasty.code == "no_capacity"
    assert hasty.retry_after_ms is not None
    assert 10.0 < hasty.retry_after_ms <= 1_000.0
    served = clients.outcomes["served"]
    clients.ask(1, 1.0, deadline_ms=5_000.0)
    assert clients.outcomes["served"] == served + 1
