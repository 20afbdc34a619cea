"""What all baselines share: entries in a sorted list, and the rest of the `BatchFormer` port.

A baseline says by which key it sorts, which entries it gives up, and when a batch leaves.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from engine.batching.form import Draft
from engine.batching.former import BatchPlan, Device, Queued
from engine.types import FlushReason


class Line:
    """A sorted queue. Subclasses define `key` and `form`, and may shed in `gives_up`."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, int, Queued]] = []
        self.lost: list[Queued] = []
        self.devices: list[Device] = []
        self._sequence = 0

    def key(self, entry: Queued) -> float:
        return entry.arrived_ms

    def gives_up(self, entry: Queued, now_ms: float) -> bool:
        """Whether to answer this entry with a refusal now."""
        return False

    def __len__(self) -> int:
        return len(self.waiting)

    def offer(self, entry: Queued, now_ms: float, *, again: bool = False) -> None:
        self._sequence += 1
        item = (self.key(entry), self._sequence, entry)
        entry.slot = item
        entry.queued = True
        insort(self.waiting, item)

    def remove(self, entry: Queued) -> bool:
        if entry.slot is None:
            return False
        self._take(entry)
        return True

    def expire(self, now_ms: float) -> list[Queued]:
        lost, self.lost = self.lost, []
        return lost

    def sweep(self, now_ms: float) -> None:
        """Give up what `gives_up` says; `expire` hands it back at the next poll."""
        kept = []
        for item in self.waiting:
            if self.gives_up(item[2], now_ms):
                self._forget(item[2])
                self.lost.append(item[2])
            else:
                kept.append(item)
        self.waiting = kept

    def set_devices(self, devices: Sequence[Device], now_ms: float) -> None:
        self.devices = list(devices)

    def on_finished(self, answered: int, now_ms: float) -> None:
        """Baselines expect nobody back."""

    def next_wake_ms(self, now_ms: float) -> float | None:
        return now_ms if self.lost else None

    def numbers(self) -> dict[str, float | str | None]:
        return {"queued_work": sum(item[2].work for item in self.waiting)}

    def leave(self, draft: Draft, reason: FlushReason) -> BatchPlan:
        """Take the draft's members out of the line."""
        for entry in draft.members:
            self._take(entry)
        return BatchPlan(
            members=draft.members,
            predicted_ms=draft.run_ms,
            margin_ms=draft.margin_ms,
            reason=reason,
        )

    def _take(self, entry: Queued) -> None:
        item: tuple[float, int, Queued] = entry.slot  # type: ignore[assignment]
        del self.waiting[bisect_left(self.waiting, item)]
        self._forget(entry)

    def _forget(self, entry: Queued) -> None:
        entry.slot = None
        entry.queued = False
