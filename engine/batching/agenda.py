"""When does time alone change something for a queued request? One heap for all of them.

Each queued entry has one next moment: when it becomes tight, then when it becomes hopeless.
An entry that left the queue stays in the heap until its moment passes or a rebuild drops it.
"""

from heapq import heapify, heappop, heappush

from engine.batching.former import Queued

_SLACK = 64


class Agenda:
    """Entries by their next moment."""

    __slots__ = ("_items", "_sequence")

    def __init__(self) -> None:
        self._items: list[tuple[float, int, Queued]] = []
        self._sequence = 0

    def note(self, at_ms: float, entry: Queued) -> None:
        self._sequence += 1
        heappush(self._items, (at_ms, self._sequence, entry))

    def next_ms(self) -> float | None:
        """The next moment of an entry that is still queued, or None."""
        items = self._items
        while items and items[0][2].slot is None:
            heappop(items)
        return items[0][0] if items else None

    def due(self, now_ms: float) -> Queued | None:
        """Take out an entry whose moment has come, or None."""
        items = self._items
        while items and items[0][0] <= now_ms:
            entry = heappop(items)[2]
            if entry.slot is not None:
                return entry
        return None

    def compact(self, live: int) -> None:
        """Drop entries that left, where they outnumber the `live` ones."""
        if len(self._items) > 2 * live + _SLACK:
            self._items = [item for item in self._items if item[2].slot is not None]
            heapify(self._items)
