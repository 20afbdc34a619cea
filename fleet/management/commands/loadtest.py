"""`manage.py loadtest`: send a gateway traffic and say what came of it."""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from engine.errors import InvalidInput, require_positive, require_range
from fleet.fleet_file.keys import demo_key
from fleet.loadtest import report
from fleet.loadtest.loops import closed_loop, open_loop
from fleet.loadtest.pattern import BURST_BASE_PER_S, PATTERNS, Pattern
from fleet.loadtest.sender import Sender
from fleet.loadtest.tally import Tally
from fleet.loadtest.workload import BENCHMARK_DEADLINES, Deadlines, Workload, size_bounds
from fleet.management.command import FleetCommand

DEFAULT_CLIENTS = 32
CLOSED_DEADLINE = "2000"
TICK_S = 0.25
NOBODY = (
    "no answer from {url}: is a gateway running there? "
    "Start everything with `manage.py up`, or name one with --url."
)


class Command(FleetCommand):
    help = (
        "Send a gateway traffic: a closed loop of --clients, or an open loop at --rate "
        "(Poisson, with the benchmark's sizes and deadlines). Exits 1 under --min-success."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", default=settings.HALCYON_GATEWAY_URL, help="the gateway")
        parser.add_argument(
            "--key", help="API key (HALCYON_KEY, else the demo tenant's of this installation)"
        )
        parser.add_argument("--model", default="llama-3-8b")
        loop = parser.add_mutually_exclusive_group()
        loop.add_argument("--clients", type=int, help=f"closed loop ({DEFAULT_CLIENTS})")
        loop.add_argument("--rate", type=float, help="open loop, requests per second")
        parser.add_argument(
            "--pattern",
            choices=PATTERNS,
            default="steady",
            help="burst: 20 -> 150 -> 20 per s, or 7.5 x --rate in the middle third;"
            " longtail: wider sizes of the same mean",
        )
        parser.add_argument("--duration", type=float, default=20.0, metavar="S", help="(20)")
        parser.add_argument(
            "--deadline",
            metavar="MS[:SHARE,MS:SHARE]",
            help=f"closed loop {CLOSED_DEADLINE}, open loop {BENCHMARK_DEADLINES}",
        )
        parser.add_argument(
            "--sentences",
            action="store_true",
            help="texts of real words, 4 to 256 of them (for embedding models)",
        )
        parser.add_argument("--tokens", type=int, help="all requests of this size")
        parser.add_argument("--max-output-tokens", type=int, default=16)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--csv", type=Path, metavar="FILE", help="every request")
        parser.add_argument("--plot", type=Path, metavar="FILE.html", help="a page with charts")
        parser.add_argument(
            "--min-success",
            type=float,
            metavar="RATIO",
            help="exit 1 where fewer succeed, e.g. 1 or 0.99",
        )

    def act(self, **options: Any) -> None:
        for name in ("csv", "plot"):
            target: Path | None = options[name]
            if target is not None and not target.parent.is_dir():
                raise InvalidInput(f"--{name}", str(target), "its folder does not exist")
        if options["min_success"] is not None:
            require_range("--min-success", options["min_success"], 0.0, 1.0)
        require_positive("--duration", options["duration"], unit="s")
        if options["clients"] is not None:
            require_range("--clients", options["clients"], 1, 10_000)
        if options["tokens"] is not None:
            require_range("--tokens", options["tokens"], *size_bounds(options["sentences"]))
        tally = Tally(keep=options["csv"] is not None)
        took_s = asyncio.run(self._run(tally, options))
        summary = tally.summary(took_s)
        command = {
            name: options[name]
            for name in ("url", "model", "clients", "rate", "pattern", "deadline", "seed")
        }
        if options["csv"] is not None:
            report.write_csv(options["csv"], tally.endings or [])
        if options["plot"] is not None:
            report.write_page(options["plot"], tally, f"loadtest of {options['model']}")
        if self.as_json:
            self.print_json({"arguments": command, **summary})
        elif tally.offered:
            self.console().print(report.table(summary))
        if tally.offered and tally.codes["no_answer"] == tally.offered:
            raise CommandError(NOBODY.format(url=options["url"]))
        self._require(options["min_success"], tally)

    def _require(self, least: float | None, tally: Tally) -> None:
        if least is None:
            return
        ratio = tally.success_ratio
        if ratio is None or ratio < least:
            shown = "nothing was sent" if ratio is None else f"{ratio:.4f} succeeded"
            raise CommandError(f"{shown}, --min-success is {least:g}")

    async def _run(self, tally: Tally, options: dict[str, Any]) -> float:
        is_open = options["rate"] is not None or options["pattern"] == "burst"
        rate = BURST_BASE_PER_S if options["rate"] is None else options["rate"]
        pattern = Pattern(options["pattern"], rate, options["duration"])
        clients = DEFAULT_CLIENTS if options["clients"] is None else options["clients"]
        default = BENCHMARK_DEADLINES if is_open else CLOSED_DEADLINE
        workload = Workload(
            options["model"],
            Deadlines.parse(options["deadline"] or default),
            seed=options["seed"],
            sentences=options["sentences"],
            longtail=options["pattern"] == "longtail",
            max_output_tokens=options["max_output_tokens"],
            tokens=options["tokens"],
        )
        key = options["key"] or os.environ.get("HALCYON_KEY") or demo_key("demo", "main").text
        await _require_somebody(options["url"])
        async with Sender(options["url"], key) as sender:
            if is_open:
                loop = open_loop(sender, workload, tally.record, pattern, seed=options["seed"])
            else:
                loop = closed_loop(
                    sender,
                    workload,
                    tally.record,
                    clients=clients,
                    duration_s=options["duration"],
                )
            started_s = time.monotonic()
            await self._with_progress(loop, tally, options["duration"])
            return min(time.monotonic() - started_s, float(options["duration"]))

    async def _with_progress(self, loop: Any, tally: Tally, duration_s: float) -> None:
        task = asyncio.create_task(loop)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[seen]}"),
            disable=self.as_json or not self.stderr.isatty(),
            transient=True,
        )
        with progress:
            bar = progress.add_task("sending", total=duration_s, seen="")
            started_s = time.monotonic()
            while not task.done():
                await asyncio.wait({task}, timeout=TICK_S)
                elapsed_s = time.monotonic() - started_s
                seen = f"{tally.succeeded:,} of {tally.offered:,} ok"
                progress.update(bar, completed=min(elapsed_s, duration_s), seen=seen)
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _require_somebody(url: str) -> None:
    """Fail at once where nobody listens, instead of after `--duration`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        host, port = None, 0
    if not host or parts.scheme not in {"http", "https"}:
        raise InvalidInput("--url", url, "must be http://host:port")
    try:
        async with asyncio.timeout(5.0):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:  # TimeoutError is one
        raise CommandError(NOBODY.format(url=url)) from None
    writer.close()
