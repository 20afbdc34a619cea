"""A heap whose entries can leave from the middle in O(1), by becoming invalid.

An item is (key, sequence, entry, size key, heap). It is valid while `entry.slot is item`: moving an
entry to another heap gives it a new item, removing it sets the slot to None, and either way
the old item is skipped when it surfaces. When invalid items outnumber the valid ones the
list is rebuilt, so memory and time stay O(log n) amortised, with the constants of `heapq`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from engine.batching.former import Queued

type Item = tuple[float, int, Queued, float, LazyHeap]
_SLACK = 64


class LazyHeap:
    """Entries by key, the smallest first."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: list[Item] = []

    def push(self, key: float, sequence: int, entry: Queued, size_key: float) -> None:
        item = (key, sequence, entry, size_key, self)
        entry.slot = item
        heappush(self._items, item)

    def holds(self, entry: Queued) -> bool:
        """Whether the entry waits here, and not in another heap or nowhere."""
        item = entry.slot
        return isinstance(item, tuple) and item[4] is self

    def put_back(self, items: list[Item]) -> None:
        """Return popped items that were not used after all."""
        heap = self._items
        for item in items:
            heappush(heap, item)

    def pop(self) -> Item | None:
        """The smallest valid item, or None. Its entry's slot still points to it."""
        heap = self._items
        while heap:
            item = heappop(heap)
            if item[2].slot is item:
                return item
        return None

    def top(self) -> Item | None:
        """The smallest valid item, left where it is."""
        heap = self._items
        while heap:
            item = heap[0]
            if item[2].slot is item:
                return item
            heappop(heap)
        return None

    def compact(self, live: int) -> None:
        """Drop invalid items where they outnumber `live`, the entries of the whole queue."""
        if len(self._items) > 2 * live + _SLACK:
            self._items = [item for item in self._items if item[2].slot is item]
            heapify(self._items)

    def size(self) -> int:
        """How many items it holds: the valid entries, and invalid ones at most as many again."""
        return len(self._items)

    def entries(self) -> list[Queued]:
        """The valid entries, in no order."""
        return [item[2] for item in self._items if item[2].slot is item]
