"""Does the judge keep good versions, catch bad ones, and how soon?

Every cell is `--runs` simulated rollouts (`rollout_world`) that the real `judge` decides
window by window, beside the naive p95 ratio on the same fleets. A false rollback is an
identical version rolled back; a false promotion is one slower by 20 % promoted. Nothing here
is a shortcut: what is counted is what production would have decided.
"""

import argparse
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import plotly.graph_objects as go

from bench.naive_judge import NaivePolicy, Outcome, judge_naively
from bench.progress import Progress
from bench.report import Column, Goal, Report, Table
from bench.rollout_world import Fleet, World
from engine.rollout.calibration import RECENT_WINDOWS
from engine.rollout.capacity import UNKNOWN, CapacityFacts
from engine.rollout.controller import judge
from engine.rollout.policy import RolloutPolicy
from engine.rollout.state import JudgeState
from engine.rollout.verdict import Phase

NAME = "rollouts"
HELP = "false rollbacks, false promotions and detection times, beside a naive p95-ratio judge"

RATES = (20.0, 100.0, 400.0)
NOISES = ((0.0, 0.0), (0.05, 0.0), (0.05, 0.5), (0.10, 0.0), (0.10, 0.5))
SLOWDOWNS = (0.0, 0.2, 0.5)
PATIENCE = 300  # windows
CAPACITY_RUNS = 500
_CHUNK = 25


@dataclass(slots=True, frozen=True, kw_only=True)
class Cell:
    """One row of the table. `replica_per_s` set means a canary on one replica of that size."""

    kind: str
    world: World
    steps: tuple[float, ...] = (0.01, 0.05, 0.25, 0.5, 1.0)
    replica_per_s: float | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=1000, help="rollouts a cell (default 1000)")
    parser.add_argument("--quick", action="store_true", help="100 rollouts a cell")
    parser.add_argument(
        "--window-s", type=float, default=10.0, help="length of a window (default 10 s)"
    )
    parser.add_argument(
        "--independent-noise",
        action="store_true",
        help="no part of the noise is common to both arms: harsher than a shared fleet",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)"
    )


def run(args: argparse.Namespace, progress: Progress) -> Report:
    runs = 100 if args.quick else max(args.runs, 1)
    cells = list(_cells(args.window_s, 0.0 if args.independent_noise else 0.5))
    chunks = [
        (index, cell, args.seed, start, min(start + _CHUNK, _runs_of(cell, runs)))
        for index, cell in enumerate(cells)
        for start in range(0, _runs_of(cell, runs), _CHUNK)
    ]
    ours: dict[int, list[Outcome]] = {index: [] for index in range(len(cells))}
    naive: dict[int, list[Outcome]] = {index: [] for index in range(len(cells))}
    with (
        ProcessPoolExecutor(max_workers=args.jobs) as pool,
        progress.task("rollouts", total=len(chunks)) as task,
    ):
        for done in as_completed([pool.submit(_simulate, chunk) for chunk in chunks]):
            index, judged, compared = done.result()
            ours[index] += judged
            naive[index] += compared
            task.advance()
    rows = [_row(cell, ours[i], naive[i]) for i, cell in enumerate(cells)]
    tick_ms = judging_ms(100)
    return Report(
        name=NAME,
        title="Rollouts: keep what is good, catch what is not",
        summary=(
            f"{runs} simulated rollouts a cell, windows of {args.window_s:g} s, steps 1, 5, 25, "
            "50, 100 %. Execution / predicted time is log-normal with 30 % spread; noise is an "
            "AR(1) shift of each window's latency, "
            + ("independent in the two arms." if args.independent_noise else "half of it common.")
        ),
        rows=rows,
        tables=_tables(rows),
        charts=[_chart(rows)],
        goals=_goals(rows, tick_ms),
        notes=[
            "simulated arms, real judge: the counts come from exact distributions",
            "windows: median number of windows until the decision, all steps included",
            f"judging 100 rollouts of 60 windows each takes {tick_ms:.1f} ms a tick",
        ],
        extra={"judging_100_rollouts_ms": round(tick_ms, 2)},
    )


def _cells(window_s: float, common: float) -> Iterator[Cell]:
    base = World(rate_per_s=100.0, window_s=window_s, common=common)
    for slowdown in SLOWDOWNS:
        for rate in RATES:
            for noise, correlation in NOISES:
                world = replace(
                    base,
                    rate_per_s=rate,
                    noise=noise,
                    autocorrelation=correlation,
                    slowdown=slowdown,
                )
                yield Cell(kind="latency", world=world)
    for rate in RATES:
        yield Cell(kind="sessions", world=replace(base, rate_per_s=rate, session_sd=0.3))
    for rate in RATES[1:]:
        faulty = replace(base, rate_per_s=rate, canary_fault_ratio=0.05)
        yield Cell(kind="faults", world=faulty)
        same = replace(faulty, canary_fault_ratio=0.01, baseline_fault_ratio=0.01)
        yield Cell(kind="same faults", world=same)
    flaky = replace(base, baseline_fault_ratio=0.3, canary_fault_ratio=0.0)
    yield Cell(kind="bad baseline", world=flaky)
    disturbed = replace(base, noise=0.10, autocorrelation=0.5, disturbance=0.5)
    for rate in RATES[1:]:
        yield Cell(kind="disturbed history", world=replace(disturbed, rate_per_s=rate))
    slow = replace(disturbed, slowdown=0.5)
    yield Cell(kind="disturbed history, slow", world=slow)
    yield Cell(
        kind="capacity",
        world=replace(base, rate_per_s=80.0, noise=0.05),
        steps=(0.05, 0.25, 0.6, 1.0),
        replica_per_s=40.0,
    )


def _runs_of(cell: Cell, runs: int) -> int:
    return min(runs, CAPACITY_RUNS) if cell.kind == "capacity" else runs


def _simulate(
    chunk: tuple[int, Cell, int, int, int],
) -> tuple[int, list[Outcome], list[Outcome]]:
    index, cell, seed, start, stop = chunk
    ours, naive = [], []
    for number in range(start, stop):
        fleet = Fleet(cell.world, np.random.default_rng([seed, index, number]))
        if cell.kind == "capacity":
            ours.append(judge_under_capacity(cell, fleet))
            continue
        ours.append(judge_fleet(cell, fleet))
        if cell.kind == "latency":
            again = Fleet(cell.world, np.random.default_rng([seed, index, number]))
            naive.append(judge_naively(again, NaivePolicy(steps=cell.steps), PATIENCE))
    return index, ours, naive


def judge_fleet(cell: Cell, fleet: Fleet) -> Outcome:
    """One rollout from its first step to its end, by the real judge."""
    policy = RolloutPolicy(steps=cell.steps, max_wait_windows=PATIENCE)
    calibration = fleet.history()
    state = JudgeState(calibration=calibration)
    threshold = 1.0 if calibration is None else calibration.threshold
    for seq in range(PATIENCE):
        if state.calibration is not None and state.wants_calibration:
            since = len(state.columns["step"]) - state.calibrated_at
            state = state.calibrated(fleet.calibration(min(since, RECENT_WINDOWS)))
            threshold = state.calibration.threshold
        counts = fleet.window(seq, policy.steps[state.step], threshold, policy)
        state, verdict = judge(state, counts, policy, UNKNOWN)
        if state.phase in (Phase.PROMOTED, Phase.ROLLED_BACK):
            return Outcome(end=str(state.phase), windows=seq + 1, reason=str(verdict.reason))
    return Outcome(end="undecided", windows=PATIENCE)


def judge_under_capacity(cell: Cell, fleet: Fleet) -> Outcome:
    """An identical version on too few replicas, forced to 60 % by an operator after a while.

    Past its capacity the canary sheds and misses deadlines in proportion to the overload:
    exactly what a judge without a capacity gate takes for a bad version.
    """
    policy = RolloutPolicy(steps=cell.steps)
    each = cell.replica_per_s or 1.0
    calibration = fleet.history()
    state = JudgeState(calibration=calibration)
    threshold = 1.0 if calibration is None else calibration.threshold
    rng = fleet.rng
    ready, seen = 2, Counter[str]()
    for seq in range(60):
        if state.step == 2:
            ready = 1  # half of its replicas leave once it carries 60 %
        offered = cell.world.rate_per_s
        facts = CapacityFacts(canary_ready=ready, canary_per_s=ready * each, offered_per_s=offered)
        ratio = policy.steps[state.step]
        counts = fleet.window(seq, ratio, threshold, policy)
        overload = max(0.0, 1.0 - ready * each / (offered * ratio))
        lost = int(rng.binomial(counts.canary_ended or 0, overload))
        late = int(rng.binomial((counts.canary_ended or 0) - lost, min(1.0, overload * 2.0)))
        counts = replace(counts, canary_sheds=lost, canary_misses=late)
        state, verdict = judge(state, counts, policy, facts)
        seen[verdict.name] += 1
        if state.phase is Phase.ROLLED_BACK:
            return Outcome(end="rolled_back", windows=seq + 1, reason=str(verdict.reason))
        if state.phase is Phase.PROMOTED:
            return Outcome(end="promoted", windows=seq + 1)
    held = "capacity_limited" if seen["hold:capacity_limited"] else ""
    return Outcome(end="undecided", windows=60, reason=held)


def judging_ms(rollouts: int, windows: int = 60) -> float:
    """What one tick over this many rollouts costs, each with `windows` windows of history."""
    rng = random.Random(7)
    policy = RolloutPolicy(max_wait_windows=1000)
    states = []
    world = World(rate_per_s=100.0, noise=0.1, autocorrelation=0.5, slowdown=0.15)
    for number in range(rollouts):
        fleet = Fleet(world, np.random.default_rng(rng.getrandbits(32)))
        calibration = fleet.history()
        state = JudgeState(calibration=calibration, step=3)
        threshold = 1.0 if calibration is None else calibration.threshold
        rows = [fleet.window(seq, 0.5, threshold, policy) for seq in range(windows + 1)]
        if number < 5:
            for counts in rows[:-1]:
                state, _ = judge(replace(state, step=3), counts, policy)
        else:
            state = states[number % 5][0]
        states.append((replace(state, step=3), rows[-1]))
    best = float("inf")
    for _ in range(3):  # processor time, so that a busy machine does not count against it
        started = time.process_time()
        for state, counts in states:
            judge(state, counts, policy)
        best = min(best, time.process_time() - started)
    return best * 1000.0


def _share(outcomes: list[Outcome], end: str, within: int = PATIENCE) -> float | None:
    if not outcomes:
        return None
    return sum(o.end == end and o.windows <= within for o in outcomes) / len(outcomes)


def _typical(outcomes: list[Outcome], end: str) -> float | None:
    windows = [o.windows for o in outcomes if o.end == end]
    return float(median(windows)) if windows else None


def _row(cell: Cell, ours: list[Outcome], naive: list[Outcome]) -> dict[str, object]:
    world = cell.world
    return {
        "kind": cell.kind,
        "rate": world.rate_per_s,
        "noise": world.noise,
        "autocorrelation": world.autocorrelation,
        "slowdown": world.slowdown,
        "runs": len(ours),
        "promoted": _share(ours, "promoted"),
        "promoted_120": _share(ours, "promoted", 120),
        "rolled_back": _share(ours, "rolled_back"),
        "undecided": _share(ours, "undecided"),
        "windows_to_promote": _typical(ours, "promoted"),
        "windows_to_roll_back": _typical(ours, "rolled_back"),
        "held_for_capacity": (
            sum(o.reason == "capacity_limited" for o in ours) if cell.kind == "capacity" else None
        ),
        "naive_promoted": _share(naive, "promoted"),
        "naive_rolled_back": _share(naive, "rolled_back"),
        "naive_undecided": _share(naive, "undecided"),
    }


_CELL_COLUMNS = (
    Column(key="rate", title="req/s", form=".0f"),
    Column(key="noise", title="noise", form=".0%"),
    Column(key="autocorrelation", title="autocorr.", form=".1f"),
)


def _tables(rows: list[dict[str, object]]) -> list[Table]:
    def of(slowdown: float) -> list[dict[str, object]]:
        return [r for r in rows if r["kind"] == "latency" and r["slowdown"] == slowdown]

    good = (
        *_CELL_COLUMNS,
        Column(key="rolled_back", title="false rollback", form=".1%"),
        Column(key="promoted", title="promoted", form=".1%"),
        Column(key="promoted_120", title="in 120 windows", form=".1%"),
        Column(key="windows_to_promote", title="windows", form=".0f"),
        Column(key="naive_rolled_back", title="naive: false rollback", form=".1%"),
        Column(key="naive_promoted", title="naive: promoted", form=".1%"),
        Column(key="naive_undecided", title="naive: never decides", form=".1%"),
    )
    bad = (
        *_CELL_COLUMNS,
        Column(key="rolled_back", title="caught", form=".1%"),
        Column(key="windows_to_roll_back", title="windows", form=".0f"),
        Column(key="promoted", title="false promotion", form=".1%"),
        Column(key="undecided", title="undecided", form=".1%"),
        Column(key="naive_rolled_back", title="naive: caught", form=".1%"),
        Column(key="naive_promoted", title="naive: false promotion", form=".1%"),
        Column(key="naive_undecided", title="naive: never decides", form=".1%"),
    )
    special = (
        Column(key="kind", title="what"),
        Column(key="rate", title="req/s", form=".0f"),
        Column(key="runs", title="runs", form="d"),
        Column(key="rolled_back", title="rolled back", form=".1%"),
        Column(key="windows_to_roll_back", title="windows", form=".0f"),
        Column(key="promoted", title="promoted", form=".1%"),
        Column(key="held_for_capacity", title="held: capacity", form="d"),
    )
    return [
        Table(title="Identical versions", columns=good, rows=of(0.0)),
        Table(title="Slower by 20 %", columns=bad, rows=of(0.2)),
        Table(title="Slower by 50 %", columns=bad, rows=of(0.5)),
        Table(
            title="Special cases",
            columns=special,
            rows=[r for r in rows if r["kind"] != "latency"],
            note="sessions: identical, each session 30 % its own speed. faults: 0 to 5 %. "
            "same faults: 1 % in both. bad "
            "baseline: 30 % faults against none. disturbed history: 10 % noise, and everything was "
            "50 % slower before the rollout; identical, and slower by 50 %. "
            "capacity: identical, half its replicas leave.",
        ),
    ]


def _goals(rows: list[dict[str, object]], tick_ms: float) -> list[Goal]:
    def cells(slowdown: float, noise: float = 1.0) -> list[dict[str, object]]:
        return [
            r
            for r in rows
            if r["kind"] == "latency"
            and r["slowdown"] == slowdown
            and float(str(r["noise"])) <= noise
        ]

    def worst(chosen: list[dict[str, object]], key: str, pick: object = max) -> float | None:
        values = [float(str(r[key])) for r in chosen if r[key] is not None]
        return pick(values) if values else None  # type: ignore[operator]

    low = [r for r in cells(0.0) if r["rate"] == RATES[0]]
    kinds = {
        kind: [r for r in rows if r["kind"] == kind]
        for kind in (
            "sessions",
            "faults",
            "same faults",
            "disturbed history",
            "disturbed history, slow",
        )
    }
    capacity = next(r for r in rows if r["kind"] == "capacity")
    rolled = float(str(capacity["rolled_back"])) * int(str(capacity["runs"]))
    return [
        Goal(
            name="false rollback, worst cell",
            measured=worst(cells(0.0), "rolled_back"),
            at_most=0.01,
        ),
        Goal(
            name="false promotion of +20 %, worst cell",
            measured=worst(cells(0.2), "promoted"),
            at_most=0.01,
        ),
        Goal(
            name="+20 % caught, noise <= 5 %, worst cell",
            measured=worst(cells(0.2, 0.05), "rolled_back", min),
            at_least=0.99,
        ),
        Goal(
            name="+20 %, noise <= 5 %: median windows, worst cell",
            measured=worst(cells(0.2, 0.05), "windows_to_roll_back"),
            at_most=40,
        ),
        Goal(
            name="+50 % caught, worst cell",
            measured=worst(cells(0.5), "rolled_back", min),
            at_least=0.99,
        ),
        Goal(
            name="+50 %, noise <= 5 %: median windows, worst cell",
            measured=worst(cells(0.5, 0.05), "windows_to_roll_back"),
            at_most=6,
        ),
        Goal(
            name="+50 %, any noise: median windows, worst cell",
            measured=worst(cells(0.5), "windows_to_roll_back"),
            at_most=8,
        ),
        Goal(
            name="20 req/s promoted within 120 windows, worst cell",
            measured=worst(low, "promoted_120", min),
            at_least=0.95,
        ),
        Goal(name="capacity confound: rollbacks", measured=rolled, at_most=0),
        Goal(
            name="session effects: false alarms, worst cell",
            measured=worst(kinds["sessions"], "rolled_back"),
            at_most=0.02,
        ),
        Goal(
            name="1 % faults in both arms: false alarms, worst cell",
            measured=worst(kinds["same faults"], "rolled_back"),
            at_most=0.01,
        ),
        Goal(
            name="disturbed history: false rollbacks, worst cell",
            measured=worst(kinds["disturbed history"], "rolled_back"),
            at_most=0.01,
        ),
        Goal(
            name="disturbed history: promoted, worst cell",
            measured=worst(kinds["disturbed history"], "promoted", min),
            at_least=0.95,
        ),
        Goal(
            name="disturbed history: +50 % caught",
            measured=worst(kinds["disturbed history, slow"], "rolled_back", min),
            at_least=0.99,
        ),
        Goal(
            name="0 -> 5 % faults caught, worst cell",
            measured=worst(kinds["faults"], "rolled_back", min),
            at_least=0.99,
        ),
        Goal(
            name="0 -> 5 % faults: median windows at 400 req/s",
            measured=worst(kinds["faults"][-1:], "windows_to_roll_back"),
            at_most=3,
        ),
        Goal(name="judging 100 rollouts, ms a tick", measured=tick_ms, at_most=50.0),
    ]


def _chart(rows: list[dict[str, object]]) -> go.Figure:
    """Error rates of both judges, cell by cell."""
    good = [r for r in rows if r["kind"] == "latency" and r["slowdown"] == 0.0]
    bad = [r for r in rows if r["kind"] == "latency" and r["slowdown"] == 0.2]
    names = [f"{r['rate']:g}/s, {r['noise']:.0%}, {r['autocorrelation']:g}" for r in good]
    figure = go.Figure()
    for title, source, key in (
        ("false rollback", good, "rolled_back"),
        ("false promotion of +20 %", bad, "promoted"),
        ("naive: false rollback", good, "naive_rolled_back"),
        ("naive: false promotion of +20 %", bad, "naive_promoted"),
    ):
        figure.add_bar(name=title, x=names, y=[r[key] for r in source])
    figure.update_layout(
        title="How often each judge errs", yaxis={"title": "share of rollouts", "tickformat": ".0%"}
    )
    return figure
