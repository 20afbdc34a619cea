"""What a web process knows of the fleet: the latest view of each gateway, and its age.

One store per process, fed by the listener, read by pages, by the control API and by the
websockets. Reading merges at most once per change and second, however many readers there are.
A gateway that says farewell is forgotten at once; one that falls silent is kept, greyed,
for `FORGET_AFTER_S`.

The clock is monotonic and injected: a step of the wall clock ages nothing.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleet.live.merge import AgedView, merge
from fleet.live.state import LiveState

FORGET_AFTER_S = 600.0
REUSE_MERGE_S = 0.5  # ages are part of the state, so even an unchanged merge grows old


@dataclass(slots=True)
class _Heard:
    seq: int
    at_s: float
    view: dict[str, Any]


class LiveStore:
    """The latest view per gateway. Safe to read from request threads."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._heard: dict[str, _Heard] = {}
        self._lock = threading.Lock()
        self._version = 0
        self._merged: tuple[int, float, LiveState] | None = None

    @property
    def version(self) -> int:
        """Grows with everything heard: a cheap "has anything changed"."""
        return self._version

    def put(self, gateway: str, seq: int, view: dict[str, Any]) -> None:
        """Keep a gateway's newest view."""
        with self._lock:
            self._heard[gateway] = _Heard(seq, self._monotonic_s(), view)
            self._version += 1

    def forget(self, gateway: str) -> None:
        """Drop a gateway that stopped on purpose."""
        with self._lock:
            self._heard.pop(gateway, None)
            self._version += 1

    def views(self) -> list[AgedView]:
        """Every gateway's latest view with its age, the long silent ones left out."""
        with self._lock:
            now_s = self._monotonic_s()
            for gateway in [g for g, h in self._heard.items() if now_s - h.at_s > FORGET_AFTER_S]:
                del self._heard[gateway]
            return [
                AgedView(gateway=gateway, seq=heard.seq, age_s=now_s - heard.at_s, view=heard.view)
                for gateway, heard in self._heard.items()
            ]

    def state(self) -> LiveState:
        """The merged state. Treat as read-only: readers share it."""
        now_s = self._monotonic_s()
        cached = self._merged
        if cached and cached[0] == self._version and now_s - cached[1] < REUSE_MERGE_S:
            return cached[2]
        version = self._version
        state = merge(self.views())
        self._merged = (version, now_s, state)
        return state


store = LiveStore()
