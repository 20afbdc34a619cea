"""Earliest deadline first, shedding what cannot make it: optimal below saturation.

Past it the order turns against itself: it always runs the request that has the least time
left, whatever it costs, and so spends the device on the most expensive promises.
"""

from bench.baselines.line import Line
from engine.batching.feasibility import hopeless
from engine.batching.form import Draft
from engine.batching.former import BatchPlan, Device, Queued, Wait
from engine.types import FlushReason


class EarliestDeadlineFeasible(Line):
    """EDF over what is feasible; a batch leaves whenever a device is free."""

    def key(self, entry: Queued) -> float:
        return entry.deadline_ms

    def gives_up(self, entry: Queued, now_ms: float) -> bool:
        return hopeless(entry, self.devices, now_ms)

    def form(self, device: Device, now_ms: float) -> BatchPlan | Wait | None:
        self.sweep(now_ms)
        draft = Draft(device, now_ms)
        for item in self.waiting:
            draft.add(item[2])
            if draft.closed:
                break
        if not draft.members:
            return None
        return self.leave(draft, FlushReason.SATURATED if draft.full else FlushReason.IDLE)
