"""What the gateway itself costs a request, beside a bare echo on the same server.

CPU (user + system of the process, from the kernel's books) divided by the requests that wrk
counted, with everything on: keys, quotas shared through Valkey, adaptive limit, planner,
batches of 16, routing, decision records, evidence written to PostgreSQL each second. Replicas
cost nothing (`overhead_replica`). The echo (`overhead_echo`) decodes and encodes the same
JSON. Both run in turns, so that what else the machine does hits both; the table shows the
median round and the best one.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import plotly.graph_objects as go
import psutil

from bench.children import end
from bench.ports import free_ports
from bench.progress import Progress
from bench.report import Column, Goal, Report, Table
from engine.errors import InvalidInput

NAME = "overhead"
HELP = "CPU of the gateway per request, beside a bare uvicorn echo"

GOAL_US, GOAL_RATIO, GOAL_FLAT = 70.0, 2.2, 1.2
GOAL_RELOAD_MS, GOAL_PAUSE_MS = 100.0, 5.0
_TENANTS = 10_000
_RELOADS = 7
_BODY = {
    "model": "bench",
    "input": "Tell me a short story about a halcyon bird that nests on the winter sea.",
    "deadlineMs": 2000,
    "maxOutputTokens": 64,
}
_GATEWAY = """
import sys
from fleet.gateway.main import run
sys.exit(run(port=int(sys.argv[1]), state_dir=sys.argv[2]))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options beyond the common ones."""
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a round (4)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each kind (5)")
    parser.add_argument(
        "--connections", default="16,64,256", help="wrk connections, comma-separated (16,64,256)"
    )


@dataclass(slots=True)
class Round:
    """One run of wrk against one server."""

    requests: int
    cpu_us: float
    per_s: float
    errors: int
    batch: float | None = None  # requests a batch


@dataclass(slots=True)
class Figures:
    """What a server cost at one number of connections."""

    rounds: list[Round]

    @property
    def median_us(self) -> float:
        return statistics.median(each.cpu_us for each in self.rounds)

    @property
    def best_us(self) -> float:
        return min(each.cpu_us for each in self.rounds)

    @property
    def per_s(self) -> float:
        return statistics.median(each.per_s for each in self.rounds)

    @property
    def batch(self) -> float | None:
        known = [each.batch for each in self.rounds if each.batch is not None]
        return statistics.median(known) if known else None

    @property
    def errors(self) -> int:
        return sum(each.errors for each in self.rounds)


def run(args: argparse.Namespace, progress: Progress) -> Report:
    """Measure and judge."""
    if shutil.which("wrk") is None:
        raise InvalidInput("wrk", None, "is not installed: apt-get install wrk (or brew)")
    try:
        connections = [int(part) for part in args.connections.split(",")]
    except ValueError:
        raise InvalidInput("connections", args.connections, "must be numbers, as 16,64") from None
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="halcyon-bench-")))
        ports = free_ports(302)
        echo_port, gateway_port, *replica_ports = ports
        few, rest, many = replica_ports[:3], replica_ports[3:], replica_ports
        stack.enter_context(_python("-m", "bench.overhead_replica", *map(str, many)))
        echo = stack.enter_context(_python("-m", "bench.overhead_echo", str(echo_port)))
        stand = stack.enter_context(_stand(directory, few))
        script = _script(directory)
        gateway = stack.enter_context(
            _python("-c", _GATEWAY, str(gateway_port), str(directory), env=stand.environment)
        )
        _wait_ready(f"http://127.0.0.1:{gateway_port}/readyz")
        with progress.task("measuring", total=(len(connections) + 3) * 2 * args.rounds) as task:

            def rounds(count: int, at: int) -> tuple[Figures, Figures]:
                theirs, ours = Figures([]), Figures([])
                for _ in range(count):
                    for figures, process, port in (
                        (theirs, echo, echo_port),
                        (ours, gateway, gateway_port),
                    ):
                        task.say(f"{at} connections")
                        figures.rounds.append(
                            _round(process, port, at, args.seconds, script, counted=figures is ours)
                        )
                        task.advance()
                return theirs, ours

            _round(
                gateway, gateway_port, 64, 2.0, script, counted=False
            )  # the cost model learns, caches fill
            measured = {at: rounds(args.rounds, at) for at in connections}
            fleets: dict[str, Figures] = {"3 serve": rounds(args.rounds, 64)[1]}
            for name, words in (
                ("3 serve, 297 beside them", "beside " + " ".join(map(str, rest))),
                ("300 serve", "ports " + " ".join(map(str, many))),
            ):
                stand.say(words)
                time.sleep(6.0)
                _round(gateway, gateway_port, 64, 2.0, script, counted=False)
                fleets[name] = rounds(args.rounds, 64)[1]
            task.say("reloading 10,000 tenants")
            reloads = _reloads(directory, stand)
    return _report(measured, fleets, reloads)


# -- the parts ----------------------------------------------------------------------------


@contextmanager
def _python(*arguments: str, env: dict[str, str] | None = None) -> Iterator[psutil.Process]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, **(env or {})},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        end(process, 15.0)


class Stand:
    """The servers and the fleet behind the gateway."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout
        line = self._out.readline()
        if not line:
            raise InvalidInput("stand", process.poll(), "PostgreSQL or Valkey did not start")
        self.environment: dict[str, str] = json.loads(line)["environment"]

    def say(self, words: str) -> None:
        """Give a command and wait until it is done."""
        self._in.write(words + "\n")
        self._in.flush()
        self._out.readline()


@contextmanager
def _stand(directory: Path, ports: list[int]) -> Iterator[Stand]:
    command = [sys.executable, "-m", "bench.overhead_stand", str(directory / "var")]
    process = subprocess.Popen(
        [*command, str(_TENANTS), *map(str, ports)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Stand(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def _script(directory: Path) -> Path:
    from bench.overhead_stand import KEY

    path = directory / "infer.lua"
    path.write_text(
        'wrk.method = "POST"\n'
        'wrk.headers["content-type"] = "application/json"\n'
        f'wrk.headers["x-api-key"] = "{KEY}"\n'
        f"wrk.body = [[{json.dumps(_BODY)}]]\n"
        "done = function(summary, latency, requests)\n"
        "  local e = summary.errors\n"
        '  io.write(string.format("\\nRESULT %d %d %d\\n", summary.requests, summary.duration,'
        " e.status + e.connect + e.read + e.write + e.timeout))\n"
        "end\n"
    )
    return path


def _round(
    process: psutil.Process,
    port: int,
    connections: int,
    seconds: float,
    script: Path,
    *,
    counted: bool,
) -> Round:
    batches = _batches(port) if counted else None
    before = process.cpu_times()
    out = subprocess.run(
        [
            *("wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", str(script)),
            f"http://127.0.0.1:{port}/v1/infer",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    after = process.cpu_times()
    line = next(line for line in out.splitlines() if line.startswith("RESULT"))
    requests, micros, errors = (int(word) for word in line.split()[1:])
    cpu_s = after.user + after.system - before.user - before.system
    sent = None if batches is None else (_batches(port) or 0) - batches
    return Round(
        requests=requests,
        cpu_us=cpu_s * 1e6 / max(requests, 1),
        per_s=requests * 1e6 / max(micros, 1),
        errors=errors,
        batch=requests / sent if sent else None,
    )


def _batches(port: int) -> int | None:
    """How many batches the gateway has sent so far; None where it does not say."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/control/state", timeout=5) as got:
            replicas = json.load(got)["replicas"]
    except (urllib.error.URLError, OSError):
        return None
    return sum(int(replica["batches"]) for replica in replicas)


def _wait_ready(url: str, within_s: float = 60.0) -> None:
    limit_s = time.monotonic() + within_s
    while time.monotonic() < limit_s:
        try:
            with urllib.request.urlopen(url, timeout=2):
                time.sleep(2.0)  # the first probes
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise InvalidInput("gateway", url, f"was not ready within {within_s:g} s")


def _reloads(directory: Path, stand: Stand) -> list[dict[str, float]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.overhead_reload", str(directory / "reload"), str(_RELOADS)],
        env={**os.environ, **stand.environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    found: list[dict[str, float]] = []
    with process.stdout as lines:
        lines.readline()
        for _ in range(_RELOADS):
            stand.say("touch")
            found.append(json.loads(lines.readline()))
    process.wait(30)
    return found


# -- the verdict --------------------------------------------------------------------------


def _report(
    measured: dict[int, tuple[Figures, Figures]],
    fleets: dict[str, Figures],
    reloads: list[dict[str, float]],
) -> Report:
    rows: list[dict[str, object]] = []
    goals: list[Goal] = []
    for at, (echo, gateway) in measured.items():
        ratio = gateway.median_us / echo.median_us
        rows.append(
            {
                "connections": at,
                "echo_us": echo.median_us,
                "gateway_us": gateway.median_us,
                "gateway_best_us": gateway.best_us,
                "ratio": ratio,
                "echo_per_s": echo.per_s,
                "gateway_per_s": gateway.per_s,
                "batch": gateway.batch,
                "errors": gateway.errors,
            }
        )
        goals.append(Goal(name=f"us at {at}", measured=gateway.median_us, at_most=GOAL_US))
        goals.append(Goal(name=f"of the echo at {at}", measured=ratio, at_most=GOAL_RATIO))
    three, crowd, _ = fleets.values()
    flat = crowd.best_us / three.best_us
    reload_ms = statistics.median(each["reload_ms"] for each in reloads)
    pause_ms = statistics.median(each["pause_ms"] for each in reloads)
    pause_cpu_ms = statistics.median(each["pause_cpu_ms"] for each in reloads)
    goals += [
        Goal(name="300 registered replicas against 3", measured=flat, at_most=GOAL_FLAT),
        Goal(name="reload of 10,000 tenants, ms", measured=reload_ms, at_most=GOAL_RELOAD_MS),
        Goal(name="longest pause of the loop, ms", measured=pause_ms, at_most=GOAL_PAUSE_MS),
    ]
    fleet_rows: list[dict[str, object]] = [
        {
            "fleet": name,
            "median_us": figures.median_us,
            "best_us": figures.best_us,
            "batch": figures.batch,
        }
        for name, figures in fleets.items()
    ]
    figure = go.Figure(
        [
            go.Bar(
                name="bare echo",
                x=[str(r["connections"]) for r in rows],
                y=[r["echo_us"] for r in rows],
            ),
            go.Bar(
                name="gateway",
                x=[str(r["connections"]) for r in rows],
                y=[r["gateway_us"] for r in rows],
            ),
        ],
        layout={
            "title": "CPU per request",
            "barmode": "group",
            "xaxis": {"title": "connections", "type": "category"},
            "yaxis": {"title": "us"},
        },
    )
    return Report(
        name=NAME,
        title="The gateway's own CPU per request",
        summary="User and system time of the gateway divided by requests, replicas costing"
        " nothing, beside a bare uvicorn echo of the same JSON in the same run.",
        rows=[*rows, *fleet_rows, *reloads],
        tables=[
            Table(
                title="By connections (medians of the rounds)",
                columns=(
                    Column(key="connections", title="connections"),
                    Column(key="echo_us", title="echo, us", form=".1f"),
                    Column(key="gateway_us", title="gateway, us", form=".1f"),
                    Column(key="gateway_best_us", title="best round, us", form=".1f"),
                    Column(key="ratio", title="of the echo", form=".2f"),
                    Column(key="echo_per_s", title="echo, req/s", form=",.0f"),
                    Column(key="gateway_per_s", title="gateway, req/s", form=",.0f"),
                    Column(key="batch", title="batch", form=".1f"),
                    Column(key="errors", title="errors", form="d"),
                ),
                rows=rows,
            ),
            Table(
                title="By size of the fleet (64 connections)",
                columns=(
                    Column(key="fleet", title="replicas"),
                    Column(key="median_us", title="median, us", form=".1f"),
                    Column(key="best_us", title="best, us", form=".1f"),
                    Column(key="batch", title="requests a batch", form=".1f"),
                ),
                rows=fleet_rows,
                note="with 300 idle replicas for 64 clients batches are small: more upstream"
                " calls a request, which is what the last row shows",
            ),
            Table(
                title="Reload of 10,000 tenants",
                columns=(
                    Column(key="reload_ms", title="reload, ms", form=".1f"),
                    Column(key="pause_ms", title="longest pause, ms", form=".2f"),
                    Column(key="pause_cpu_ms", title="of it CPU, ms", form=".2f"),
                ),
                rows=reloads,
                note=f"median pause {pause_ms:.2f} ms, {pause_cpu_ms:.2f} ms of it CPU",
            ),
        ],
        charts=[figure],
        goals=goals,
        notes=[
            "wrk, the replicas, PostgreSQL and Valkey run on the same machine: requests per second"
            " say how busy it was, CPU per request is the gateway's alone.",
        ],
    )
