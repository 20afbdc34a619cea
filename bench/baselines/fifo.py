"""First come, first served: without batching, and with a fixed size and linger.

Neither looks at deadlines: what has expired in the queue still runs, as it does in servers
that know only a batch size and a timeout. The fixed rule refuses arrivals past `max_queue`.
"""

import math

from bench.baselines.line import Line
from engine.batching.form import Draft
from engine.batching.former import BatchPlan, Device, Queued, Wait
from engine.types import FlushReason


class Blind(Draft):
    """A draft that knows the device's limits and no deadline."""

    def add(self, entry: Queued) -> bool:
        deadline_ms, entry.deadline_ms = entry.deadline_ms, math.inf
        try:
            return super().add(entry)
        finally:
            entry.deadline_ms = deadline_ms


class NoBatching(Line):
    """One request at a time."""

    def form(self, device: Device, now_ms: float) -> BatchPlan | Wait | None:
        if not self.waiting:
            return None
        draft = Blind(device, now_ms)
        draft.add(self.waiting[0][2])
        return self.leave(draft, FlushReason.IDLE) if draft.members else None


class FixedBatches(Line):
    """Leave when full, or when the oldest has waited `linger_ms`."""

    def __init__(self, *, size: int, linger_ms: float, max_queue: int) -> None:
        super().__init__()
        self._size = size
        self._linger_ms = linger_ms
        self._max_queue = max_queue

    def offer(self, entry: Queued, now_ms: float, *, again: bool = False) -> None:
        if len(self.waiting) >= self._max_queue:
            self.lost.append(entry)
        else:
            super().offer(entry, now_ms, again=again)

    def form(self, device: Device, now_ms: float) -> BatchPlan | Wait | None:
        if not self.waiting:
            return None
        draft = Blind(device, now_ms)
        for item in self.waiting[: self._size]:
            if not draft.add(item[2]):
                break
        if not draft.members:
            return None
        if draft.full:
            return self.leave(draft, FlushReason.SATURATED)
        due_ms = self.waiting[0][2].arrived_ms + self._linger_ms
        if now_ms >= due_ms:
            return self.leave(draft, FlushReason.LINGER)
        return Wait(until_ms=due_ms, why="linger")
