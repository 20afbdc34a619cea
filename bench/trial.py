"""One scheduler, one trace, one fleet of accelerators, in virtual time.

Every scheduler under test is a `BatchFormer` inside the engine's real `Scheduler`; the
admission limit is out of the way and hedging is off, so that what differs is the batching.
The device takes (18 + 0.022 x tokens) ms x U(0.92, 1.08), at most 32 requests and 16,384
tokens at a time. Its cost is *learned*: the prior says 8 ms + 0.05 ms a token.
"""

import gc
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bench.limiters.fixed import FixedLimit
from bench.stopwatch import RecordedFormer, cpu_s
from bench.trace import Arrival
from engine.actions import Deliver, Dispatch
from engine.admission.gate import GateConfig
from engine.batching.cost_model import CostPrior
from engine.batching.former import BatchFormer
from engine.errors import Refusal
from engine.routing.hedge import HedgeConfig
from engine.scheduler import Scheduler
from engine.scheduling.pool import PoolConfig
from engine.scheduling.state import SchedulerConfig
from engine.simulation.device import SimulatedReplica, affine, drifting, jittered, noisy, scaled
from engine.simulation.events import EventLoop
from engine.simulation.fleet import SimulatedFleet
from engine.types import FleetSnapshot, ModelSpec, ReplicaSpec, Request, SplitSpec

FIXED_MS = 18.0
PER_TOKEN_MS = 0.022
_JITTER_RATIO = 0.08
_DRAIN_MS = 20_000.0
_UNBOUNDED = 10_000_000


@dataclass(slots=True, frozen=True, kw_only=True)
class Truth:
    """What the devices and the sizes really are. `drift` multiplies the cost of a token from
    the middle of the run on; `size_noise` is the sigma of the predicted size's error."""

    speeds: tuple[float, ...] = (1.0,)
    noise: float = 0.0
    size_noise: float = 0.0
    drift: float = 1.0
    drift_at_ms: float = 60_000.0


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of a trace."""

    duration_s: float
    good: list[bool] = field(default_factory=list)  # by arrival
    latencies_ms: list[float] = field(default_factory=list)
    good_at_ms: list[float] = field(default_factory=list)
    busy_ratio: float = 0.0
    batches: int = 0
    served: int = 0
    cpu_us_per_request: float | None = None
    final: dict[str, float | str | None] = field(default_factory=dict)
    balanced: bool = True


def run_trial(
    arrivals: Sequence[Arrival],
    make_former: Callable[[], BatchFormer],
    *,
    truth: Truth,
    seed: int,
    timing_rounds: int = 0,
) -> Outcome:
    """Play the whole trace and say what came of it. With `timing_rounds` its calls are then
    played so often to a fresh former, to take its CPU time."""
    duration_ms = max(120_000.0 if arrivals[-1].at_ms > 60_000.0 else 0.0, arrivals[-1].at_ms)
    outcome = Outcome(duration_s=duration_ms / 1000.0, good=[False] * len(arrivals))
    former = RecordedFormer(make_former()) if timing_rounds else make_former()
    loop = EventLoop()
    scheduler = Scheduler(
        loop.clock,
        random.Random(seed ^ 0x5EED),
        SchedulerConfig(
            gate=GateConfig(limit_factory=lambda slo_ms: FixedLimit(_UNBOUNDED)),
            pool=PoolConfig(prior=CostPrior(fixed_ms=8.0, per_work_ms=0.05)),
            hedge=HedgeConfig(enabled=False),
            max_queue=_UNBOUNDED,
            explain_size=0,
            former_factory=lambda key: former,
        ),
    )
    replicas = [_replica(index, speed, truth) for index, speed in enumerate(truth.speeds)]
    scheduler.apply(_snapshot(replicas))
    batches = [0]

    def delivered(deliver: Deliver) -> None:
        now_ms = loop.now_ms()
        request = deliver.request
        if deliver.refusal is None and now_ms <= request.deadline_ms:
            outcome.good[int(request.request_id)] = True
            outcome.latencies_ms.append(now_ms - request.arrived_ms)
            outcome.good_at_ms.append(now_ms)

    def dispatched(dispatch: Dispatch) -> None:
        batches[0] += 1
        outcome.served += len(dispatch.requests)

    fleet = SimulatedFleet(
        loop,
        scheduler,
        replicas,
        random.Random(seed + 1),
        on_deliver=delivered,
        on_dispatch=dispatched,
        size_of=lambda request: arrivals[int(request.request_id)].tokens,
    )
    fleet.play(_requests(arrivals, truth, random.Random(seed + 2)), _refused)
    gc.collect()
    gc.freeze()  # the trace itself is no business of the collector
    try:
        loop.run(duration_ms + _DRAIN_MS)
    finally:
        gc.unfreeze()
    outcome.batches = batches[0]
    span_ms = max(duration_ms, fleet.idle_since_ms)
    outcome.busy_ratio = sum(r.busy_ms for r in replicas) / span_ms / len(replicas)
    if isinstance(former, RecordedFormer):
        total_s = cpu_s(former.calls, make_former, timing_rounds)
        outcome.cpu_us_per_request = total_s * 1e6 / len(arrivals)
    outcome.final = former.numbers()
    outcome.balanced = scheduler.conservation()["balanced"]
    outcome.latencies_ms.sort()
    return outcome


def _refused(request: Request, refusal: Refusal) -> None:
    """Turned away on arrival: it is in `good` as False already."""


def _requests(arrivals: Sequence[Arrival], truth: Truth, rng: random.Random) -> Iterator[Request]:
    for index, arrival in enumerate(arrivals):
        claimed = arrival.tokens
        if truth.size_noise > 0.0:
            claimed = max(1, round(claimed * math.exp(rng.gauss(0.0, truth.size_noise))))
        yield Request(
            request_id=str(index),
            tenant="bench",
            model="m",
            prompt_tokens=claimed,
            max_output_tokens=0,
            deadline_ms=arrival.deadline_ms,
            arrived_ms=arrival.at_ms,
        )


def _replica(index: int, speed: float, truth: Truth) -> SimulatedReplica:
    service = affine(FIXED_MS, PER_TOKEN_MS)
    if truth.drift != 1.0:
        service = drifting(service, affine(FIXED_MS, PER_TOKEN_MS * truth.drift), truth.drift_at_ms)
    service = scaled(service, speed)
    if truth.noise > 0.0:
        service = noisy(service, truth.noise)
    else:
        service = jittered(service, _JITTER_RATIO)
    spec = ReplicaSpec(
        replica_id=f"gpu{index}",
        model="m",
        version="v1",
        address=f"sim://{index}",
        age_s=3600.0,
        max_batch_size=32,
        max_batch_tokens=16_384,
    )
    return SimulatedReplica(spec=spec, service=service)


def _snapshot(replicas: Sequence[SimulatedReplica]) -> FleetSnapshot:
    split = SplitSpec(model="m", baseline="v1")
    return FleetSnapshot(
        revision=1,
        models={"m": ModelSpec(model="m", versions=frozenset({"v1"}), split=split)},
        replicas={replica.spec.replica_id: replica.spec for replica in replicas},
    )
