"""What a decision costs: CPU microseconds a request, by queue depth, fleet and tenants.

A request's whole path through the scheduler is timed in a steady state: as many requests are
queued as the row says, replicas finish in turn, and for every request answered a new one is
submitted. That is admission, split, queue, batch, route, lease, settlement and evidence; the
driver's I/O is not in it (`bench overhead` has that). The planner's row is the same loop
over a bare `GoodputPlanner`.

CPU time of this process, the best of many short rounds: what a loaded machine adds is not
ours. The garbage collector is off while a round runs, as it is in a gateway, which collects by
the clock (every 10 s, some 400,000 of these requests; its cost is in `bench overhead`).
"""

import argparse
import gc
import random
import time
from collections import deque
from collections.abc import Callable

import plotly.graph_objects as go

from bench.progress import Progress
from bench.report import Column, Goal, Report, Table
from engine.actions import Deliver, Dispatch, ItemResult, LeaseReport
from engine.admission.gate import GateConfig
from engine.admission.headroom_limit import HeadroomConfig
from engine.batching.cost_model import CostModel
from engine.batching.former import BatchPlan, Device, Queued
from engine.batching.planner import GoodputPlanner
from engine.clock import ManualClock
from engine.outcomes import Outcome
from engine.scheduler import Scheduler
from engine.scheduling.state import SchedulerConfig
from engine.types import FleetSnapshot, ModelSpec, ReplicaSpec, Request, SplitSpec, TenantSpec

NAME = "engine"
HELP = "CPU per decision over queue depths, replicas and tenants"

DEPTHS = (10, 100, 500, 1_000, 10_000, 100_000)
REPLICAS = (1, 10, 100, 1_000)
TENANTS = (1, 100, 10_000)
_DEADLINE_MS = 600_000.0  # far away: the queue keeps its depth


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=1_500, help="timed requests a round")
    parser.add_argument("--rounds", type=int, default=24, help="rounds, of which the best counts")


def run(args: argparse.Namespace, progress: Progress) -> Report:
    rows: list[dict[str, object]] = []
    plan: list[tuple[str, int, Callable[[int], float]]] = []
    plan += [("planner, by depth", d, lambda d: _planner_us(d, args)) for d in DEPTHS]
    plan += [("whole path, by depth", d, lambda d: _path_us(d, 3, 10, args)) for d in DEPTHS]
    plan += [("whole path, by replicas", n, lambda n: _path_us(500, n, 10, args)) for n in REPLICAS]
    plan += [("whole path, by tenants", n, lambda n: _path_us(500, 3, n, args)) for n in TENANTS]
    with progress.task("timing", total=len(plan)) as task:
        for what, size, measure in plan:
            task.say(f"{what}: {size:,}")
            rows.append({"what": what, "size": size, "cpu_us_per_request": measure(size)})
            task.advance()
    return Report(
        name=NAME,
        title="What a decision costs",
        summary="CPU microseconds a request, in plain Python, best of the rounds.",
        rows=rows,
        tables=[_table(rows)],
        charts=[_chart(rows)],
        goals=_goals(rows),
        notes=["The machine is shared: ratios within one run mean more than the figures."],
    )


def _planner_us(depth: int, args: argparse.Namespace) -> float:
    """Offer, form and forget over a bare planner that holds `depth` entries."""
    rng = random.Random(args.seed)
    planner = GoodputPlanner()
    cost = CostModel()
    device = Device(replica_id="r", cost=cost, max_batch_size=32, max_batch_work=16_384.0)
    planner.set_devices([device], 0.0)
    now_ms = 0.0
    sizes = [float(rng.randint(16, 600)) for _ in range(4096)]
    turn = 0

    def offer() -> None:
        nonlocal turn
        turn += 1
        deadline_ms = now_ms + _DEADLINE_MS + turn % 977
        planner.offer(
            Queued(
                ticket=None, work=sizes[turn & 4095], deadline_ms=deadline_ms, arrived_ms=now_ms
            ),
            now_ms,
        )

    for _ in range(depth):
        offer()

    def loop(requests: int) -> int:
        nonlocal now_ms
        done = 0
        while done < requests:
            planner.expire(now_ms)
            batch = planner.form(device, now_ms)
            if not isinstance(batch, BatchPlan):
                now_ms += 1.0
                continue
            work = sum(member.work for member in batch.members)
            took_ms = 18.0 + 0.022 * work
            now_ms += took_ms
            cost.observe(work, len(batch.members), 600.0, took_ms)
            planner.on_finished(len(batch.members), now_ms)
            done += len(batch.members)
            for _ in batch.members:
                offer()
        return done

    return _best_us(loop, args)


def _path_us(depth: int, replicas: int, tenants: int, args: argparse.Namespace) -> float:
    """A request's whole way through a scheduler with `depth` queued."""
    rng = random.Random(args.seed)
    clock = ManualClock()
    scheduler = Scheduler(
        clock,
        rng,
        SchedulerConfig(
            gate=GateConfig(headroom=HeadroomConfig(initial=1e6, ceiling=1e6)),
            max_queue=1_000_000,
        ),
    )
    scheduler.apply(_snapshot(replicas, tenants))
    running: deque[Dispatch] = deque()
    names = [f"t{number}" for number in range(tenants)]
    sizes = [rng.randint(16, 600) for _ in range(4096)]
    turn = 0

    def submit() -> None:
        nonlocal turn
        turn += 1
        now_ms = clock.now_ms()
        scheduler.submit(
            Request(
                request_id=f"{turn:x}",
                tenant=names[turn % tenants],
                model="m",
                prompt_tokens=sizes[turn & 4095],
                deadline_ms=now_ms + _DEADLINE_MS + turn % 977,
                arrived_ms=now_ms,
            )
        )

    def poll() -> int:
        answered = 0
        for action in scheduler.poll():
            if type(action) is Dispatch:
                running.append(action)
            elif type(action) is Deliver:
                answered += 1
        return answered

    for _ in range(depth + 16 * replicas):
        submit()
    poll()

    def loop(requests: int) -> int:
        done = 0
        while done < requests:
            if not running:
                clock.advance(1.0)
                done += poll()
                continue
            dispatch = running.popleft()
            clock.advance(20.0 / replicas)
            items = [ItemResult(Outcome.SUCCESS, None, 100, 10) for _ in dispatch.requests]
            report = LeaseReport(Outcome.SUCCESS, items, execution_ms=20.0)
            scheduler.complete(dispatch.lease_id, report)
            for _ in items:
                submit()
            done += poll()
        return done

    return _best_us(loop, args)


def _best_us(loop: Callable[[int], int], args: argparse.Namespace) -> float:
    loop(2_000)  # warm: the planner has seen arrivals, the cost model batches
    best = float("inf")
    gc.collect()
    gc.disable()
    try:
        for _ in range(args.rounds):
            began_s = time.process_time()
            done = loop(args.requests)
            best = min(best, (time.process_time() - began_s) / done)
    finally:
        gc.enable()
    return best * 1e6


def _snapshot(replicas: int, tenants: int) -> FleetSnapshot:
    specs = [
        ReplicaSpec(replica_id=f"r{n}", model="m", version="v1", address="", age_s=3600.0)
        for n in range(replicas)
    ]
    rates = {"requests_per_s": 1e6, "requests_burst": 1e6}
    return FleetSnapshot(
        revision=1,
        models={
            "m": ModelSpec(
                model="m",
                versions=frozenset({"v1"}),
                split=SplitSpec(model="m", baseline="v1"),
                slo_ms=_DEADLINE_MS,
            )
        },
        replicas={spec.replica_id: spec for spec in specs},
        tenants={
            f"t{n}": TenantSpec(tenant=f"t{n}", tokens_per_s=1e9, tokens_burst=1e9, **rates)
            for n in range(tenants)
        },
    )


def _of(rows: list[dict[str, object]], what: str, size: int) -> float:
    for row in rows:
        if row["what"] == what and row["size"] == size:
            value = row["cpu_us_per_request"]
            assert isinstance(value, float)
            return value
    raise KeyError((what, size))


def _goals(rows: list[dict[str, object]]) -> list[Goal]:
    replicas, depth = "whole path, by replicas", "whole path, by depth"
    return [
        Goal(
            name="planner at depth 500, us",
            measured=_of(rows, "planner, by depth", 500),
            at_most=15.0,
        ),
        Goal(name="whole path at depth 500, us", measured=_of(rows, depth, 500), at_most=25.0),
        Goal(
            name="1,000 replicas / 10 replicas",
            measured=_of(rows, replicas, 1_000) / _of(rows, replicas, 10),
            at_most=1.3,
        ),
        Goal(
            name="depth 100,000 / depth 100: logarithmic, so below log ratio",
            measured=_of(rows, depth, 100_000) / _of(rows, depth, 100),
            at_most=2.5,
        ),
    ]


def _table(rows: list[dict[str, object]]) -> Table:
    return Table(
        title="CPU a request",
        columns=[
            Column(key="what", title="what"),
            Column(key="size", title="size", form=",d"),
            Column(key="cpu_us_per_request", title="us", form=".1f"),
        ],
        rows=rows,
    )


def _chart(rows: list[dict[str, object]]) -> go.Figure:
    figure = go.Figure()
    for what in dict.fromkeys(row["what"] for row in rows):
        mine = [row for row in rows if row["what"] == what]
        figure.add_scatter(
            x=[row["size"] for row in mine],
            y=[row["cpu_us_per_request"] for row in mine],
            name=str(what),
            mode="lines+markers",
        )
    figure.update_xaxes(type="log", title="size")
    figure.update_yaxes(title="CPU microseconds a request", rangemode="tozero")
    return figure
