"""Vegas: how many requests queue, judged by the smallest latency ever seen.

    queue = L (1 - shortest / latency);  +beta below alpha, -1 above beta, by log10 L

The shortest latency is probed anew every 30 L samples. Source: Netflix concurrency-limits,
VegasLimit: alpha = 3 log10 L, beta = 6 log10 L.
"""

from math import log10

from bench.limiters.fixed import FixedLimit
from engine.admission.limit import DROPS
from engine.outcomes import Outcome


class VegasLimit(FixedLimit):
    """Estimates the queue from the distance to the shortest latency."""

    policy = "vegas"

    def __init__(self, slo_ms: float, initial: float = 64.0) -> None:
        super().__init__(initial)
        self.slo_ms = slo_ms
        self._shortest_ms: float | None = None
        self._samples = 0
        self._in_flight = 0

    def observe(self, latency_ms: float, outcome: Outcome, now_ms: float) -> None:
        step = max(1.0, log10(max(self.value, 1.0)))
        if outcome in DROPS:
            self.value = max(8.0, self.value - step)
            return
        if outcome is not Outcome.SUCCESS:
            return
        self._samples += 1
        if self._samples >= 30.0 * self.value:
            self._samples = 0
            self._shortest_ms = latency_ms
            return
        if self._shortest_ms is None or latency_ms < self._shortest_ms:
            self._shortest_ms = latency_ms
            return
        if self._in_flight * 2 < self.value:
            return
        queue = self.value * (1.0 - self._shortest_ms / max(latency_ms, 0.001))
        if queue <= step:
            self.value += 6.0 * step
        elif queue < 3.0 * step:
            self.value += step
        elif queue > 6.0 * step:
            self.value = max(8.0, self.value - step)

    def tick(self, in_flight: int, now_ms: float) -> None:
        self._in_flight = in_flight
