"""The self-regulating replica: steady, burst and long-tailed load, static against adaptive.

    python -m bench replica             a real process in real time, six minutes
    python -m bench replica --speed 10  virtual time: the same station, queue and controller on
                                        a simulated machine, in seconds

Static is the same server with the controller switched off. Virtual runs add two patterns:
`step`, where the load doubles past the capacity, and `incident`, where the device is eight
times slower for twenty seconds.
"""

import argparse
import random

import plotly.graph_objects as go

from bench.progress import Progress, Task
from bench.replica_live import run_live
from bench.replica_load import PATTERNS, Pattern
from bench.replica_run import Run
from bench.replica_virtual import Machine, VirtualReplica, station_config
from bench.report import Column, Goal, Report, Table
from engine.errors import UnknownName, require_range

NAME = "replica"
HELP = "the self-regulating replica under changing load, static against adaptive"

_REAL_TIME = ("steady", "burst", "longtail")
_COLUMNS = (
    Column(key="pattern", title="pattern"),
    Column(key="mode", title="mode"),
    Column(key="offered", title="offered", form="d"),
    Column(key="in_time_ratio", title="within SLO", form=".1%"),
    Column(key="late", title="late", form="d"),
    Column(key="refused", title="refused", form="d"),
    Column(key="timed_out", title="timeout", form="d"),
    Column(key="p95_kept_ratio", title="p95 kept", form=".1%"),
    Column(key="worst_p95_ms", title="worst p95", form=".0f"),
    Column(key="moves", title="moves", form="d"),
    Column(key="sign_changes_per_minute", title="rev/min", form=".0f"),
    Column(key="gate_off_after_s", title="gate off, s", form=".0f"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options beyond the common ones."""
    parser.add_argument(
        "--speed", type=float, default=1.0, help="1 = real time; above: virtual time (1)"
    )
    parser.add_argument("--patterns", help=f"comma-separated, of {', '.join(PATTERNS)}")
    parser.add_argument("--slo-ms", type=float, default=150.0, help="p95 to keep (150)")
    parser.add_argument("--workers", type=int, default=2, help="batches at once (2)")
    parser.add_argument("--batch-size", type=int, default=8, help="requests a batch (8)")
    parser.add_argument("--cores", type=int, default=2, help="of the simulated machine (2)")


def run(args: argparse.Namespace, progress: Progress) -> Report:
    """Play every pattern in both modes."""
    require_range("--speed", args.speed, 1.0)
    virtual = args.speed > 1.0
    names = args.patterns.split(",") if args.patterns else (PATTERNS if virtual else _REAL_TIME)
    for wanted in names:
        if wanted not in PATTERNS:
            raise UnknownName("pattern", wanted, PATTERNS)
    patterns = [PATTERNS[wanted] for wanted in names]
    runs: list[Run] = []
    with progress.task("replica", total=2 * sum(p.duration_s for p in patterns)) as task:
        for pattern in patterns:
            for adaptive in (False, True):
                task.say(f"{pattern.name}, {'adaptive' if adaptive else 'static'}")
                runs.append(_one(args, pattern, adaptive, virtual, task))
    name = NAME if virtual else f"{NAME}-live"
    for each in runs:
        each.write_csv(args.out / name)
    rows = [each.to_row() for each in runs]
    clock = "virtual time" if virtual else "real time, a real process"
    return Report(
        name=name,
        title="The self-regulating replica",
        summary=f"SLO {args.slo_ms:g} ms on p95 of queue wait + execution; {clock}.",
        rows=rows,
        tables=[Table(title="Static against adaptive", columns=_COLUMNS, rows=rows)],
        charts=[_chart(pattern, runs) for pattern in patterns],
        goals=_goals(runs),
        notes=[
            "p95 kept: share of the time with p95 within the SLO. gate off: after the incident.",
            "within SLO: answered in time, of all offered; refusals count against it.",
            "The device is simulated in both clocks; only the clock and the sockets differ.",
            "Seconds without an answer have no percentile and are left out, not drawn as 0.",
        ],
        extra={
            "moves": {
                each.pattern.name: [f"{move.at_s:.1f} s: {move.text}" for move in each.moves]
                for each in runs
                if each.moves
            }
        },
    )


def _one(
    args: argparse.Namespace, pattern: Pattern, adaptive: bool, virtual: bool, task: Task
) -> Run:
    if not virtual:
        return run_live(
            pattern,
            adaptive=adaptive,
            slo_ms=args.slo_ms,
            workers=args.workers,
            batch_size=args.batch_size,
            seed=args.seed,
            tick=task.advance,
        )
    config = station_config(
        slo_ms=args.slo_ms, adaptive=adaptive, workers=args.workers, batch_size=args.batch_size
    )
    machine = Machine(cores=args.cores)
    done = VirtualReplica(pattern, config, machine, random.Random(args.seed)).run()
    task.advance(pattern.duration_s)
    return done


def _goals(runs: list[Run]) -> list[Goal]:
    adaptive = {each.pattern.name: each for each in runs if each.mode == "adaptive"}
    goals = [
        Goal(
            name="reversals of a limit within any minute, worst pattern",
            measured=max(each.sign_changes_per_minute for each in adaptive.values()),
            at_most=2.0,
        )
    ]
    if "step" in adaptive:
        goals.append(
            Goal(
                name="share of the time with p95 <= SLO while the load doubles",
                measured=adaptive["step"].kept_ratio,
                at_least=0.95,
            )
        )
    if "incident" in adaptive:
        goals.append(
            Goal(
                name="admission control off, seconds after the incident",
                measured=adaptive["incident"].gate_off_after_s,
                at_most=10.0,
            )
        )
    static = {each.pattern.name: each for each in runs if each.mode == "static"}
    if "burst" in adaptive:
        goals.append(
            Goal(
                name="answers within the SLO in the burst, adaptive over static",
                measured=adaptive["burst"].in_time / max(1, static["burst"].in_time),
                at_least=1.0,
            )
        )
    return goals


def _chart(pattern: Pattern, runs: list[Run]) -> go.Figure:
    """p95 over time, with the SLO as a line and the offered rate behind."""
    figure = go.Figure()
    slo_ms = 0.0
    for each in (each for each in runs if each.pattern is pattern):
        slo_ms = each.slo_ms
        figure.add_scatter(
            x=[sample.at_s for sample in each.with_data],
            y=[sample.p95_ms for sample in each.with_data],
            mode="lines",
            name=f"p95, {each.mode}",
        )
    if pattern.incident is not None:
        figure.add_vrect(
            x0=pattern.incident.start_s, x1=pattern.incident.end_s, opacity=0.12, fillcolor="red"
        )
    figure.add_hline(y=slo_ms, line_dash="dash", annotation_text=f"SLO {slo_ms:g} ms")
    rates = " -> ".join(f"{rate:g}" for _, rate in pattern.phases)
    figure.update_layout(
        title=f"{pattern.name}: {rates} requests/s",
        xaxis_title="s",
        yaxis_title="p95, ms",
        yaxis_type="log",
    )
    return figure
