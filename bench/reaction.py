"""From the verdict that rolls back to the last request that still meets the canary.

    python -m bench reaction

A whole system from `manage.py up` with a second gateway; traffic goes to both in turn. The
failing canary of `manage.py verify_rollout` is rolled back again and again, each time on a
fresh stage. The clock starts when Celery's tick begins to judge, and ends when the last
request that the canary answered was sent: decision, commit, notice and both gateways are in
it. How often Celery ticks is not: a verdict waits for its tick before the clock starts, so
the goal allows one beat and one second beyond.
"""

import argparse
import math

from bench.progress import Progress
from bench.report import Column, Goal, Report, Table
from bench.two_gateways import two_gateways
from engine.errors import require_range

NAME = "reaction"
HELP = "from a rollback's verdict to the canary's last request, with two gateways"

BEAT_S = 2.0
BEYOND_S = 1.0
SHORT = ("--steps", "50,100")

_COLUMNS = (
    Column(key="run", title="run", form="d"),
    Column(key="last", title="verdict"),
    Column(key="windows", title="windows", form="d"),
    Column(key="reactionS", title="last canary request after, s", form=".2f"),
    Column(key="answered", title="answered", form=".2%"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options beyond the common ones."""
    parser.add_argument("--runs", type=int, default=5, help="rollbacks (5)")


def run(args: argparse.Namespace, progress: Progress) -> Report:
    """Roll back `runs` times on one system."""
    require_range("--runs", args.runs, 1, 100)
    rows: list[dict[str, object]] = []
    problems: list[str] = []
    with (
        progress.task("reaction", total=args.runs) as task,
        two_gateways({"HALCYON_WARM_UP_S": "12"}) as stack,
    ):
        for number in range(args.runs):
            code, scenes, said = stack.verify("--only", "failing", *SHORT)
            rows += [{"run": number + 1, **scene} for scene in scenes]
            if code:
                problems.append(f"run {number + 1} ended with {code} {said.strip()}".rstrip())
            task.advance()
    reactions = [float(row["reactionS"]) for row in rows if row["reactionS"] is not None]  # type: ignore[arg-type]
    whole = len(reactions) == args.runs
    return Report(
        name=NAME,
        title="From a verdict to the canary's last request",
        summary="A failing canary rolled back again and again; two gateways, one beat of 2 s.",
        notes=[
            "Two gateways, one PostgreSQL, one Valkey, Celery worker and beat: all real.",
            *problems,
        ],
        rows=rows,
        goals=[
            Goal(
                name="worst reaction, s",
                measured=max(reactions) if whole else math.nan,
                at_most=BEAT_S + BEYOND_S,
            )
        ],
        tables=[Table(title="Reaction", columns=_COLUMNS, rows=rows)],
    )
