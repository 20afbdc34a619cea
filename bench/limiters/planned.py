"""The same device behind the engine itself: a real `Scheduler`, its planner, a limit inside.

What the planner sheds it sheds by worth, which no limit can do at the door; so here the best
limit is the one that is not felt, and a policy is judged by how little it takes away.
"""

import random
from collections.abc import Iterator

from bench.limiters.rig import Run
from bench.limiters.scenes import DEVICE_SLO_MS
from bench.trace import published_trace
from engine.actions import Deliver
from engine.admission.gate import GateConfig, LimitFactory
from engine.errors import Refusal, RefusalCode
from engine.scheduler import Scheduler
from engine.scheduling.state import SchedulerConfig
from engine.simulation.device import SimulatedReplica, affine, jittered
from engine.simulation.events import EventLoop
from engine.simulation.fleet import SimulatedFleet
from engine.types import FleetSnapshot, ModelSpec, ReplicaSpec, Request, SplitSpec

_MODEL = "model"
_DRAIN_MS = 20_000.0


def planned(policy: LimitFactory, seed: int, rate_per_s: float, duration_ms: float) -> Run:
    """The published trace through a scheduler with one accelerator."""
    loop = EventLoop()
    config = SchedulerConfig(gate=GateConfig(limit_factory=policy))
    scheduler = Scheduler(loop.clock, random.Random(seed), config)
    replica = ReplicaSpec(
        replica_id="r1", model=_MODEL, version="v1", address="http://r1", age_s=3600.0
    )
    model = ModelSpec(
        model=_MODEL,
        versions=frozenset({"v1"}),
        split=SplitSpec(model=_MODEL, baseline="v1"),
        slo_ms=DEVICE_SLO_MS,
    )
    scheduler.apply(FleetSnapshot(revision=1, models={_MODEL: model}, replicas={"r1": replica}))
    run = Run()

    def delivered(deliver: Deliver) -> None:
        if deliver.refusal is None:
            run.good += 1
        else:
            run.late += 1

    def refused(request: Request, refusal: Refusal) -> None:
        if refusal.code is RefusalCode.OVERLOADED:
            run.refused += 1
        else:
            run.late += 1

    def requests() -> Iterator[Request]:
        trace = published_trace(rate_per_s, seed=seed, duration_ms=duration_ms)
        for number, arrival in enumerate(trace):
            run.offered += 1
            yield Request(
                request_id=str(number),
                tenant="anyone",
                model=_MODEL,
                prompt_tokens=arrival.tokens,
                max_output_tokens=0,
                deadline_ms=arrival.deadline_ms,
                arrived_ms=arrival.at_ms,
            )

    fleet = SimulatedFleet(
        loop,
        scheduler,
        [SimulatedReplica(spec=replica, service=jittered(affine(18.0, 0.022), 0.08))],
        random.Random(seed),
        on_deliver=delivered,
    )
    scheduler.replica_reported("r1", ready=True)
    fleet.play(requests(), refused)
    loop.run(duration_ms + _DRAIN_MS)
    return run
