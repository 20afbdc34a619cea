"""The figures of a running system, measured at its clients.

    python -m bench live

Closed loop: 32 clients on the demonstration's fleet (v1, v1 at 0.6, v2 at 1.4) for 20 s, on
fresh stacks in a row, then once more after 45 s of light traffic. Open loop: one simulated
device, Poisson arrivals with the benchmark's sizes and deadlines at 150, 200 and 260 per
second; the same seed gives the same requests. The device is simulated, everything else is
real: processes, sockets, PostgreSQL, Valkey, and the load generator on the same cores.

Embedding: a real encoder under 16 clients with sentences of mixed lengths, beside two plain
servers of the same encoder (`live_encoders`), all running while one is asked at a time.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.live_stack import ROOT, LiveStack
from bench.ports import free_ports
from bench.progress import Progress, Task
from bench.report import Column, Goal, Report, Table
from engine.errors import require_range

NAME = "live"
HELP = "a whole system from `manage.py up`, closed and open loop, measured at the clients"

DEMO = Path(__file__).resolve().parents[1] / "fleet" / "demo.yaml"
ONE_DEVICE = """
models:
  llama-3-8b: {versions: [v1], sloMs: 900, split: {baseline: v1}}
replicas:
  - {id: device, model: llama-3-8b, version: v1, runtime: simulated, speed: 1, seed: 1}
tenants:
  demo: {priority: high, keys: [main]}
"""
CLIENTS = 32
CLOSED_AT_LEAST_PER_S = 230.0
LIGHT_S = 45.0
OPEN_GOALS_PER_S = {150: 145.0, 200: 182.0, 260: 215.0}
MOSEC_PER_S = {150: 121.0, 200: 142.0, 260: 45.0}
ENCODER = """
models:
  minilm: {versions: [v1], sloMs: 900, split: {baseline: v1}}
replicas:
  - {id: encoder, model: minilm, version: v1, runtime: embedding, maxBatchSize: 16}
tenants:
  demo: {priority: high, keys: [main]}
"""
ENCODER_CLIENTS = 16
ENCODER_DEADLINES = "120:0.3,900:0.7"  # the benchmark's
OF_SINGLE_AT_LEAST, OF_PADDED_AT_LEAST = 1.3, 3.0
ENCODER_TURNS = 3
WARM_S = 5.0

_CLOSED = (
    Column(key="stack", title="stack"),
    Column(key="started_s", title="up after, s", form=".1f"),
    Column(key="per_s", title="req/s", form=".1f"),
    Column(key="success_ratio", title="success", form=".2%"),
    Column(key="p50_ms", title="p50 ms", form=".0f"),
    Column(key="p95_ms", title="p95 ms", form=".0f"),
    Column(key="mean_batch", title="batch", form=".1f"),
)
_OPEN = (
    Column(key="rate", title="offered/s", form="d"),
    Column(key="goodput_per_s", title="goodput/s", form=".1f"),
    Column(key="mosec_per_s", title="Mosec", form=".0f"),
    Column(key="urgent_ratio", title="urgent", form=".1%"),
    Column(key="relaxed_ratio", title="relaxed", form=".1%"),
    Column(key="p95_ms", title="p95 ms", form=".0f"),
    Column(key="mean_batch", title="batch", form=".1f"),
)
_EMBEDDING = (
    Column(key="server", title="server"),
    Column(key="goodput_per_s", title="goodput/s", form=".1f"),
    Column(key="per_s", title="req/s", form=".1f"),
    Column(key="urgent_ratio", title="urgent", form=".1%"),
    Column(key="relaxed_ratio", title="relaxed", form=".1%"),
    Column(key="p95_ms", title="p95 ms", form=".0f"),
    Column(key="mean_batch", title="batch", form=".1f"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options beyond the common ones."""
    parser.add_argument("--stacks", type=int, default=10, help="fresh stacks in a row (10)")
    parser.add_argument("--duration", type=float, default=20.0, help="seconds a run (20)")
    parser.add_argument("--open-duration", type=float, default=60.0, help="open loop, s (60)")


def run(args: argparse.Namespace, progress: Progress) -> Report:
    """Every stack, then the one with light traffic before, the open loop, the encoders."""
    require_range("--stacks", args.stacks, 1, 100)
    steps = args.stacks + 1 + len(OPEN_GOALS_PER_S) + 1
    with progress.task("live", total=steps) as task:
        closed = [_closed(args, task, f"fresh {n + 1}") for n in range(args.stacks)]
        closed.append(_closed(args, task, "after 45 s of light traffic", light=True))
        opened = _open(args, task)
        embedded = _embedding(args, task)
    ours, single, padded = (_number(row, "goodput_per_s") for row in embedded)
    return Report(
        name=NAME,
        title="A running system, measured at its clients",
        summary="Closed loop: 32 clients on the demonstration's fleet. Open loop: one device."
        " Embedding: a real encoder beside two plain servers of it.",
        rows=[*closed, *opened, *embedded],
        tables=[
            Table(title="Closed loop, 32 clients", columns=_CLOSED, rows=closed),
            Table(
                title="Open loop, one simulated device",
                columns=_OPEN,
                rows=opened,
                note="Mosec on the same device is a published figure, not measured here.",
            ),
            Table(
                title="A real encoder, 16 clients, sentences of mixed lengths",
                columns=_EMBEDDING,
                rows=embedded,
                note="The plain servers have no gateway before them and check nothing.",
            ),
        ],
        goals=[
            Goal(
                name="slowest closed-loop run, req/s",
                measured=min(_number(row, "per_s") for row in closed),
                at_least=CLOSED_AT_LEAST_PER_S,
            ),
            Goal(
                name="least success in a closed-loop run",
                measured=min(_number(row, "success_ratio") for row in closed),
                at_least=1.0,
            ),
            *(
                Goal(
                    name=f"goodput/s of {row['rate']} offered/s",
                    measured=_number(row, "goodput_per_s"),
                    at_least=OPEN_GOALS_PER_S[int(_number(row, "rate"))],
                )
                for row in opened
            ),
            Goal(
                name="embedding: goodput of one text at a time",
                measured=ours / single,
                at_least=OF_SINGLE_AT_LEAST,
            ),
            Goal(
                name="embedding: goodput of padded batches of 16",
                measured=ours / padded,
                at_least=OF_PADDED_AT_LEAST,
            ),
        ],
        notes=["The load generator runs on the machine that it loads."],
    )


def _closed(
    args: argparse.Namespace, task: Task, name: str, *, light: bool = False
) -> dict[str, object]:
    task.say(f"closed loop, {name}")
    with LiveStack(DEMO, with_load=light) as stack:
        if light:
            time.sleep(LIGHT_S)
        seen = stack.loadtest(
            *("--clients", str(CLIENTS), "--duration", str(args.duration)),
            *("--seed", str(args.seed)),
        )
        started_s = stack.started_in_s
    task.advance()
    return {
        "stack": name,
        "started_s": started_s,
        "per_s": seen["throughputPerS"],
        "success_ratio": seen["successRatio"],
        "p50_ms": seen["p50Ms"],
        "p95_ms": seen["p95Ms"],
        "mean_batch": seen["meanBatch"],
        "codes": seen["codes"],
    }


def _open(args: argparse.Namespace, task: Task) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for rate in OPEN_GOALS_PER_S:
        task.say(f"open loop, {rate}/s")
        with LiveStack(ONE_DEVICE) as stack:
            stack.loadtest("--clients", "8", "--duration", str(WARM_S))
            seen = stack.loadtest(
                *("--rate", str(rate), "--duration", str(args.open_duration)),
                *("--seed", str(args.seed)),
            )
        attained = seen["attainment"]
        rows.append(
            {
                "rate": rate,
                "goodput_per_s": seen["goodputPerS"],
                "mosec_per_s": MOSEC_PER_S[rate],
                "urgent_ratio": attained.get("120"),
                "relaxed_ratio": attained.get("900"),
                "p95_ms": seen["p95Ms"],
                "mean_batch": seen["meanBatch"],
                "codes": seen["codes"],
            }
        )
        task.advance()
    return rows


def _embedding(args: argparse.Namespace, task: Task) -> list[dict[str, object]]:
    """Each server in turn, several times; the median of its goodputs counts."""
    found: dict[str, list[dict[str, Any]]] = {}
    with LiveStack(ENCODER) as stack, _encoders() as url:
        servers = {
            "halcyon": [],
            "one at a time": ["--url", f"{url}/single"],
            "padded batches of 16": ["--url", f"{url}/padded"],
        }
        for turn in range(ENCODER_TURNS + 1):
            for name, where in servers.items():
                task.say(f"embedding, {name}")
                seconds = args.duration if turn else WARM_S
                seen = stack.loadtest(
                    *("--model", "minilm", "--sentences", "--clients", str(ENCODER_CLIENTS)),
                    *("--deadline", ENCODER_DEADLINES, "--duration", str(seconds)),
                    *("--seed", str(args.seed + turn), *where),
                )
                if turn:
                    found.setdefault(name, []).append(seen)
    task.advance()
    return [_encoder_row(name, runs) for name, runs in found.items()]


def _encoder_row(name: str, runs: list[dict[str, Any]]) -> dict[str, object]:
    seen = sorted(runs, key=lambda run: float(run["goodputPerS"]))[len(runs) // 2]
    return {
        "server": name,
        "goodput_per_s": seen["goodputPerS"],
        "per_s": seen["throughputPerS"],
        "urgent_ratio": seen["attainment"].get("120"),
        "relaxed_ratio": seen["attainment"].get("900"),
        "p95_ms": seen["p95Ms"],
        "mean_batch": seen["meanBatch"],
        "codes": seen["codes"],
    }


@contextmanager
def _encoders() -> Iterator[str]:
    """The plain servers; their address."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "bench.live_encoders", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(15)


def _number(row: dict[str, object], name: str) -> float:
    value = row[name]
    return float(value) if isinstance(value, int | float) else float("nan")
