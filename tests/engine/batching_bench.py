"""A planner on a bench: devices whose cost is known, entries by hand, virtual time."""

import random
from collections.abc import Iterable
from itertools import count

from engine.batching.cost_model import CostModel, CostPrior
from engine.batching.former import BatchFormer, BatchPlan, Device, Queued
from engine.batching.planner import GoodputPlanner, PlannerConfig
from engine.types import Lane, WorkUnit

TRUTH = CostPrior(fixed_ms=18.0, per_work_ms=0.022)
ENCODER = CostPrior(fixed_ms=2.0, per_work_ms=0.185, quadratic_ms=0.00054)
_names = count()


def device(
    name: str = "gpu0",
    *,
    size: int = 32,
    work: float = 16_384.0,
    unit: WorkUnit = WorkUnit.TOKENS,
    prior: CostPrior = TRUTH,
) -> Device:
    return Device(
        replica_id=name, cost=CostModel(unit, prior), max_batch_size=size, max_batch_work=work
    )


def entry(work: float, deadline_ms: float, *, arrived_ms: float = 0.0, **changes: object) -> Queued:
    """One request, `deadline_ms` absolute."""
    return Queued(
        ticket=f"r{next(_names)}",
        work=work,
        deadline_ms=deadline_ms,
        arrived_ms=arrived_ms,
        **changes,  # type: ignore[arg-type]
    )


def planner(
    devices: Iterable[Device] = (), *, confirmed: bool = True, lottery: float = 0.0
) -> GoodputPlanner:
    """A planner whose predictions have been confirmed, unless told otherwise."""
    made = GoodputPlanner(PlannerConfig(size_lottery=lottery), b"test")
    made.set_devices(list(devices) or [device()], 0.0)
    if confirmed:
        made.on_finished(1, 0.0)
    return made


def offer_all(former: BatchFormer, entries: Iterable[Queued], now_ms: float = 0.0) -> list[Queued]:
    listed = list(entries)
    for each in listed:
        former.offer(each, now_ms)
    return listed


def form(former: BatchFormer, on: Device, now_ms: float) -> BatchPlan:
    plan = former.form(on, now_ms)
    assert isinstance(plan, BatchPlan), plan
    return plan


def headline_entry(rng: random.Random, now_ms: float, *, lane: Lane = Lane.INTERACTIVE) -> Queued:
    """A request of the headline mix, arriving now."""
    tokens = min(max(round(2.718281828 ** (4.8 + 0.9 * rng.gauss(0.0, 1.0))), 16), 4096)
    patience_ms = 120.0 if rng.random() < 0.3 else 900.0
    return entry(float(tokens), now_ms + patience_ms, arrived_ms=now_ms, lane=lane)
