"""A queue that fills drafts: the port, and its simplest form, earliest deadline first.

EDF is what serves pools whose replicas take one request at a time (streams): there is no
batch to compose, only an order, and below saturation no order meets more deadlines.
"""

from typing import Protocol

from engine.batching.form import Draft
from engine.batching.former import Queued
from engine.batching.lazy_heap import Item, LazyHeap
from engine.batching.plan import SlotPlan

MAX_MISSES = 24  # requests that do not fit a draft, before it is left as it is


class Queue(Protocol):
    """Queued entries in the order in which they should join a batch. Every `put` sets
    `entry.slot`; an entry leaves by its slot being set to None."""

    def put(self, entry: Queued, size_key: float, now_ms: float) -> None:
        """Take an entry in. O(log n)."""
        ...

    def tighten(self, entry: Queued, now_ms: float) -> None:
        """Time has made this entry urgent."""
        ...

    def follow(self, plan: SlotPlan) -> None:
        """Order by this plan from now on."""
        ...

    def fill(self, draft: Draft, now_ms: float) -> None:
        """Offer entries to the draft in order; the caller takes those that joined."""
        ...

    def entries(self) -> list[Queued]: ...

    def compact(self, live: int) -> None: ...


class EdfQueue:
    """Earliest deadline first."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap = LazyHeap()
        self._sequence = 0

    def put(self, entry: Queued, size_key: float, now_ms: float) -> None:
        self._sequence += 1
        self._heap.push(entry.deadline_ms, self._sequence, entry, size_key)

    def tighten(self, entry: Queued, now_ms: float) -> None:
        """Nothing to do: the order is by deadline already."""

    def follow(self, plan: SlotPlan) -> None:
        """Nothing to do: the order does not depend on a plan."""

    def fill(self, draft: Draft, now_ms: float) -> None:
        offer_in_order(self._heap, draft, MAX_MISSES)

    def entries(self) -> list[Queued]:
        return self._heap.entries()

    def compact(self, live: int) -> None:
        self._heap.compact(live)


def offer_in_order(heap: LazyHeap, draft: Draft, misses: int) -> int:
    """Offer a heap's entries in its order until the draft is full or `misses` did not fit;
    return how many misses are left."""
    skipped: list[Item] = []
    while misses > 0 and not draft.closed:
        item = heap.pop()
        if item is None:
            break
        if not draft.add(item[2]):
            skipped.append(item)
            misses -= 1
    heap.put_back(skipped)
    return misses
