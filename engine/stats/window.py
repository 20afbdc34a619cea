"""What happened lately: counts and quantiles over the last so many seconds.

A window of `width_ms` is cut into `slots`; time falls into the slot `now // slot width`, and
a slot is wiped when its turn comes round again. So a rotating window covers the last
(slots - 1) to slots slot widths, costs O(1) to feed, and forgets on its own when nothing
comes. A window of the last N *samples* does not: after an incident it shows the incident for
as long as no traffic comes, and a shedder that reads it latches for ever.

`TumblingWindow` is the other kind: it hands over each window whole, exactly once, after it
closed. Evidence is made of those.
"""

from collections.abc import Callable

from engine.errors import require_positive, require_range
from engine.stats.histogram import LogHistogram

_NEVER = -(1 << 62)


class RotatingCounter:
    """A sum over the last `width_ms`, and its rate per second."""

    __slots__ = ("_current", "_first_ms", "_slot_ms", "_slots", "_sums")

    def __init__(self, width_ms: float, slots: int) -> None:
        require_positive("width_ms", width_ms, unit="ms")
        self._slots = int(require_range("slots", slots, 2, 10_000))
        self._slot_ms = width_ms / slots
        self._sums: list[float] = [0] * slots
        self._current = _NEVER
        self._first_ms: float | None = None

    def add(self, n: float, now_ms: float) -> None:
        """Count `n` at `now_ms`."""
        slot = int(now_ms // self._slot_ms)
        if slot > self._current:
            self._turn(slot, now_ms)
        self._sums[self._current % self._slots] += n

    def total(self, now_ms: float) -> float:
        """The sum over the window that ends at `now_ms`."""
        slot = int(now_ms // self._slot_ms)
        if slot > self._current:
            self._turn(slot, now_ms)
        return sum(self._sums)

    def per_second(self, now_ms: float) -> float:
        """The mean rate over the window, or over the time since the first count if shorter."""
        total = self.total(now_ms)
        first_ms = now_ms if self._first_ms is None else self._first_ms
        oldest_ms = (self._current - self._slots + 1) * self._slot_ms
        covered_ms = now_ms - max(first_ms, oldest_ms)
        return total * 1000.0 / max(covered_ms, self._slot_ms)

    def _turn(self, slot: int, now_ms: float) -> None:
        if self._first_ms is None:
            self._first_ms = now_ms
        for stale in range(max(self._current + 1, slot - self._slots + 1), slot + 1):
            self._sums[stale % self._slots] = 0
        self._current = slot


class RotatingHistogram:
    """Quantiles over the last `width_ms`."""

    __slots__ = ("_current", "_histograms", "_now", "_slot_ms", "_slots")

    def __init__(self, width_ms: float, slots: int) -> None:
        require_positive("width_ms", width_ms, unit="ms")
        self._slots = int(require_range("slots", slots, 2, 10_000))
        self._slot_ms = width_ms / slots
        self._histograms = [LogHistogram() for _ in range(slots)]
        self._current = _NEVER
        self._now = self._histograms[0]

    def record(self, value: float, now_ms: float) -> None:
        """Count `value` at `now_ms`."""
        slot = int(now_ms // self._slot_ms)
        if slot > self._current:
            self._turn(slot)
        self._now.record(value)

    def quantile(self, q: float, now_ms: float) -> float | None:
        """The quantile over the window that ends at `now_ms`; None when it is empty."""
        return self.merged(now_ms).quantile(q)

    def count(self, now_ms: float) -> int:
        """How many values the window holds."""
        slot = int(now_ms // self._slot_ms)
        if slot > self._current:
            self._turn(slot)
        return sum(histogram.count for histogram in self._histograms)

    def merged(self, now_ms: float) -> LogHistogram:
        """The whole window as one histogram, of which several questions can be asked."""
        slot = int(now_ms // self._slot_ms)
        if slot > self._current:
            self._turn(slot)
        merged = LogHistogram()
        for histogram in self._histograms:
            if histogram.count:
                merged.merge(histogram)
        return merged

    def _turn(self, slot: int) -> None:
        for stale in range(max(self._current + 1, slot - self._slots + 1), slot + 1):
            self._histograms[stale % self._slots].clear()
        self._current = slot
        self._now = self._histograms[slot % self._slots]


class TumblingWindow[T]:
    """Consecutive windows of `width_ms`, each handed over once, after it closed.

    `make(start_ms)` builds the content of a window when something first falls into it; a
    window into which nothing fell does not exist.
    """

    __slots__ = ("_closed", "_make", "_number", "_open", "_width_ms")

    def __init__(self, width_ms: float, make: Callable[[float], T]) -> None:
        self._width_ms = require_positive("width_ms", width_ms, unit="ms")
        self._make = make
        self._number = _NEVER
        self._open: T | None = None
        self._closed: list[T] = []

    def at(self, now_ms: float) -> T:
        """The content of the window that holds `now_ms`, to be added to."""
        number = int(now_ms // self._width_ms)
        if number > self._number:
            self._close()
            self._number = number
        if self._open is None:
            self._open = self._make(self._number * self._width_ms)
        return self._open

    def drain(self, now_ms: float) -> list[T]:
        """The windows that ended by `now_ms` and were not drained yet, oldest first."""
        if int(now_ms // self._width_ms) > self._number:
            self._close()
        closed, self._closed = self._closed, []
        return closed

    def _close(self) -> None:
        if self._open is not None:
            self._closed.append(self._open)
            self._open = None
