"""`python -m bench affinity`: ten replicas, thirty models, room for three models each.

A request for a model that its replica does not hold loads it first, ten times the cost of
serving, and evicts the least recently used. What differs between the rows is the strategy by
which the real router chooses; the trace is the same.
"""

import argparse
import random
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import accumulate

import plotly.graph_objects as go

from bench.progress import Progress
from bench.report import Column, Goal, Report, Table
from bench.routing_fleet import Job, RoutedFleet, Server
from engine.outcomes import Outcome
from engine.routing.replica_state import ReplicaState
from engine.stats.histogram import LogHistogram
from engine.types import Strategy

NAME = "affinity"
HELP = "Ten replicas with room for 3 of 30 models each: weight reloads, p95, goodput a strategy."

_STRATEGIES = (
    Strategy.ROUND_ROBIN,
    Strategy.LEAST_LOADED,
    Strategy.PEAK_EWMA,
    Strategy.AFFINITY,
)
_PLACES = 4
_DEADLINE_MS = 1_000.0
_PATIENCE_MS = 800.0  # who has waited this long is turned away: a cold model could not make it
_WARM_UP_MS = 20_000.0
_COLUMNS = (
    Column(key="strategy", title="strategy"),
    Column(key="rate_per_s", title="offered/s", form=".0f"),
    Column(key="reloads", title="weight reloads", form="d"),
    Column(key="reload_ratio", title="reloads a request run", form=".3f"),
    Column(key="p95_ms", title="p95 ms", form=".0f"),
    Column(key="goodput_per_s", title="goodput/s", form=".1f"),
    Column(key="attainment", title="in time", form=".3f"),
)


@dataclass(slots=True)
class ModelServer(Server):
    """Holds `room` models, the least recently used goes first."""

    room: int = 3
    cold_factor: float = 10.0
    resident: OrderedDict[str, None] = field(default_factory=OrderedDict)
    reloads: int = 0

    def draw(self, rng: random.Random, job: Job) -> tuple[Outcome, float]:
        outcome, service_ms = Server.draw(self, rng, job)
        model = job.key or ""
        if model in self.resident:
            self.resident.move_to_end(model)
            return outcome, service_ms
        self.reloads += 1
        self.resident[model] = None
        if len(self.resident) > self.room:
            self.resident.popitem(last=False)
        self.state.report(
            job.arrived_ms,
            loaded_models=frozenset(self.resident),
            gpu_memory_ratio=len(self.resident) / self.room,
        )
        return outcome, service_ms * (1.0 + self.cold_factor)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rates", default="60,100,200,400", help="requests a second, by commas")
    parser.add_argument("--models", type=int, default=30)
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--room", type=int, default=3, help="models a replica holds")
    parser.add_argument("--skew", type=float, default=1.1, help="Zipf exponent of the models")
    parser.add_argument("--seconds", type=float, default=120.0, help="simulated, after 20 warm")


def run(args: argparse.Namespace, progress: Progress) -> Report:
    rates = [float(rate) for rate in args.rates.split(",")]
    rows: list[dict[str, object]] = []
    with progress.task("affinity", total=len(rates) * len(_STRATEGIES)) as task:
        for rate in rates:
            for strategy in _STRATEGIES:
                task.say(f"{strategy} at {rate:g}/s")
                rows.append(_measure(args, rate, strategy))
                task.advance()
    return Report(
        name=NAME,
        title="Model-aware routing",
        summary=(
            f"{args.replicas} replicas of {_PLACES} places and 50 ms with room for {args.room} of "
            f"{args.models} models each, Zipf {args.skew:g}; a cold model costs ten times as much "
            f"as serving; deadline {_DEADLINE_MS:.0f} ms."
        ),
        rows=rows,
        tables=[Table(title="Strategies", columns=_COLUMNS, rows=rows)],
        charts=[_chart(rows)],
        goals=[goal for rate in rates for goal in _goals(rows, rate)],
        notes=[
            "simulated: a load occupies one place of its replica for its whole time",
            "at 60/s every strategy serves everything in time: goodput ties, reloads do not",
        ],
    )


def _measure(args: argparse.Namespace, rate: float, strategy: Strategy) -> dict[str, object]:
    fleet = RoutedFleet(
        args.seed, strategy=strategy, patience_ms=_PATIENCE_MS, keys_are_models=True
    )

    def server(state: ReplicaState) -> Server:
        return ModelServer(state, room=args.room)

    for number in range(args.replicas):
        fleet.add(f"r{number}", places=_PLACES, server=server)
    draw = random.Random(args.seed + 2)
    weights = list(accumulate(rank**-args.skew for rank in range(1, args.models + 1)))

    def key() -> str:
        return f"model-{bisect_left(weights, draw.random() * weights[-1])}"

    end_ms = _WARM_UP_MS + args.seconds * 1000.0
    fleet.offer(rate, end_ms, key)
    fleet.loop.run(_WARM_UP_MS)
    before = _reloads(fleet)
    fleet.loop.run(end_ms + 5_000.0)
    reloads = _reloads(fleet) - before
    times = LogHistogram()
    good = 0
    for arrived_ms, latency_ms in fleet.log.answers:
        if arrived_ms >= _WARM_UP_MS:
            times.record(latency_ms)
            good += latency_ms <= _DEADLINE_MS
    sent = sum(at_ms >= _WARM_UP_MS for at_ms, _ in fleet.log.attempts)
    offered = len(fleet.log.arrivals) - bisect_left(fleet.log.arrivals, _WARM_UP_MS)
    return {
        "strategy": str(strategy),
        "rate_per_s": rate,
        "reloads": reloads,
        "reload_ratio": reloads / sent,
        "p95_ms": times.quantile(0.95),
        "goodput_per_s": good / args.seconds,
        "attainment": good / offered,
    }


def _reloads(fleet: RoutedFleet) -> int:
    return sum(s.reloads for s in fleet.servers.values() if isinstance(s, ModelServer))


def _goals(rows: list[dict[str, object]], rate: float) -> list[Goal]:
    at_rate = {str(row["strategy"]): row for row in rows if row["rate_per_s"] == rate}
    affinity = at_rate["affinity"]
    others = [row for name, row in at_rate.items() if name != "affinity"]
    in_turn = _number(at_rate["round_robin"], "reload_ratio")
    fewer = in_turn / max(_number(affinity, "reload_ratio"), 1e-9)
    best = max(_number(row, "goodput_per_s") for row in others)
    ahead = _number(affinity, "goodput_per_s") / max(best, 1e-9)
    return [
        Goal(
            name=f"{rate:g}/s: reloads a request run, round robin / affinity",
            measured=fewer,
            at_least=5.0,
        ),
        Goal(name=f"{rate:g}/s: goodput, affinity / best other", measured=ahead, at_least=1.0),
    ]


def _number(row: dict[str, object], key: str) -> float:
    value = row[key]
    return float(value) if isinstance(value, int | float) else 0.0


def _chart(rows: list[dict[str, object]]) -> go.Figure:
    figure = go.Figure()
    for strategy in _STRATEGIES:
        mine = [row for row in rows if row["strategy"] == str(strategy)]
        figure.add_scatter(
            x=[row["rate_per_s"] for row in mine],
            y=[row["goodput_per_s"] for row in mine],
            name=str(strategy),
            mode="lines+markers",
        )
    figure.update_layout(
        title="Goodput by strategy", xaxis_title="offered/s", yaxis_title="goodput/s"
    )
    return figure
