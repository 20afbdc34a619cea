"""Where every request is, and where all of them went: the conservation law.

    arrived = served + refused + failed + cancelled + queued + running

It holds between any two calls of the scheduler. Each request is settled exactly once; a
second settlement is a bug of ours and raises. Rates are differences of these totals, taken
when a view is made, so the hot path pays for an addition and nothing else.
"""

from collections import deque

from engine.errors import BrokenInvariant
from engine.stats.window import RotatingHistogram
from engine.view import Conservation, TrafficView

_RATE_SPAN_MS = 10_000.0
_SAMPLE_EVERY_MS = 500.0
_LATENCY_SPAN_MS = 60_000.0


class Ledger:
    """Counts of requests by where they are. All are totals since the start."""

    __slots__ = (
        "_samples",
        "arrived",
        "attempts",
        "cancelled",
        "failed",
        "late",
        "latency",
        "queued",
        "refused",
        "refused_by_code",
        "running",
        "served",
    )

    def __init__(self) -> None:
        self.arrived = 0
        self.served = 0
        self.refused = 0
        self.failed = 0
        self.late = 0  # part of failed: answered by their deadline, not by a replica
        self.cancelled = 0
        self.queued = 0
        self.running = 0
        self.attempts = 0
        self.refused_by_code: dict[str, int] = {}
        self.latency = RotatingHistogram(_LATENCY_SPAN_MS, 12)
        self._samples: deque[tuple[float, int, int, int, int, int, dict[str, int]]] = deque()

    def refuse(self, code: str) -> None:
        self.refused += 1
        self.refused_by_code[code] = self.refused_by_code.get(code, 0) + 1

    def conservation(self) -> Conservation:
        """The law as it stands."""
        known = (
            self.served + self.refused + self.failed + self.cancelled + self.queued + self.running
        )
        return {
            "arrived": self.arrived,
            "served": self.served,
            "refused": self.refused,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "queued": self.queued,
            "running": self.running,
            "balanced": known == self.arrived and self.queued >= 0 and self.running >= 0,
        }

    def check(self) -> None:
        """Raise `BrokenInvariant` where the law does not hold."""
        state = self.conservation()
        if not state["balanced"]:
            raise BrokenInvariant(f"conservation: {state}")

    def traffic(self, now_ms: float) -> TrafficView:
        """Rates over the last 10 s and latency over the last minute."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= _SAMPLE_EVERY_MS:
            samples.append(
                (
                    now_ms,
                    self.arrived,
                    self.served,
                    self.late,
                    self.failed,
                    self.cancelled,
                    dict(self.refused_by_code),
                )
            )
        while len(samples) > 2 and now_ms - samples[0][0] > _RATE_SPAN_MS:
            samples.popleft()
        at, arrived, served, late, failed, cancelled, codes = samples[0]
        span_s = max(now_ms - at, 1.0) / 1000.0
        decided = (
            (self.served - served) + (self.failed - failed) + (self.refused - sum(codes.values()))
        )
        return {
            "offeredPerS": (self.arrived - arrived) / span_s,
            "goodputPerS": (self.served - served) / span_s,
            "latePerS": (self.late - late) / span_s,
            "failedPerS": (self.failed - failed - (self.late - late)) / span_s,
            "cancelledPerS": (self.cancelled - cancelled) / span_s,
            "refusedPerS": {
                code: (total - codes.get(code, 0)) / span_s
                for code, total in self.refused_by_code.items()
                if total > codes.get(code, 0)
            },
            "goodputRatio": (self.served - served) / decided if decided > 0 else None,
            "p50Ms": self.latency.quantile(0.50, now_ms),
            "p95Ms": self.latency.quantile(0.95, now_ms),
            "p99Ms": self.latency.quantile(0.99, now_ms),
        }
