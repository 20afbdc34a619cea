"""What the operators' dashboard costs with a large fleet: 1,000 replicas, 50 models, 200 tenants.

    python -m bench dashboard

First paint: every page through the whole of Django's middleware, in a process of its own on
a real database with the fleet's rows and an hour of windows; the median of the rounds and
the queries of one. Live: a real web process hears a real gateway's views through Valkey, ten
viewers watch nine pages through websockets and acknowledge each message as a browser does;
the web process's CPU with them less its CPU with none is theirs. Browser: each page in
Chromium; the CPU time of its main thread's tasks over the updates that it drew.
"""

import argparse
from typing import cast

from bench.dashboard_browser import watch_in_chromium
from bench.dashboard_paint import paint_pages
from bench.dashboard_site import PAGES, DashboardSite, Size
from bench.dashboard_viewers import measure_viewers
from bench.progress import Progress
from bench.report import Column, Goal, Report, Table
from engine.errors import require_range

NAME = "dashboard"
HELP = "the dashboard with 1,000 replicas: first paint, live messages, the browser's main thread"

PAINT_MS = 300.0
QUERIES = 30
MESSAGE_KB = 60.0
WEB_CPU_MS = 20.0
MAIN_THREAD_MS = 50.0

_PAINT = (
    Column(key="page", title="page"),
    Column(key="paint_ms", title="first paint ms", form=".0f"),
    Column(key="queries", title="queries", form="d"),
    Column(key="html_kb", title="HTML KB", form=".0f"),
)
_LIVE = (
    Column(key="topic", title="topic"),
    Column(key="messages", title="deltas", form="d"),
    Column(key="mean_kb", title="mean KB", form=".1f"),
    Column(key="largest_kb", title="largest KB", form=".1f"),
    Column(key="snapshot_kb", title="snapshot KB", form=".1f"),
)
_BROWSER = (
    Column(key="page", title="page"),
    Column(key="updates", title="updates", form="d"),
    Column(key="main_thread_ms", title="main thread ms an update", form=".1f"),
    Column(key="script_ms", title="of it script ms", form=".1f"),
    Column(key="long_tasks", title="tasks over 50 ms", form="d"),
    Column(key="longest_ms", title="longest ms", form=".0f"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options beyond the common ones."""
    parser.add_argument("--replicas", type=int, default=1000, help="replicas (1000)")
    parser.add_argument("--models", type=int, default=50, help="models (50)")
    parser.add_argument("--tenants", type=int, default=200, help="tenants (200)")
    parser.add_argument("--viewers", type=int, default=10, help="live viewers (10)")
    parser.add_argument("--rounds", type=int, default=11, help="first paints of a page (11)")
    parser.add_argument("--duration", type=float, default=20.0, help="s a live measurement (20)")


def run(args: argparse.Namespace, progress: Progress) -> Report:
    """First paints, then the viewers, then Chromium."""
    require_range("--replicas", args.replicas, 1, 10_000)
    require_range("--models", args.models, 1, 1000)
    require_range("--tenants", args.tenants, 1, 10_000)
    require_range("--viewers", args.viewers, 1, 1000)
    require_range("--rounds", args.rounds, 1, 1000)
    require_range("--duration", args.duration, 2, 3600)
    size = Size(replicas=args.replicas, models=args.models, tenants=args.tenants)
    steps = 2 * len(PAGES) + 2
    with progress.task("servers and rows", total=steps) as task, DashboardSite(size) as site:
        task.advance()
        paints = paint_pages(site, args.rounds, task)
        task.say("live viewers")
        with site.serving():
            live = measure_viewers(site, args.viewers, args.duration)
            task.advance()
            browser = watch_in_chromium(site, args.duration, task)
    return Report(
        name=NAME,
        title="The operators' dashboard with a large fleet",
        summary=(
            f"{args.replicas} replicas, {args.models} models, {args.tenants} tenants; "
            f"{args.viewers} viewers. A played gateway, everything else real."
        ),
        rows=[*paints, *live.rows, *browser],
        tables=[
            Table(title="First paint, in the web process", columns=_PAINT, rows=paints),
            Table(
                title="Live messages",
                columns=_LIVE,
                rows=live.rows,
                note=(
                    f"Web CPU a tick: {live.idle_ms:.1f} ms without a viewer (unpacking and "
                    f"merging the gateway's view), {live.busy_ms:.1f} ms with {args.viewers}."
                ),
            ),
            Table(title="Chromium", columns=_BROWSER, rows=browser),
        ],
        goals=[
            _worst("slowest first paint, ms", paints, "paint_ms", PAINT_MS),
            _worst("most queries of a page", paints, "queries", QUERIES),
            _worst("largest live message, KB", live.rows, "largest_kb", MESSAGE_KB),
            Goal(
                name="web CPU a tick for 10 viewers, ms",
                measured=(live.busy_ms - live.idle_ms) * 10 / args.viewers,
                at_most=WEB_CPU_MS,
            ),
            _worst("main thread an update, ms", browser, "main_thread_ms", MAIN_THREAD_MS),
        ],
        notes=[
            "A live message is a delta; a fresh page's snapshot is listed beside it.",
            "Load generator, database and browser share the machine's cores.",
        ],
    )


def _worst(name: str, rows: list[dict[str, object]], key: str, at_most: float) -> Goal:
    measured = [cast("float", row[key]) for row in rows if row.get(key) is not None]
    complete = measured if len(measured) == len(rows) else []
    return Goal(name=name, measured=max(complete, default=None), at_most=at_most)
