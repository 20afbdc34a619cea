"""What `up` shows: on a terminal a table that lives, elsewhere a line for each change."""

import time
from contextlib import suppress
from typing import Any, TextIO

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from halcyon_site.supervisor.plan import Ports
from halcyon_site.supervisor.supervisor import Supervisor
from halcyon_site.supervisor.traffic import Traffic

COLOURS = {"ready": "green", "starting": "yellow", "restarting": "red", "stopped": "dim"}
LINE_EVERY_S = 10.0


def traffic_line(traffic: Traffic | None) -> str:
    if traffic is None:
        return "no load"
    tally = traffic.tally
    if not tally.offered:
        return "waiting for the first answers"
    p95 = tally.latency.quantile(0.95)
    shown = "–" if p95 is None else f"{p95:.0f} ms"
    refused = tally.offered - tally.succeeded
    return (
        f"light load: {tally.offered:,} sent, {tally.succeeded:,} served, "
        f"{refused:,} not served, p95 {shown}"
    )


def welcome(
    ports: Ports, passwords: dict[str, str | None], keys: dict[str, str], model: str | None
) -> tuple[Table, list[str]]:
    """Addresses, accounts and keys; and three commands to try."""
    urls = Table(box=box.SIMPLE_HEAD, title="Halcyon is up", title_justify="left")
    urls.add_column("what")
    urls.add_column("where", overflow="fold")
    for what, where in (
        ("dashboard", ports.web_url),
        ("admin", f"{ports.web_url}/admin/"),
        ("control API", f"{ports.web_url}/api/docs/"),
        ("gateway", f"{ports.gateway_url}/v1/infer"),
        ("metrics", f"{ports.gateway_url}/metrics"),
    ):
        urls.add_row(what, where)
    for name, password in passwords.items():
        urls.add_row(f"sign in as {name}", password or "(the password was changed)")
    for name, key in keys.items():
        urls.add_row(f"key of {name}", key)
    key = next(iter(keys.values()), "YOUR_KEY")
    chosen = model or "MODEL"
    head = f'-H "x-api-key: {key}" -H "content-type: application/json"'
    commands = [
        f"curl -s {ports.gateway_url}/v1/infer {head} "
        f"""-d '{{"model": "{chosen}", "input": "Hello there"}}'""",
        f"curl -s {ports.gateway_url}/v1/quote {head} "
        f"""-d '{{"model": "{chosen}", "promptTokens": 400, "deadlineMs": 250}}'""",
        f"curl -s {ports.gateway_url}/v1/chat/completions {head} "
        f"""-d '{{"model": "{chosen}", "messages": [{{"role": "user", "content": "Hi"}}]}}'""",
    ]
    return urls, ["Try:", *(f"  {line}" for line in commands)]


class Screen:
    """Shows the supervisor's state until closed. `quiet` shows nothing at all.

    A terminal that is gone is no reason to leave anything running: what cannot be shown is not.
    """

    def __init__(self, output: TextIO, *, quiet: bool) -> None:
        self._is_terminal = output.isatty()
        self.console = Console(file=output, quiet=quiet, highlight=False)
        self._live: Live | None = None
        self._shown: dict[str, str] = {}
        self._last_line_s = 0.0

    def say(self, sentence: str) -> None:
        with suppress(OSError):
            self.console.print(sentence, markup=False, soft_wrap=True)

    def show(self, supervisor: Supervisor, traffic: Traffic | None, *, serving: bool) -> None:
        if self._is_terminal and not self.console.quiet:
            with suppress(OSError):
                if self._live is None:
                    self._live = Live(console=self.console, auto_refresh=False, transient=True)
                    self._live.start()
                self._live.update(self._table(supervisor, traffic), refresh=True)
        else:
            self._lines(supervisor, traffic, serving)

    def close(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with suppress(OSError):
                live.stop()

    def _table(self, supervisor: Supervisor, traffic: Traffic | None) -> Group:
        table = Table(box=box.SIMPLE_HEAD)
        for name, justify in (("process", "left"), ("state", "left"), ("pid", "right")):
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
        for name in ("port", "restarts", "up"):
            table.add_column(name, justify="right")
        for child in supervisor.children:
            table.add_row(
                child.plan.name,
                Text(child.state, style=COLOURS[child.state]),
                str(child.pid or "–"),
                str(child.plan.port or "–"),
                str(child.restarts),
                "–" if child.uptime_s is None else f"{child.uptime_s:.0f} s",
            )
        return Group(table, Text(f"{traffic_line(traffic)}; Ctrl-C stops everything"))

    def _lines(self, supervisor: Supervisor, traffic: Traffic | None, serving: bool) -> None:
        now_s = time.monotonic()
        for child in supervisor.children:
            if self._shown.get(child.plan.name, "stopped") != child.state:
                self._shown[child.plan.name] = child.state
                code = child.exit_code
                why = f" (it ended with code {code})" if child.state == "restarting" else ""
                self.say(f"{child.plan.name}: {child.state}{why}")
        if serving and now_s - self._last_line_s >= LINE_EVERY_S:
            self._last_line_s = now_s
            self.say(traffic_line(traffic))


def summary(
    supervisor: Supervisor,
    traffic: Traffic | None,
    *,
    ok: bool,
    started_s: float,
    ran_s: float,
    ports: Ports,
    keys: dict[str, str],
    error: str | None = None,
) -> dict[str, Any]:
    """What `--json` prints at the end."""
    return {
        "ok": ok,
        "error": error,
        "startedInS": round(started_s, 2),
        "ranS": round(ran_s, 2),
        "urls": {"web": ports.web_url, "gateway": ports.gateway_url},
        "keys": keys,
        "processes": supervisor.summary(),
        "serviceRestarts": supervisor.service_restarts,
        "traffic": traffic.tally.summary(max(ran_s, 1e-9)) if traffic else None,
    }
