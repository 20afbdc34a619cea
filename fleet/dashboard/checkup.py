"""The doctor's findings for a page that must not wait for them.

The doctor asks every replica and may wait seconds for those that hang; a page is painted in
milliseconds. So an examination runs in a thread of its own, one at a time, and a page shows
the last one with its age. The first page waits `PATIENCE_S`, which a healthy fleet needs less
than, and says otherwise that the examination is under way.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from django.db import close_old_connections, connections
from django.utils import timezone

from fleet.doctor import Finding, examine

PATIENCE_S = 0.15
FRESH_S = 5.0

log = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class Seen:
    """What is known now: nothing before the first examination has ended."""

    findings: list[Finding]
    at_ms: int | None
    under_way: bool


class Checkup:
    """The last examination of this web process, and the one under way."""

    def __init__(
        self, examine: Callable[[], list[Finding]] = examine, *, patience_s: float = PATIENCE_S
    ) -> None:
        self.examine = examine
        self.patience_s = patience_s
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._findings: list[Finding] = []
        self._at_ms: int | None = None

    def look(self) -> Seen:
        """Begin an examination unless one is under way or fresh; wait for it a moment."""
        with self._lock:
            busy = self._thread is not None and self._thread.is_alive()
            fresh = self._at_ms is not None and _now_ms() - self._at_ms < FRESH_S * 1000
            if not busy and not fresh:
                self._thread = threading.Thread(
                    target=self._run, name="halcyon-doctor", daemon=True
                )
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(self.patience_s)
        return Seen(self._findings, self._at_ms, thread is not None and thread.is_alive())

    def _run(self) -> None:
        close_old_connections()
        try:
            self._findings = self.examine()
        except Exception as error:
            log.exception("the doctor fell ill")
            self._findings = [
                Finding(
                    "doctor",
                    "unknown",
                    f"could not finish: {error}",
                    "Nothing is known of the rest.",
                    "Run `manage.py doctor`, and look at this web process's log.",
                )
            ]
        finally:
            self._at_ms = _now_ms()
            connections.close_all()


def _now_ms() -> int:
    return round(timezone.now().timestamp() * 1000)


checkup = Checkup()
