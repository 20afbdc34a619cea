"""Who is in flight for one model, and may one more of this priority join them?

It feeds the model's `Limit` once a second with the largest number in flight since the last
tick, and derives the ceilings of the four priorities from the limit's value and from the
recent demand of the priorities above (`engine.admission.priority`). Between ticks a request
costs a comparison and two increments, whatever the policy.

A refusal's wait is the time in which as many requests should end as stand above the
ceiling, at the rate at which they ended lately.
"""

from engine.admission.limit import Limit
from engine.admission.priority import RATIOS, ceiling
from engine.errors import Refusal, RefusalCode
from engine.types import Priority
from engine.view import AdmissionView

_TICK_MS = 1000.0
_FADE = 0.5  # a priority's demand a second after it was last seen


class Occupancy:
    """The requests in flight for one model, by priority, under its limit."""

    __slots__ = (
        "_demand",
        "_finished",
        "_finishes_per_ms",
        "_peaks",
        "_ticked_ms",
        "by_priority",
        "ceilings",
        "in_flight",
        "limit",
        "model",
        "next_tick_ms",
        "peak",
    )

    def __init__(self, model: str, limit: Limit, now_ms: float) -> None:
        self.model = model
        self.limit = limit
        self.in_flight = 0
        self.peak = 0
        self.by_priority = [0] * len(RATIOS)
        self._peaks = [0] * len(RATIOS)
        self._demand = [0.0] * len(RATIOS)
        self.ceilings = [limit.value] * len(RATIOS)
        self._finished = 0
        self._finishes_per_ms = 0.0
        self._ticked_ms = now_ms
        self.next_tick_ms = now_ms + _TICK_MS

    def enter(self, priority: int, now_ms: float) -> bool:
        """Take a place, or False where the ceiling of `priority` is reached."""
        if now_ms >= self.next_tick_ms:
            self.tick(now_ms)
        in_flight = self.in_flight
        if in_flight >= self.ceilings[priority]:
            self._wanted(priority)
            return False
        in_flight += 1
        self.in_flight = in_flight
        if in_flight > self.peak:
            self.peak = in_flight
        mine = self.by_priority[priority] + 1
        self.by_priority[priority] = mine
        if mine > self._peaks[priority]:
            self._peaks[priority] = mine
        return True

    def leave(self, priority: int, now_ms: float) -> None:
        """Give a place back."""
        self.in_flight -= 1
        self.by_priority[priority] -= 1
        self._finished += 1
        if now_ms >= self.next_tick_ms:
            self.tick(now_ms)

    def tick(self, now_ms: float) -> None:
        """Let the limit reconsider, and the priorities' demand fade."""
        self.limit.tick(self.peak, now_ms)
        self.peak = self.in_flight
        elapsed_ms = max(now_ms - self._ticked_ms, 1.0)
        self._finishes_per_ms = self._finished / elapsed_ms
        self._finished = 0
        fade = _FADE ** (elapsed_ms / _TICK_MS)
        for priority, peak in enumerate(self._peaks):
            self._demand[priority] = max(float(peak), self._demand[priority] * fade)
        self._peaks = self.by_priority.copy()
        self._ticked_ms = now_ms
        self.next_tick_ms = now_ms + _TICK_MS
        self._set_ceilings()

    def expect(
        self, requests_per_s: float | None, places: int, batch_size: int, now_ms: float
    ) -> None:
        """The fleet changed: pass on what it should now manage."""
        self.limit.expect(requests_per_s, places, batch_size, now_ms)
        self._set_ceilings()

    def refusal(self, priority: int) -> Refusal:
        """Why one more of `priority` cannot come in now."""
        bound = self.ceilings[priority]
        name = Priority(priority).name.lower()
        surplus = self.in_flight + 1 - bound
        pace = self._finishes_per_ms or max(self.in_flight, 1) / self.limit.slo_ms
        return Refusal(
            code=RefusalCode.OVERLOADED,
            message=(
                f"{self.in_flight} requests for {self.model} are in flight, "
                f"{bound:.0f} may be for priority {name}"
            ),
            limit_name="concurrency_limit",
            limit=bound,
            used=float(self.in_flight),
            retry_after_ms=max(surplus / pace, 1.0),
            details={
                "priority": name,
                "policy": self.limit.policy,
                "limit": self.limit.value,
                "reason": self.limit.reason,
            },
        )

    def view(self, now_ms: float) -> AdmissionView:
        if now_ms >= self.next_tick_ms:
            self.tick(now_ms)
        limit = self.limit
        return {
            "policy": limit.policy,
            "limit": limit.value,
            "inFlight": self.in_flight,
            "sloMs": limit.slo_ms,
            "p95Ms": limit.p95_ms(now_ms),
            "reason": limit.reason,
        }

    def _wanted(self, priority: int) -> None:
        """Someone of this priority was refused: those below must leave room for more."""
        wanted = max(self._demand[priority], float(self.by_priority[priority])) + 1.0
        self._demand[priority] = min(wanted, self.limit.value)
        self._set_ceilings()

    def _set_ceilings(self) -> None:
        above = 0.0
        for priority in range(len(RATIOS) - 1, -1, -1):
            self.ceilings[priority] = ceiling(priority, self.limit.value, above)
            above += self._demand[priority]
