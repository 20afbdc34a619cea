"""Envoy's adaptive concurrency: a p90 against the latency of an almost idle service.

    every 100 ms:  g = clamp(1.25 minRTT / p90, 0.5, 2);  L = L g + sqrt(L g)

Every 60 s the limit drops to 3 until 50 requests have given a new minRTT. Source: Envoy,
gradient_controller.cc and its documented defaults.
"""

from math import sqrt

from bench.limiters.fixed import FixedLimit
from engine.outcomes import Outcome
from engine.stats.histogram import LogHistogram

_PROBE_EVERY_MS = 60_000.0
_PROBE_LIMIT = 3.0
_PROBE_SAMPLES = 50
_EVERY_MS = 100.0


class EnvoyLimit(FixedLimit):
    """Gradient against a minimal latency that is measured by stopping traffic."""

    policy = "envoy"

    def __init__(self, slo_ms: float) -> None:
        super().__init__(_PROBE_LIMIT)
        self.slo_ms = slo_ms
        self._shortest_ms: float | None = None
        self._samples = LogHistogram()
        self._probing = True
        self._resume = 64.0
        self._next_probe_ms = 0.0
        self._next_ms = 0.0

    def observe(self, latency_ms: float, outcome: Outcome, now_ms: float) -> None:
        if outcome is Outcome.SUCCESS:
            self._samples.record(latency_ms)
        if self._probing:
            if self._samples.count >= _PROBE_SAMPLES:
                self._shortest_ms = self._samples.quantile(0.9)
                self._samples.clear()
                self._probing = False
                self.value = self._resume
                self._next_probe_ms = now_ms + _PROBE_EVERY_MS
                self._next_ms = now_ms + _EVERY_MS
        elif now_ms >= self._next_probe_ms:
            self._probing = True
            self._resume = self.value
            self._samples.clear()
            self.value = _PROBE_LIMIT
        elif now_ms >= self._next_ms and self._samples.count >= 5:
            self._next_ms = now_ms + _EVERY_MS
            self._step()

    def _step(self) -> None:
        p90_ms = self._samples.quantile(0.9)
        self._samples.clear()
        if p90_ms is None or self._shortest_ms is None:
            return
        gradient = max(0.5, min(2.0, 1.25 * self._shortest_ms / max(p90_ms, 0.001)))
        target = self.value * gradient
        self.value = max(3.0, min(1000.0, target + sqrt(target)))
