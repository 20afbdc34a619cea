"""Where every request is, and where all of them went: the conservation law.

    arrived = served + refused + failed + cancelled + queued + running

It holds between any two calls of the scheduler. Each request is settled exactly once; a
second settlement is a bug of ours and raises. Rates are differences of these totals, taken
when a view is made, so the hot path pays for an addition and nothing else.
"""

from engine.errors import BrokenInvariant, RefusalCode
from engine.stats.histogram import LogHistogram
from engine.stats.sampled import SampledRates
from engine.view import Conservation, TrafficView

_RATE_SPAN_MS = 10_000.0
_CODES = tuple(str(code) for code in RefusalCode)


class Ledger:
    """Counts of requests by where they are. All are totals since the start."""

    __slots__ = (
        "_rates",
        "arrived",
        "attempts",
        "cancelled",
        "failed",
        "late",
        "queued",
        "refused",
        "refused_by_code",
        "running",
        "served",
    )

    def __init__(self, now_ms: float) -> None:
        self.arrived = 0
        self.served = 0
        self.refused = 0
        self.failed = 0
        self.late = 0  # part of failed: answered by their deadline, not by a replica
        self.cancelled = 0
        self.queued = 0
        self.running = 0
        self.attempts = 0
        self.refused_by_code: dict[str, int] = dict.fromkeys(_CODES, 0)
        self._rates = SampledRates(_RATE_SPAN_MS, 5 + len(_CODES), now_ms)

    def refuse(self, code: str) -> None:
        self.refused += 1
        self.refused_by_code[code] += 1

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

    def traffic(self, latency: LogHistogram, now_ms: float) -> TrafficView:
        """Rates over the last 10 s beside the latency that the pools measured."""
        codes = self.refused_by_code
        arrived, served, late, failed, cancelled, *refused = self._rates.sample(
            [self.arrived, self.served, self.late, self.failed, self.cancelled, *codes.values()],
            now_ms,
        )
        decided = served + failed + sum(refused)
        return {
            "offeredPerS": arrived,
            "goodputPerS": served,
            "latePerS": late,
            "failedPerS": failed - late,
            "cancelledPerS": cancelled,
            "refusedPerS": {c: r for c, r in zip(codes, refused, strict=True) if r > 0.0},
            "goodputRatio": served / decided if decided > 0.0 else None,
            "p50Ms": latency.quantile(0.50),
            "p95Ms": latency.quantile(0.95),
            "p99Ms": latency.quantile(0.99),
        }
