"""Additive increase, multiplicative decrease: +1 on a good sample, x 0.9 on a bad one.

A sample is bad when it is a drop or slower than the timeout; the limit grows only when half
of it is in use. Source: Netflix concurrency-limits, AIMDLimit (backoff 0.9).
"""

from bench.limiters.fixed import FixedLimit
from engine.admission.limit import DROPS
from engine.outcomes import Outcome


class AimdLimit(FixedLimit):
    """Grows by one request at a time until something is late."""

    policy = "aimd"

    def __init__(self, slo_ms: float, initial: float = 64.0, backoff: float = 0.9) -> None:
        super().__init__(initial)
        self.slo_ms = slo_ms
        self._backoff = backoff
        self._in_flight = 0

    def observe(self, latency_ms: float, outcome: Outcome, now_ms: float) -> None:
        if outcome in DROPS or (outcome is Outcome.SUCCESS and latency_ms > self.slo_ms):
            self.value = max(8.0, self.value * self._backoff)
        elif outcome is Outcome.SUCCESS and self._in_flight * 2 >= self.value:
            self.value += 1.0

    def tick(self, in_flight: int, now_ms: float) -> None:
        self._in_flight = in_flight
