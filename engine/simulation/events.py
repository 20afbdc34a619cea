"""The virtual-time event loop: what happens next, in order, at no cost in real time.

A heap of (time, sequence, callback). Events at the same instant run in the order in which
they were scheduled, so a run is a pure function of its seed. `clock` is the loop's own
`ManualClock`; hand it to whatever needs one. A cancelled event stays in the heap and is
skipped when its turn comes: cancelling is O(1).
"""

import heapq
from collections.abc import Callable

from engine.clock import ManualClock
from engine.errors import InvalidInput


class Event:
    """A scheduled callback. `cancel` makes it not happen."""

    __slots__ = ("at_ms", "callback")

    def __init__(self, at_ms: float, callback: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class EventLoop:
    """Runs callbacks in the order of their virtual time."""

    __slots__ = ("_heap", "_sequence", "clock")

    def __init__(self, start_ms: float = 0.0) -> None:
        self.clock = ManualClock(start_ms)
        self._heap: list[tuple[float, int, Event]] = []
        self._sequence = 0

    def now_ms(self) -> float:
        return self.clock.now_ms()

    def at(self, at_ms: float, callback: Callable[[], None]) -> Event:
        """Run `callback` at `at_ms`, which must not lie in the past."""
        if not at_ms >= self.clock.now_ms():
            raise InvalidInput("at_ms", at_ms, f"must be >= now ({self.clock.now_ms():g} ms)")
        self._sequence += 1
        event = Event(at_ms, callback)
        heapq.heappush(self._heap, (at_ms, self._sequence, event))
        return event

    def after(self, delay_ms: float, callback: Callable[[], None]) -> Event:
        """Run `callback` `delay_ms` from now."""
        return self.at(self.clock.now_ms() + delay_ms, callback)

    def next_ms(self) -> float | None:
        """The time of the next event that will happen, or None where nothing is left."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def run(self, until_ms: float | None = None) -> int:
        """Run events up to and including `until_ms` (all of them where None), move the
        clock to `until_ms`, and return how many ran."""
        ran = 0
        heap = self._heap
        clock = self.clock
        while heap and (until_ms is None or heap[0][0] <= until_ms):
            at_ms, _, event = heapq.heappop(heap)
            callback = event.callback
            if callback is None:
                continue
            clock.set(at_ms)
            event.callback = None
            callback()
            ran += 1
        if until_ms is not None and clock.now_ms() < until_ms:
            clock.set(until_ms)
        return ran
