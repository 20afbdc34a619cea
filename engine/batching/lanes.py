"""The bulk lane: work that may wait, but not for ever.

Bulk entries ride in what the interactive lane leaves of a batch. They cannot starve, for two
reasons. While bulk work waits it earns `share` of the device time that batches take, and may
spend that before the interactive lane's deferrable work: weights go by device time, not by
turns, so a few huge bulk requests get no more than many small ones. And after `ages_ms`, or
when its deadline comes near, a bulk entry moves to the interactive lane for good.
"""

from dataclasses import dataclass

from engine.batching.form import Draft
from engine.batching.former import Queued
from engine.batching.lazy_heap import LazyHeap
from engine.batching.queue import MAX_MISSES, offer_in_order
from engine.errors import require_positive, require_range

_MOST_CREDIT_MS = 500.0  # an idle hour must not buy a minute of the device


@dataclass(slots=True, frozen=True, kw_only=True)
class LaneConfig:
    """`bulk_share` of the device time belongs to waiting bulk work; `bulk_ages_ms` is when a
    bulk entry becomes interactive whatever its deadline."""

    bulk_share: float = 0.1
    bulk_ages_ms: float = 5_000.0

    def __post_init__(self) -> None:
        require_range("bulk_share", self.bulk_share, 0.0, 1.0)
        require_positive("bulk_ages_ms", self.bulk_ages_ms, unit="ms")


class BulkLane:
    """Waiting bulk entries by deadline, and the device time they have earned."""

    __slots__ = ("_config", "_credit_ms", "_heap", "_sequence")

    def __init__(self, config: LaneConfig) -> None:
        self._config = config
        self._heap = LazyHeap()
        self._sequence = 0
        self._credit_ms = 0.0

    def put(self, entry: Queued, size_key: float) -> None:
        self._sequence += 1
        self._heap.push(entry.deadline_ms, self._sequence, entry, size_key)

    def ages_at_ms(self, entry: Queued, tight_ms: float) -> float:
        """When this entry becomes interactive."""
        return min(entry.arrived_ms + self._config.bulk_ages_ms, entry.deadline_ms - tight_ms)

    def holds(self, entry: Queued) -> bool:
        """Whether the entry still waits in this lane."""
        return self._heap.holds(entry)

    def spend(self, draft: Draft) -> None:
        """Let bulk work use the device time it has earned, ahead of what can be deferred."""
        while self._credit_ms > 0.0 and not draft.closed:
            item = self._heap.top()
            before_ms = draft.run_ms or draft.fixed_ms  # the batch leaves anyway
            if item is None or not draft.add(item[2]):
                return
            self._heap.pop()
            self._credit_ms -= draft.run_ms - before_ms

    def fill(self, draft: Draft) -> None:
        """Use what the interactive lane left."""
        offer_in_order(self._heap, draft, MAX_MISSES)

    def earn(self, run_ms: float) -> None:
        """A batch of `run_ms` leaves: what still waits here earns its share of it."""
        if self._heap.top() is None:
            self._credit_ms = min(self._credit_ms, 0.0)
            return
        self._credit_ms = min(self._credit_ms + self._config.bulk_share * run_ms, _MOST_CREDIT_MS)

    def entries(self) -> list[Queued]:
        return self._heap.entries()

    def compact(self, live: int) -> None:
        self._heap.compact(live)
