"""Whole fleets in virtual time, with the real scheduler inside."""

import random
from itertools import count

import pytest

from engine.actions import Deliver
from engine.errors import Refusal
from engine.routing.hedge import HedgeConfig
from engine.scheduler import Scheduler
from engine.scheduling.state import SchedulerConfig
from engine.simulation.device import Fault, FaultKind, SimulatedReplica, affine, jittered, scaled
from engine.simulation.events import EventLoop
from engine.simulation.fleet import SimulatedFleet
from engine.simulation.workload import HEADLINE, SizeMix, poisson, requests
from engine.types import FleetSnapshot, ModelSpec, ReplicaSpec, Request, SplitSpec


class Bay:
    """A fleet of accelerators of these speeds, and what it answered."""

    def __init__(
        self, speeds: tuple[float, ...], *, faults: dict[int, Fault] | None = None, seed: int = 1
    ) -> None:
        self.rng = random.Random(seed)
        self.loop = EventLoop()
        self.scheduler = Scheduler(
            self.loop.clock,
            random.Random(seed + 1),
            SchedulerConfig(hedge=HedgeConfig(enabled=False)),
        )
        replicas = []
        for index, speed in enumerate(speeds):
            spec = ReplicaSpec(
                replica_id=f"gpu{index}",
                model="m",
                version="v1",
                address=f"sim://{index}",
                age_s=3600.0,
            )
            service = jittered(scaled(affine(18.0, 0.022), speed), 0.08)
            fault = (faults or {}).get(index)
            replicas.append(
                SimulatedReplica(spec=spec, service=service, faults=[fault] if fault else [])
            )
        self.scheduler.apply(
            FleetSnapshot(
                revision=1,
                models={
                    "m": ModelSpec(
                        model="m",
                        versions=frozenset({"v1"}),
                        split=SplitSpec(model="m", baseline="v1"),
                    )
                },
                replicas={replica.spec.replica_id: replica.spec for replica in replicas},
            )
        )
        self.fleet = SimulatedFleet(
            self.loop, self.scheduler, replicas, self.rng, on_deliver=self.delivered
        )
        self.good = 0
        self.bad = 0
        self.latencies_ms: list[float] = []
        self.names = count()

    def delivered(self, deliver: Deliver) -> None:
        if deliver.refusal is None:
            self.good += 1
            self.latencies_ms.append(deliver.total_ms)
        else:
            self.bad += 1
        self.answered(deliver)

    def answered(self, deliver: Deliver) -> None:
        """A client got its answer."""

    def request(self, tokens: int, deadline_ms: float) -> Request:
        now_ms = self.loop.now_ms()
        return Request(
            request_id=f"r{next(self.names)}",
            tenant="acme",
            model="m",
            prompt_tokens=tokens,
            max_output_tokens=0,
            deadline_ms=now_ms + deadline_ms,
            arrived_ms=now_ms,
        )


class ClosedLoop(Bay):
    """Clients that send their next request a few milliseconds after each answer."""

    def start(self, clients: int) -> None:
        for _ in range(clients):
            self.loop.after(self.rng.uniform(0.0, 20.0), self.send)

    def send(self) -> None:
        answer = self.fleet.submit(self.request(SizeMix().draw(self.rng), 2000.0))
        assert not isinstance(answer, Refusal), answer

    def answered(self, deliver: Deliver) -> None:
        self.loop.after(self.rng.uniform(0.5, 5.0), self.send)


def test_closed_loop_clients_ride_together_and_all_in_time() -> None:
    bay = ClosedLoop((1.0, 0.6, 1.4))
    bay.start(32)
    bay.loop.run(10_000.0)
    assert bay.bad == 0
    assert bay.good / 10.0 >= 230.0
    assert bay.scheduler.conservation()["balanced"]


def test_sixteen_clients_of_one_replica_share_its_batches() -> None:
    bay = ClosedLoop((1.0,))
    bay.start(16)
    bay.loop.run(12_000.0)
    assert bay.bad == 0
    served = bay.fleet.replicas["gpu0"]
    assert served.items / served.batches >= 12.0  # one straggler a slot would halve it
    assert bay.good / 12.0 >= 165.0


def test_a_lone_client_is_not_kept_waiting_for_company() -> None:
    bay = ClosedLoop((1.0,))
    bay.start(1)
    bay.loop.run(10_000.0)
    assert max(bay.latencies_ms) <= (18.0 + 0.022 * 4096.0) * 1.08 + 0.1
    assert bay.bad == 0


def open_loop(bay: Bay, rate_per_s: float, until_ms: float) -> int:
    refused = []
    arrivals = requests(poisson(rate_per_s, bay.rng, until_ms), HEADLINE, bay.rng)
    offered = [
        Request(
            request_id=f"o{index}",
            tenant="acme",
            model="m",
            prompt_tokens=each.tokens,
            max_output_tokens=0,
            deadline_ms=each.deadline_ms,
            arrived_ms=each.at_ms,
        )
        for index, each in enumerate(arrivals)
    ]
    bay.fleet.play(iter(offered), lambda request, refusal: refused.append(refusal))
    bay.loop.run(until_ms + 5_000.0)
    return len(refused)


def test_every_request_is_answered_once_and_the_law_holds() -> None:
    bay = Bay((1.0, 0.6))
    refused = open_loop(bay, 400.0, 5_000.0)
    law = bay.scheduler.conservation()
    assert law["balanced"]
    assert law["queued"] == law["running"] == 0
    assert law["arrived"] == bay.good + bay.bad + refused
    assert bay.scheduler.running_attempts == 0
    assert bay.loop.next_ms() is None  # nothing keeps an idle fleet awake


def test_the_same_seed_makes_the_same_decisions() -> None:
    def outcome(seed: int) -> list[float]:
        bay = Bay((1.0,), seed=seed)
        open_loop(bay, 150.0, 3_000.0)
        return bay.latencies_ms

    assert outcome(5) == outcome(5)
    assert outcome(5) != outcome(6)


@pytest.mark.parametrize("kind", [FaultKind.FAIL, FaultKind.BUSY])
def test_a_replica_that_misbehaves_for_a_while_costs_its_neighbour_nothing_lasting(
    kind: FaultKind,
) -> None:
    bay = Bay((1.0, 1.0), faults={0: Fault(kind=kind, start_ms=1_000.0, end_ms=3_000.0)})
    open_loop(bay, 80.0, 20_000.0)
    assert bay.good / (bay.good + bay.bad) > 0.97
    assert bay.fleet.replicas["gpu0"].batches > 50  # it came back


def test_a_replica_that_hangs_loses_no_request_of_the_others() -> None:
    bay = Bay((1.0, 1.0), faults={0: Fault(kind=FaultKind.HANG, start_ms=1_000.0)})
    open_loop(bay, 60.0, 10_000.0)
    law = bay.scheduler.conservation()
    assert law["balanced"]
    assert law["queued"] == law["running"] == 0
    assert bay.good / (bay.good + bay.bad) > 0.9


def test_polling_at_saturation_stays_in_proportion_to_the_traffic() -> None:
    bay = Bay((1.0,))
    open_loop(bay, 500.0, 5_000.0)
    arrived = bay.scheduler.conservation()["arrived"]
    assert bay.fleet.polls <= 4 * arrived
