"""What it costs to stand in front of a model server, beside Envoy and the LLM routers.

An upstream that costs next to nothing (`instant_server`) stands behind every system, all of
them run at once and are loaded in turns, so that what else the machine does hits all alike.
CPU is user and system time of the system's process tree, from the kernel's books, divided by
the requests (or the events of streams) that came back. Ours has everything on: keys, request
and token quotas shared through Valkey, adaptive limit, deadlines, decision records.

Added latency is measured with one connection (nothing waits for anything), as the difference
to the upstream asked directly in the same turns; for streams, from the instant that the
upstream wrote an event to the instant that its reader has it. Streams come twice: each in its
own time, where a proxy wakes for every event, and in step, as one server with continuous
batching sends them.
"""

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import plotly.graph_objects as go

from bench.halcyon_stack import HalcyonStack
from bench.peers import PEERS, Process
from bench.ports import free_ports
from bench.progress import Progress
from bench.proxy_load import Round, set_pace, streams, whole, write_script
from bench.report import Column, Goal, Report, Table
from bench.upstreams import start_instant_upstream
from engine.errors import InvalidInput

NAME = "proxy"
HELP = "CPU, throughput, latency and memory beside Envoy and the LLM routers"
OURS, DIRECT = "halcyon", "direct"
GOAL_CPU_US, GOAL_EVENT_CPU_US, GOAL_EVENT_MS = 250.0, 20.0, 0.3
GOAL_MEMORY_MB, GOAL_OF_ENVOY = 150.0, 0.1
_CONNECTIONS = 32
_STREAMS = 32


@dataclass(slots=True, frozen=True)
class Rounds:
    """What one system was put through."""

    many: list[Round] = field(default_factory=list)  # whole answers, many connections
    alone: list[Round] = field(default_factory=list)  # whole answers, one connection
    events: list[Round] = field(default_factory=list)  # streams, each in its own time
    in_step: list[Round] = field(default_factory=list)  # streams that beat together

    def errors(self) -> int:
        """All that failed."""
        kinds = (self.many, self.alone, self.events, self.in_step)
        return sum(each.errors for rounds in kinds for each in rounds)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options beyond the common ones."""
    known = ",".join([OURS, *PEERS])
    parser.add_argument("--systems", default=known, help=f"separated by commas ({known})")
    parser.add_argument("--seconds", type=int, default=2, help="length of a round (2)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each kind (3)")
    parser.add_argument("--events", type=int, default=400, help="events of a stream (400)")


def run(args: argparse.Namespace, progress: Progress) -> Report:
    """Start everything, load in turns, judge."""
    if shutil.which("wrk") is None:
        raise InvalidInput("wrk", None, "is not installed: apt-get install wrk (or brew)")
    names = args.systems.split(",")
    for name in names:
        if name != OURS and name not in PEERS:
            raise InvalidInput("systems", name, f"must be of {OURS}, {', '.join(PEERS)}")
    with ExitStack() as stack, progress.task("starting", len(names) * (4 * args.rounds + 2)) as bar:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halcyon-bench-")))
        upstream = stack.enter_context(start_instant_upstream(folder))
        servers: dict[str, Process] = {DIRECT: upstream}
        for name in names:
            bar.say(f"starting {name}")
            servers[name] = stack.enter_context(_start(name, upstream.url, folder, stack))
            bar.advance()
        scripts = {name: write_script(folder, server.key) for name, server in servers.items()}
        rounds = {name: Rounds() for name in servers}
        for name, server in servers.items():
            whole(server, scripts[name], 8, 1)  # caches fill, models of cost learn
            bar.advance()
        for _ in range(args.rounds):
            for name, server in servers.items():
                bar.say(name)
                done = rounds[name]
                done.many.append(whole(server, scripts[name], _CONNECTIONS, args.seconds))
                done.alone.append(whole(server, scripts[name], 1, args.seconds))
                done.events.append(streams(server, server.key, _STREAMS, args.events))
                set_pace(upstream, "step")
                done.in_step.append(streams(server, server.key, _STREAMS, args.events))
                set_pace(upstream, "free")
                bar.advance(4)
        memory = {name: server.memory_mb() for name, server in servers.items()}
    rows = [_row(name, rounds[name], rounds[DIRECT], memory[name]) for name in servers]
    return Report(
        name=NAME,
        title="In front of a model server",
        summary="One instant upstream behind every system, one worker each, loaded in turns.",
        rows=rows,
        tables=[_table(rows)],
        charts=[_chart(rows)],
        goals=_goals({str(row["system"]): row for row in rows}),
        notes=[
            "wrk, the stream reader and the upstream share the machine with what is measured:"
            " requests per second say how busy it was, CPU is each system's alone.",
            "PostgreSQL and Valkey behind our gateway are not on the request path and not counted.",
        ],
    )


def _start(name: str, upstream: str, folder: Path, stack: ExitStack) -> Process:
    (port,) = free_ports(1)
    if name == OURS:
        return stack.enter_context(HalcyonStack(folder, [upstream])).start(port, folder)
    return PEERS[name].start(port, [upstream], folder)


def _median(rounds: Sequence[Round], what: str) -> float | None:
    values = [value for each in rounds if (value := getattr(each, what)) is not None]
    return statistics.median(values) if values else None


def _row(name: str, mine: Rounds, direct: Rounds, memory_mb: float) -> dict[str, object]:
    measured = name != DIRECT  # else it is the upstream itself

    def added_ms(through: list[Round], without: list[Round], what: str) -> float | None:
        whole_us, least_us = _median(through, what), _median(without, what)
        if whole_us is None or least_us is None or not measured:
            return None
        return (whole_us - least_us) / 1000.0

    return {
        "system": name,
        "cpu_us": _median(mine.many, "cpu_us") if measured else None,
        "per_s": _median(mine.many, "per_s"),
        "p50_ms_at_32": _ms(_median(mine.many, "p50_us")),
        "p99_ms_at_32": _ms(_median(mine.many, "p99_us")),
        "added_p50_ms": added_ms(mine.alone, direct.alone, "p50_us"),
        "added_p99_ms": added_ms(mine.alone, direct.alone, "p99_us"),
        "event_cpu_us": _median(mine.events, "cpu_us") if measured else None,
        "step_event_cpu_us": _median(mine.in_step, "cpu_us") if measured else None,
        "event_added_p50_ms": added_ms(mine.events, direct.events, "p50_us"),
        "event_added_p99_ms": added_ms(mine.events, direct.events, "p99_us"),
        "memory_mb": memory_mb if measured else None,
        "errors": mine.errors(),
    }


def _ms(value_us: float | None) -> float | None:
    return None if value_us is None else value_us / 1000.0


def _table(rows: list[dict[str, object]]) -> Table:
    return Table(
        title=f"{_CONNECTIONS} connections; {_STREAMS} streams (medians of the rounds)",
        columns=(
            Column(key="system", title="system"),
            Column(key="cpu_us", title="CPU a request, us", form=",.0f"),
            Column(key="per_s", title="requests/s", form=",.0f"),
            Column(key="p50_ms_at_32", title="p50, ms", form=".2f"),
            Column(key="p99_ms_at_32", title="p99, ms", form=".2f"),
            Column(key="added_p50_ms", title="added p50, ms", form=".3f"),
            Column(key="added_p99_ms", title="added p99, ms", form=".3f"),
            Column(key="event_cpu_us", title="CPU an event, us", form=",.1f"),
            Column(key="step_event_cpu_us", title="in step, us", form=",.1f"),
            Column(key="event_added_p50_ms", title="event added p50, ms", form=".3f"),
            Column(key="event_added_p99_ms", title="event added p99, ms", form=".3f"),
            Column(key="memory_mb", title="memory, MB", form=",.0f"),
            Column(key="errors", title="errors", form="d"),
        ),
        rows=rows,
    )


def _chart(rows: list[dict[str, object]]) -> go.Figure:
    shown = [row for row in rows if row["cpu_us"] is not None]
    return go.Figure(
        go.Bar(x=[row["system"] for row in shown], y=[row["cpu_us"] for row in shown]),
        layout={
            "title": "CPU per request",
            "yaxis": {"title": "us", "type": "log"},
            "xaxis": {"type": "category"},
        },
    )


def _goals(rows: dict[str, dict[str, object]]) -> list[Goal]:
    ours = rows.get(OURS)
    if ours is None:
        return []

    def number(row: dict[str, object], key: str) -> float | None:
        value = row[key]
        return float(value) if isinstance(value, int | float) else None

    goals = [
        Goal(name="CPU a request, us", measured=number(ours, "cpu_us"), at_most=GOAL_CPU_US),
        Goal(
            name="CPU a streamed event, each stream in its own time, us",
            measured=number(ours, "event_cpu_us"),
            at_most=GOAL_EVENT_CPU_US,
        ),
        Goal(
            name="CPU a streamed event, streams in step, us",
            measured=number(ours, "step_event_cpu_us"),
            at_most=GOAL_EVENT_CPU_US,
        ),
        Goal(
            name="added to a streamed event at p50, ms",
            measured=number(ours, "event_added_p50_ms"),
            at_most=GOAL_EVENT_MS,
        ),
        Goal(name="memory, MB", measured=number(ours, "memory_mb"), at_most=GOAL_MEMORY_MB),
    ]
    if "envoy" in rows:
        mine, theirs = number(ours, "per_s"), number(rows["envoy"], "per_s")
        ratio = mine / theirs if mine is not None and theirs else None
        goals.append(Goal(name="requests/s of Envoy's", measured=ratio, at_least=GOAL_OF_ENVOY))
    return goals
