"""Time as the engine sees it: milliseconds on a monotonic scale, always passed in.

Wall-clock time never enters the engine, so a clock that steps back changes nothing.
Functions take `now_ms`; only objects that own a whole conversation take a `Clock`.
"""

from typing import Protocol


class Clock(Protocol):
    """A monotonic clock in milliseconds. Its origin is arbitrary."""

    def now_ms(self) -> float: ...


class ManualClock:
    """A clock that moves only when told to: the clock of tests and of the simulator."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: float = 0.0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> float:
        return self._now_ms

    def advance(self, by_ms: float) -> float:
        """Move forward by `by_ms` >= 0 and return the new time."""
        if by_ms < 0:
            raise ValueError(f"by_ms={by_ms}: a monotonic clock cannot go back")
        self._now_ms += by_ms
        return self._now_ms

    def set(self, now_ms: float) -> None:
        """Jump to `now_ms`, which must not lie in the past."""
        if now_ms < self._now_ms:
            raise ValueError(f"now_ms={now_ms}: a monotonic clock cannot go back")
        self._now_ms = now_ms  # not by a difference: rounding would overshoot the next event
