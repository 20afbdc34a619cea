"""The engine's clock in a real process: monotonic milliseconds, and how to show them as dates.

The wall clock is read once. Window starts and usage minutes are that moment plus monotonic
time since, so a clock that steps back 30 s moves nothing and counts nothing twice. The
origin is shifted so that whole seconds of this clock are whole seconds of the wall: the
one-second windows of all gateways lie on the same grid.
"""

import time
from datetime import UTC, datetime, timedelta


class MonotonicClock:
    """`engine.clock.Clock` on the system's monotonic clock."""

    __slots__ = ("_origin_ms", "_origin_wall", "_shift_ms")

    def __init__(self) -> None:
        monotonic_ms = time.monotonic() * 1000.0
        wall = datetime.now(UTC)
        self._shift_ms = (wall.timestamp() * 1000.0 - monotonic_ms) % 1000.0
        self._origin_ms = monotonic_ms + self._shift_ms
        self._origin_wall = wall

    def now_ms(self) -> float:
        return time.monotonic() * 1000.0 + self._shift_ms

    def end(self, window_ms: float = 1000.0) -> None:
        """Jump past the open window: the last one ends with the process, not a second later."""
        self._shift_ms += window_ms

    def monotonic_s(self, at_ms: float) -> float:
        """A time of this clock on `time.monotonic`."""
        return (at_ms - self._shift_ms) / 1000.0

    def uptime_s(self) -> float:
        """Since this clock was made."""
        return (self.now_ms() - self._origin_ms) / 1000.0

    def wall(self, at_ms: float) -> datetime:
        """The date of a time of this clock."""
        return self._origin_wall + timedelta(milliseconds=at_ms - self._origin_ms)
