"""The decision feed: what breakers, splits, limits and hedges did, newest first.

Gateways repeat their recent events in every view, with ages. The feed keeps each event once,
with the wall-clock time at which it happened, so that a line on the page never moves and its
permalink stays valid for as long as it is remembered.
"""

import zlib
from collections import OrderedDict
from typing import Any, TypedDict

REMEMBERED = 200


class FeedLine(TypedDict):
    id: str
    atMs: int  # Unix time in milliseconds
    gateway: str
    kind: str
    subject: str
    text: str
    numbers: dict[str, Any]


class Feed:
    """The last events of all gateways. Fed by the listener, read by pages."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, FeedLine] = OrderedDict()

    def absorb(self, gateway: str, view: dict[str, Any], now_ms: float) -> int:
        """Keep the events that are new. Returns how many were."""
        started = (view.get("gateway") or {}).get("startedAt")
        origin = f"{zlib.crc32(f'{gateway} {started}'.encode()):08x}"  # a restart counts anew
        fresh = 0
        for event in view.get("events") or ():
            line_id = f"{origin}-{event['seq']}"
            if line_id in self._lines:
                continue
            fresh += 1
            self._lines[line_id] = {
                "id": line_id,
                "atMs": round(now_ms - event["atMs"]),
                "gateway": gateway,
                "kind": event["kind"],
                "subject": event["subject"],
                "text": event["text"],
                "numbers": event.get("numbers") or {},
            }
        while len(self._lines) > REMEMBERED:
            self._lines.popitem(last=False)
        return fresh

    def newest(self, limit: int = 30, subject: str | None = None) -> list[FeedLine]:
        """The newest lines, of one subject where it is given."""
        known = list(self._lines.values())  # one step, so that a reader in a thread is safe
        lines = (line for line in known if subject is None or subject in line["subject"])
        return sorted(lines, key=lambda line: (-line["atMs"], line["id"]))[:limit]
