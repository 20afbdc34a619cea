"""How a proxy behaves when its upstreams misbehave: seven probes, every system in one run.

Two scriptable upstreams stand behind each system, which runs with its default settings. The
probes are the failures that users of these systems reported: an upstream that fails fast and
so looks idle, one that has recovered, one that rejects bad requests, two that are busy for a
while, one that hangs, one ten times slower than the other, and clients that leave.
"""

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.halcyon_stack import HalcyonStack
from bench.peers import PEERS
from bench.ports import free_ports
from bench.probing import PROBES, Probe, Target, run_probe
from bench.progress import Progress
from bench.report import Column, Goal, Report, Table
from bench.upstreams import start_upstream

NAME = "probes"
HELP = "seven ways for upstreams to misbehave, beside Envoy and the LLM routers"
OURS = "halcyon"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--systems",
        default=",".join([OURS, *PEERS]),
        help="which systems, separated by commas (default: all)",
    )
    parser.add_argument(
        "--probes", default=",".join(p.name for p in PROBES), help="which probes (default: all)"
    )


def run(args: argparse.Namespace, progress: Progress) -> Report:
    chosen = [probe for probe in PROBES if probe.name in args.probes.split(",")]
    systems = args.systems.split(",")
    for name in systems:
        if name != OURS and name not in PEERS:
            raise SystemExit(f"--systems: no system {name!r}; known: {OURS}, {', '.join(PEERS)}")
    rows: list[dict[str, object]] = []
    with ExitStack() as stack, progress.task("probing", len(chosen) * len(systems)) as task:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halcyon-bench-")))
        upstreams = [stack.enter_context(start_upstream(name, folder)) for name in "ab"]
        urls = [upstream.url for upstream in upstreams]
        ours = HalcyonStack(folder, urls) if OURS in systems else None
        if ours is not None:
            stack.enter_context(ours)
        for system in systems:
            for probe in chosen:
                task.say(f"{system}: {probe.name}")
                rows.append(_probe(system, probe, urls, folder, ours))
                task.advance()
    return Report(
        name=NAME,
        title="Behaviour under misbehaving upstreams",
        summary="Two scriptable upstreams behind each system, default settings, one run.",
        rows=rows,
        tables=[_table(rows, chosen)],
        goals=_goals(rows, chosen),
    )


def _probe(
    system: str, probe: Probe, urls: list[str], folder: Path, ours: HalcyonStack | None
) -> dict[str, object]:
    """A fresh system for every probe: none inherits another's breakers."""
    row: dict[str, object] = {"system": system, "probe": probe.name}
    (port,) = free_ports(1)
    try:
        with (
            PEERS[system].start(port, urls, folder)
            if ours is None or system != OURS
            else ours.start(port, folder)
        ) as proxy:
            row.update(run_probe(probe, Target(proxy.url, *urls, key=proxy.key)))
    except (RuntimeError, OSError) as error:
        row["error"] = str(error)[-300:]
    return row


def _table(rows: list[dict[str, object]], chosen: list[Probe]) -> Table:
    shown = []
    for system in dict.fromkeys(row["system"] for row in rows):
        line: dict[str, object] = {"system": system}
        for row in rows:
            if row["system"] == system:
                line[str(row["probe"])] = row.get("verdict") or row.get("error")
        shown.append(line)
    columns = [Column(key="system", title="system")]
    columns += [Column(key=probe.name, title=probe.title) for probe in chosen]
    return Table(title="What clients saw", columns=columns, rows=shown)


def _goals(rows: list[dict[str, object]], chosen: list[Probe]) -> list[Goal]:
    goals = []
    for probe in chosen:
        row = next((r for r in rows if r["system"] == OURS and r["probe"] == probe.name), None)
        for goal in probe.goals if row is not None else ():
            value = row.get(goal.key) if row is not None else None
            goals.append(
                Goal(
                    name=f"{probe.title}: {goal.title}",
                    measured=float(value) if isinstance(value, int | float) else None,
                    at_least=goal.at_least,
                    at_most=goal.at_most,
                )
            )
    return goals
