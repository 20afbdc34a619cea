"""The queues of a padded pool: members of like length ride together.

An encoder pads every member of a batch to the longest, so fifteen texts of 16 tokens with
one of 256 cost as much as sixteen of 256. Entries are kept in bands of length, each 1.25
times the one before, by deadline inside. A draft starts in one band and goes on to its
neighbours, the nearest first; `Draft.add` refuses whoever would make the batch longer by
more than a run of its own.

Which band starts? Below saturation the one with the earliest deadline. Past it the one whose
batch answers the most requests per millisecond of device time.
"""

import math

from engine.batching.form import Draft
from engine.batching.former import Queued
from engine.batching.lazy_heap import Item, LazyHeap
from engine.batching.plan import SlotPlan
from engine.batching.queue import MAX_MISSES, offer_in_order

_BAND_RATIO = 1.25
_LOG_BAND = math.log(_BAND_RATIO)


class LengthQueues:
    """One deadline-ordered queue for each band of lengths."""

    __slots__ = ("_bands", "_saturated", "_sequence")

    def __init__(self) -> None:
        self._bands: dict[int, LazyHeap] = {}
        self._sequence = 0
        self._saturated = False

    def put(self, entry: Queued, size_key: float, now_ms: float) -> None:
        band = int(math.log(max(entry.work / entry.items, 1.0)) / _LOG_BAND)
        heap = self._bands.get(band)
        if heap is None:
            heap = self._bands[band] = LazyHeap()
        self._sequence += 1
        heap.push(entry.deadline_ms, self._sequence, entry, size_key)

    def tighten(self, entry: Queued, now_ms: float) -> None:
        """Nothing to do: bands are ordered by deadline already."""

    def follow(self, plan: SlotPlan) -> None:
        self._saturated = plan.mode != "edf"

    def fill(self, draft: Draft, now_ms: float) -> None:
        heads = [(band, item) for band, heap in self._bands.items() if (item := heap.top())]
        if not heads:
            return
        if self._saturated:
            start = max(heads, key=lambda head: self._answers_per_ms(head[0], head[1], draft))[0]
        else:
            start = min(heads, key=lambda head: head[1][0])[0]
        misses = MAX_MISSES
        for band, _ in sorted(heads, key=lambda head: (abs(head[0] - start), head[0])):
            misses = offer_in_order(self._bands[band], draft, misses)
            if misses <= 0 or draft.closed:
                return

    def _answers_per_ms(self, band: int, head: Item, draft: Draft) -> float:
        each = head[2].work / head[2].items
        count = min(self._bands[band].size(), draft.places_for(each))
        return count / draft.run_ms_of(count, each)

    def entries(self) -> list[Queued]:
        return [entry for heap in self._bands.values() for entry in heap.entries()]

    def compact(self, live: int) -> None:
        for band, heap in list(self._bands.items()):
            heap.compact(live)
            if heap.top() is None:
                del self._bands[band]
