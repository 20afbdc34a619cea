"""What the planner believes: the traffic, the plan for it, and whether predictions hold.

It turns arrivals into a `SlotPlan` about twice a second, knows which few devices decide
whether a request is hopeless, and when that is. Predictions may refuse work only while
finished batches keep confirming them: a model that turns everybody away gets no sample and
would never be corrected, so without a recent confirmation a request waits for its deadline
and the next batch is a probe.
"""

import math
from collections.abc import Sequence

from engine.batching.arrivals import ArrivalRing
from engine.batching.feasibility import latest_start_ms
from engine.batching.former import Device, Queued
from engine.batching.plan import SlotPlan, first_plan, make_plan
from engine.batching.scouts import scouts

_REPLAN_ARRIVALS = 128  # a plan is not worth making anew for fewer
_REPLAN_PER_DEVICE_MS = 2.0
_CONFIRMED_MS = 10_000.0


class Outlook:
    """Arrivals, devices, the plan in force, and trust in the cost models."""

    __slots__ = (
        "_confirmed_ms",
        "_planned_at",
        "_replan_at_ms",
        "_replan_ms",
        "_scouts",
        "devices",
        "plan",
        "ring",
    )

    def __init__(self, replan_ms: float) -> None:
        self.ring = ArrivalRing()
        self.devices: list[Device] = []
        self.plan: SlotPlan = first_plan(())
        self._scouts: list[Device] = []
        self._replan_ms = replan_ms
        self._planned_at = 0
        self._replan_at_ms = -math.inf
        self._confirmed_ms = -math.inf

    def set_devices(self, devices: Sequence[Device]) -> None:
        """These serve the queue from now on; the next batch makes a plan for them."""
        self.devices = list(devices)
        self._scouts = scouts(self.devices)
        self._replan_at_ms = -math.inf
        if not self.ring.total:
            self.plan = first_plan(self.devices)

    def replan(self, now_ms: float) -> bool:
        """Make a new plan if it is time and there is news. True if the plan changed."""
        ring = self.ring
        if now_ms < self._replan_at_ms or ring.total - self._planned_at < _REPLAN_ARRIVALS:
            return False
        self._planned_at = ring.total
        # reading a thousand cost models takes a while: do it more rarely
        pause_ms = max(self._replan_ms, _REPLAN_PER_DEVICE_MS * len(self.devices))
        self._replan_at_ms = now_ms + pause_ms
        self._scouts = scouts(self.devices)
        plan = make_plan(ring, self.devices, now_ms)
        if plan is None:
            return False
        self.plan = plan
        return True

    def confirm(self, now_ms: float) -> None:
        """A batch ended well."""
        self._confirmed_ms = now_ms

    def trusts(self, now_ms: float) -> bool:
        """Whether predictions may refuse work now."""
        return now_ms - self._confirmed_ms < _CONFIRMED_MS

    def hopeless_at_ms(self, entry: Queued, now_ms: float) -> float:
        """When to give up: its latest start, or its deadline where nothing can be predicted."""
        if not self._scouts or not self.trusts(now_ms):
            return entry.deadline_ms
        return latest_start_ms(entry, self.devices if entry.tried else self._scouts)
