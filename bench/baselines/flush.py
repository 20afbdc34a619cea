"""The original's rule: earliest deadline first, and four reasons to let a batch leave.

    saturated   no room for the next request in line
    deadline    the most urgent member cannot wait any longer
    linger      the oldest member has waited 25 ms
    idle        the device is free and nobody else is expected before the linger ends

What could not even run alone before its deadline is dropped; whether a batch of them still
can is not asked. So under overload batches fill up with requests that end just too late.
"""

from bench.baselines.fifo import Blind
from bench.baselines.line import Line
from engine.batching.feasibility import hopeless
from engine.batching.former import BatchPlan, Device, Queued, Wait
from engine.types import FlushReason

_LINGER_MS = 25.0
_RATE_SMOOTHING = 0.1


class FlushRules(Line):
    """EDF with expiry."""

    def __init__(self) -> None:
        super().__init__()
        self._gap_ms: float | None = None
        self._last_ms = 0.0

    def key(self, entry: Queued) -> float:
        return entry.deadline_ms

    def gives_up(self, entry: Queued, now_ms: float) -> bool:
        return hopeless(entry, self.devices, now_ms)

    def offer(self, entry: Queued, now_ms: float, *, again: bool = False) -> None:
        gap_ms = now_ms - self._last_ms
        self._last_ms = now_ms
        if self._gap_ms is None:
            self._gap_ms = gap_ms
        else:
            self._gap_ms += _RATE_SMOOTHING * (gap_ms - self._gap_ms)
        super().offer(entry, now_ms, again=again)

    def form(self, device: Device, now_ms: float) -> BatchPlan | Wait | None:
        self.sweep(now_ms)
        if not self.waiting:
            return None
        draft = Blind(device, now_ms)
        for item in self.waiting:
            if not draft.add(item[2]):
                break
        if not draft.members:
            return None
        if draft.full:
            return self.leave(draft, FlushReason.SATURATED)
        urgent_ms = draft.members[0].deadline_ms - draft.run_ms - draft.margin_ms
        if now_ms >= urgent_ms:
            return self.leave(draft, FlushReason.DEADLINE)
        due_ms = min(member.arrived_ms for member in draft.members) + _LINGER_MS
        if now_ms >= due_ms:
            return self.leave(draft, FlushReason.LINGER)
        if self._gap_ms is None or now_ms + self._gap_ms > due_ms:
            return self.leave(draft, FlushReason.IDLE)
        return Wait(until_ms=min(due_ms, urgent_ms), why="linger")
