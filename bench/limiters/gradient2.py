"""Gradient2: long over short latency with a tolerance of 1.5, at every sample.

    long = mean of the last 600 samples, pulled down 5 % where it is over 2 x short
    g = clamp(1.5 long / short, 0.5, 1);  L = 0.8 L + 0.2 (L g + 4)

Source: Netflix concurrency-limits, Gradient2Limit, with its defaults.
"""

from bench.limiters.fixed import FixedLimit
from engine.outcomes import Outcome


class Gradient2Limit(FixedLimit):
    """Per-sample gradient with a fixed allowance for queueing."""

    policy = "gradient2"

    def __init__(
        self,
        slo_ms: float,
        initial: float = 64.0,
        tolerance: float = 1.5,
        queue: float = 4.0,
        smoothing: float = 0.2,
    ) -> None:
        super().__init__(initial)
        self.slo_ms = slo_ms
        self._tolerance = tolerance
        self._queue = queue
        self._smoothing = smoothing
        self._long_ms: float | None = None
        self._in_flight = 0

    def observe(self, latency_ms: float, outcome: Outcome, now_ms: float) -> None:
        if outcome is not Outcome.SUCCESS:
            return
        short_ms = max(latency_ms, 0.001)
        long_ms = short_ms if self._long_ms is None else self._long_ms
        long_ms += (short_ms - long_ms) * 2.0 / 601.0
        if long_ms / short_ms > 2.0:
            long_ms *= 0.95
        self._long_ms = long_ms
        if self._in_flight < self.value / 2.0:
            return
        gradient = max(0.5, min(1.0, self._tolerance * long_ms / short_ms))
        target = self.value * gradient + self._queue
        self.value = max(8.0, self.value * (1.0 - self._smoothing) + target * self._smoothing)

    def tick(self, in_flight: int, now_ms: float) -> None:
        self._in_flight = in_flight
