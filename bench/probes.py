"""How a proxy behaves when its upstreams misbehave: seven probes, every system in one run.

Two scriptable upstreams stand behind each system, which runs with its default settings. The
probes are the failures that users of these systems reported: an upstream that fails fast and
so looks idle, one that has recovered, one that rejects bad requests, two that are busy for a
while, one that hangs, one ten times slower than the other, and clients that leave.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.halcyon_stack import start_halcyon
from bench.peers import PEERS, Process
from bench.ports import free_ports
from bench.probing import PROBES, Probe, Target, run_probe
from bench.progress import Progress
from bench.report import Column, Goal, Report, Table

NAME = "probes"
HELP = "seven ways for upstreams to misbehave, beside Envoy and the LLM routers"
OURS = "halcyon"


@dataclass(slots=True, frozen=True)
class _System:
    name: str
    start: Callable[[int, Sequence[str], Path], Process]


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
    systems = [_system(name) for name in args.systems.split(",")]
    rows: list[dict[str, object]] = []
    with progress.task("probing", total=len(chosen) * len(systems)) as task:
        for system in systems:
            for probe in chosen:
                task.say(f"{system.name}: {probe.name}")
                rows.append(_probe(system, probe))
                task.advance()
    return Report(
        name=NAME,
        title="Behaviour under misbehaving upstreams",
        summary="Two scriptable upstreams behind each system, default settings, one run.",
        rows=rows,
        tables=[_table(rows, chosen)],
        goals=_goals(rows, chosen),
    )


def _system(name: str) -> _System:
    if name == OURS:
        return _System(OURS, start_halcyon)
    if name not in PEERS:
        raise SystemExit(f"--systems: no system {name!r}; known: {OURS}, {', '.join(PEERS)}")
    return _System(name, PEERS[name].start)


def _probe(system: _System, probe: Probe) -> dict[str, object]:
    """Fresh upstreams and a fresh system for every probe: none inherits another's breakers."""
    row: dict[str, object] = {"system": system.name, "probe": probe.name}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port, *upstream_ports = free_ports(3)
        upstreams = [
            stack.enter_context(
                Process(
                    f"upstream-{name}",
                    [sys.executable, "-m", "bench.upstreams.openai_server",
                     "--port", str(upstream_port), "--name", name],
                    upstream_port,
                    "/health",
                    folder,
                )
            )
            for name, upstream_port in zip("ab", upstream_ports, strict=True)
        ]  # fmt: skip
        try:
            proxy = stack.enter_context(system.start(port, [u.url for u in upstreams], folder))
            row.update(run_probe(probe, Target(proxy.url, upstreams[0].url, upstreams[1].url)))
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
