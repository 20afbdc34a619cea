"""The three queues of a token pool: what cannot wait, what is worth its time, what fills.

    TIGHT   cannot wait for another slot, and worth serving: smallest size per weight first
    FILL    can wait, and worth serving (size per weight <= theta): earliest deadline first
    BIG     more than the slot has room for at this load: smallest size per weight first

A draft takes from TIGHT, then FILL, then BIG, skipping what does not fit. So the slot's
unavoidable work costs as little of it as it can, deferrable work uses the rest before it
becomes urgent in turn, and large requests fill what is left: none is refused for its size,
they wait as fillers until they are hopeless. Below saturation theta is infinite, BIG is
empty and the order is by deadline but for the tight ones.

An entry belongs where its size and the present theta say; after theta moved it is put right
when it surfaces, which costs O(log n) for each one that moves.
"""

import math

from engine.batching.form import Draft
from engine.batching.former import Queued
from engine.batching.lazy_heap import Item, LazyHeap
from engine.batching.plan import SlotPlan
from engine.batching.queue import MAX_MISSES, offer_in_order

TIGHT_SLOTS = 2.55  # tight: the deadline is within so many slots (wait one, run one, a half)


class SlotQueues:
    """TIGHT, FILL and BIG."""

    __slots__ = ("_big", "_fill", "_sequence", "_theta", "_tight", "_tight_ms")

    def __init__(self) -> None:
        self._tight = LazyHeap()
        self._fill = LazyHeap()
        self._big = LazyHeap()
        self._sequence = 0
        self._theta = math.inf
        self._tight_ms = 0.0

    def put(self, entry: Queued, size_key: float, now_ms: float) -> None:
        self._sequence += 1
        if size_key > self._theta:
            self._big.push(size_key, self._sequence, entry, size_key)
        elif entry.deadline_ms - now_ms <= self._tight_ms:
            self._tight.push(size_key, self._sequence, entry, size_key)
        else:
            self._fill.push(entry.deadline_ms, self._sequence, entry, size_key)

    def tighten(self, entry: Queued, now_ms: float) -> None:
        item: Item = entry.slot  # type: ignore[assignment]
        if item[3] <= self._theta:
            self._sequence += 1
            self._tight.push(item[3], self._sequence, entry, item[3])

    def follow(self, plan: SlotPlan) -> None:
        self._theta = plan.theta
        self._tight_ms = TIGHT_SLOTS * plan.slot_ms

    def fill(self, draft: Draft, now_ms: float) -> None:
        self._bring_back(now_ms)
        misses = self._offer(self._tight, draft, MAX_MISSES)
        misses = self._offer(self._fill, draft, misses)
        offer_in_order(self._big, draft, misses)

    def _offer(self, heap: LazyHeap, draft: Draft, misses: int) -> int:
        """Offer what is still worth serving; what theta has passed by moves to BIG."""
        theta = self._theta
        skipped: list[Item] = []
        while misses > 0 and not draft.closed:
            item = heap.pop()
            if item is None:
                break
            entry = item[2]
            if item[3] > theta:
                self._big.push(item[3], item[1], entry, item[3])
            elif not draft.add(entry):
                skipped.append(item)
                misses -= 1
        heap.put_back(skipped)
        return misses

    def _bring_back(self, now_ms: float) -> None:
        """Return what a grown theta has room for."""
        big = self._big
        while True:
            item = big.top()
            if item is None or item[0] > self._theta:
                return
            big.pop()
            self.put(item[2], item[3], now_ms)

    def entries(self) -> list[Queued]:
        return self._tight.entries() + self._fill.entries() + self._big.entries()

    def compact(self, live: int) -> None:
        for heap in (self._tight, self._fill, self._big):
            heap.compact(live)
