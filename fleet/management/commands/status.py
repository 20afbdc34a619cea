"""`manage.py status`: is the fleet serving, what is refused, who is down."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from engine.errors import InvalidInput
from fleet.dashboard import gateways
from fleet.live.merge import join
from fleet.live.state import LiveState
from fleet.management.command import FleetCommand

Row = Mapping[str, Any]


class Command(FleetCommand):
    help = (
        "The live state of the gateways, merged. Exits 1 where none answers. Gateways answer to "
        "their own machine, and elsewhere to the access token in HALCYON_TOKEN."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--gateway",
            metavar="URLS",
            default=settings.HALCYON_GATEWAY_URL,
            help=f"addresses with commas between ({settings.HALCYON_GATEWAY_URL})",
        )

    def act(self, gateway: str, **_: Any) -> None:
        urls = gateways.addresses(gateway)
        if not urls:
            raise InvalidInput("--gateway", gateway, "must name a gateway, http://host:port")
        states, silent = [], []
        for url in urls:
            try:
                states.append(state_of(url))
            except (OSError, ValueError) as error:
                silent.append(f"{url} does not answer: {error}")
        if not states:
            raise CommandError(
                "\n".join(silent) + "\nStart everything with `manage.py up`, or name a gateway "
                "with --gateway or HALCYON_GATEWAY_URL."
            )
        state = join(states)
        if self.as_json:
            self.print_json(state)
            return
        for line in (*silent, *headline(state)):
            self.stdout.write(line)
        self.show(versions_of(state), empty="no model is served")
        self.show(replicas_of(state), empty="no replica is known")


def state_of(url: str) -> LiveState:
    """What one gateway says. Raises `OSError` or `ValueError`."""
    request = urllib.request.Request(f"{url}/v1/control/state")
    token = os.environ.get("HALCYON_TOKEN")
    if token:
        request.add_header("authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=5) as answer:
        state: LiveState = json.load(answer)
        return state


def headline(state: LiveState) -> list[str]:
    """Are users served in time, and is work refused?"""
    traffic: Row = state.get("traffic") or {}
    admission: Row = state.get("admission") or {}
    refused: Mapping[str, float] = traffic.get("refusedPerS") or {}
    ratio = traffic.get("goodputRatio")
    share = "no request ended in the last 10 s" if ratio is None else f"{ratio:.1%} in time"
    lines = [
        f"served   {share}; {_number(traffic.get('offeredPerS'))}/s offered, "
        f"{_number(traffic.get('goodputPerS'))}/s in time, "
        f"{_number(traffic.get('failedPerS'))}/s failed; p95 {_number(traffic.get('p95Ms'))} ms"
    ]
    by_code = ", ".join(f"{code} {rate:.1f}/s" for code, rate in refused.items() if rate > 0)
    lines.append(f"refused  {by_code or 'nothing'}")
    lines.append(
        f"inside   {_number(admission.get('inFlight'))} in flight, "
        f"{_number(admission.get('limit'))} may be"
    )
    return lines


def versions_of(state: LiveState) -> list[dict[str, Any]]:
    return [
        {
            "model": model["model"],
            "version": version["version"],
            "arm": version["arm"] or "",
            "share": f"{version['share']:.0%}",
            "ready": version["readyReplicas"],
            "rate (/s)": _number(version["ratePerS"]),
            "errors": "-" if version["errorRatio"] is None else f"{version['errorRatio']:.1%}",
            "p95 (ms)": _number(version["p95Ms"]),
        }
        for model in _rows(state, "models")
        for version in model["versions"]
    ]


def replicas_of(state: LiveState) -> list[dict[str, Any]]:
    return [
        {
            "replica": replica["replicaId"],
            "status": replica["status"],
            "model": replica["model"],
            "version": replica["version"],
            "in flight": f"{replica['inFlight']} / {replica['ceiling']}",
            "p95 (ms)": _number(replica["p95Ms"]),
            "breaker": replica["breaker"]["state"],
            "why no traffic": replica["why"] or "",
        }
        for replica in _rows(state, "replicas")
    ]


def _rows(state: LiveState, name: str) -> Sequence[Row]:
    rows: Sequence[Row] = state.get(name) or []  # type: ignore[assignment]
    return rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
