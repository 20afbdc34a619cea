"""What one tick of the worker costs that judges a hundred rollouts, the database counted.

    python -m bench tick

PostgreSQL is real, each rollout has an hour of judged windows behind it and two gateways'
rows to sum, and every verdict is committed with its decision's row. Two kinds of ticks: all
rollouts due at once (started in the same second, or after a worker was away), and the usual
one, where windows of 30 s fall due at beats of 2 s. The goal for the judge is about its own
part; for the whole tick it is that it ends before the next one begins.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.children import apart
from bench.progress import Progress
from bench.report import Column, Goal, Report, Table
from engine.errors import require_range

NAME = "tick"
HELP = "a worker's tick over a hundred rollouts, with the database"

ROOT = Path(__file__).resolve().parents[1]
BEAT_MS = 2000.0
JUDGE_MS = 50.0

_COLUMNS = (
    Column(key="due", title="rollouts due", form="d"),
    Column(key="judge_ms", title="judge, ms", form=".1f"),
    Column(key="cpu_ms", title="worker's processor time, ms", form=".0f"),
    Column(key="wall_ms", title="whole tick, ms", form=".0f"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options beyond the common ones."""
    parser.add_argument("--rollouts", type=int, default=100, help="under way (100)")


def run(args: argparse.Namespace, progress: Progress) -> Report:
    """Fill a database, then tick."""
    require_range("--rollouts", args.rollouts, 1, 1000)
    with progress.task("tick", total=1) as task:
        rows = _ticks(args.rollouts)
        task.advance()
    *at_once, usual = rows
    best = min(at_once, key=lambda row: row["wall_ms"])
    return Report(
        name=NAME,
        title=f"A tick over {args.rollouts} rollouts",
        summary="Windows of 30 s, 60 of them judged before, two gateways, PostgreSQL included.",
        notes=[
            "The last row is the usual tick: beats of 2 s, each rollout due every 30 s.",
            "Every rollout is judged in a transaction of its own, so a slow tick delays a "
            "verdict and loses none; the beat after it takes up what is still due.",
        ],
        rows=list(rows),
        goals=[
            Goal(
                name=f"judging {args.rollouts} rollouts, ms a tick",
                measured=min(row["judge_ms"] for row in at_once),
                at_most=JUDGE_MS,
            ),
            Goal(name="the usual tick, ms", measured=usual["wall_ms"], at_most=BEAT_MS),
        ],
        tables=[Table(title="Ticks", columns=_COLUMNS, rows=list(rows))],
        extra={"all_at_once_ms": best["wall_ms"]},
    )


def _ticks(rollouts: int) -> list[dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="halcyon-bench-tick-") as directory:
        environment = {**apart(Path(directory) / "var"), "HALCYON_SECRET_KEY": "only-for-a-bench"}
        environment |= {"HALCYON_LOG_LEVEL": "ERROR", "PYTHONPATH": str(ROOT)}
        services = subprocess.Popen(
            [sys.executable, "-m", "bench.dashboard_rows", "serve"],
            env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert services.stdout is not None
            if services.stdout.readline().strip() != b"ready":
                raise RuntimeError("PostgreSQL and Valkey did not start")
            done = subprocess.run(
                [sys.executable, "-m", "bench.tick_rows", "--rollouts", str(rollouts)],
                env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
        finally:
            assert services.stdin is not None
            services.stdin.close()  # it ends its servers, then itself
            services.wait()
    if done.returncode:
        raise RuntimeError(f"the ticks failed:\n{done.stderr[-3000:]}")
    found: list[dict[str, float]] = json.loads(done.stdout)
    return found
