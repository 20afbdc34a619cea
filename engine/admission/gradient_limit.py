"""The latency gradient: is the fleet slower than it was, and by how much?

    every second:  g = clamp(long / short, 0.5, 1);  target = L x g + sqrt(L)
                   L = L + 0.2 x (target - L)

`short` and `long` are time-decayed means of the latency. A short one above the long one is
read as queueing and shrinks the limit; the square root is the queue that is always allowed,
and the only thing that makes it grow. It needs no SLO, which is its merit. Its faults are
why it is not the default: a bigger batch looks like a queue, and in a long overload the
long mean learns the overload and the limit drifts upwards.

Guards: it does not grow while less than half of it is in use (an idle hour would make a
limit nobody tested); a fast failure is no sample; a timeout counts as twice the latency.
Source: Netflix concurrency-limits, Gradient2Limit, with the clamp and root of this project.
"""

from dataclasses import dataclass
from math import sqrt

from engine.admission.limit import DROPS
from engine.errors import InvalidInput, require_positive, require_range
from engine.outcomes import Outcome
from engine.stats.ewma import DecayingEwma


@dataclass(slots=True, frozen=True, kw_only=True)
class GradientConfig:
    """Every knob of the policy, with its range."""

    initial: float = 64.0
    floor: float = 8.0
    ceiling: float = 65_536.0
    short_ms: float = 1000.0
    long_ms: float = 30_000.0
    steepest: float = 0.5  # no tick asks for less than this share of the limit
    smoothing: float = 0.2
    full_ratio: float = 0.5  # of the limit: in flight below this is no reason to grow
    drop_ratio: float = 2.0  # of its latency: what a timeout counts as

    def __post_init__(self) -> None:
        require_range("floor", self.floor, 1.0)
        require_range("initial", self.initial, 1.0)
        require_positive("short_ms", self.short_ms, unit="ms")
        require_range("steepest", self.steepest, 0.01, 1.0)
        require_range("smoothing", self.smoothing, 0.01, 1.0)
        require_range("full_ratio", self.full_ratio, 0.0, 1.0)
        require_range("drop_ratio", self.drop_ratio, 1.0)
        if self.long_ms <= self.short_ms:
            raise InvalidInput("long_ms", self.long_ms, f"must be > short_ms ({self.short_ms:g})")
        if self.ceiling < self.floor:
            raise InvalidInput("ceiling", self.ceiling, f"must be >= floor ({self.floor:g})")


class GradientLimit:
    """Shrinks when the recent latency is above the long-term one."""

    __slots__ = ("_config", "_floor", "_fresh", "_long", "_short", "reason", "slo_ms", "value")

    policy = "gradient"

    def __init__(self, slo_ms: float, config: GradientConfig | None = None) -> None:
        self._config = config or GradientConfig()
        self.slo_ms = require_positive("slo_ms", slo_ms, unit="ms")
        self._floor = self._config.floor
        self.value = max(self._config.initial, self._floor)
        self.reason = "initial: no latency seen yet"
        self._short = DecayingEwma(self._config.short_ms)
        self._long = DecayingEwma(self._config.long_ms)
        self._fresh = False

    def observe(self, latency_ms: float, outcome: Outcome, now_ms: float) -> None:
        if outcome is not Outcome.SUCCESS:
            if outcome not in DROPS:
                return
            latency_ms *= self._config.drop_ratio
        self._short.add(latency_ms, now_ms)
        self._long.add(latency_ms, now_ms)
        self._fresh = True

    def tick(self, in_flight: int, now_ms: float) -> None:
        config = self._config
        short_ms, long_ms = self._short.value, self._long.value
        if not self._fresh or short_ms is None or long_ms is None:
            self.reason = "held: nothing finished lately"
            return
        self._fresh = False
        before = self.value
        ratio = long_ms / short_ms if short_ms > 0.0 else 1.0
        gradient = min(1.0, max(config.steepest, ratio))
        target = before * gradient + sqrt(before)
        told = f"long {long_ms:.0f} ms / short {short_ms:.0f} ms = {ratio:.2f}"
        if target > before and in_flight < config.full_ratio * before:
            self.reason = f"held: {told}, but only {in_flight} of {before:.0f} in flight"
            return
        after = before + config.smoothing * (target - before)
        self.value = min(max(after, self._floor), config.ceiling)
        verb = "grew" if self.value > before else "shrank" if self.value < before else "held"
        self.reason = f"{verb}: {told}, {before:.0f} -> {self.value:.0f}"

    def expect(
        self, requests_per_s: float | None, places: int, batch_size: int, now_ms: float
    ) -> None:
        self._floor = max(1.0, float(batch_size))
        self.value = min(max(self.value, self._floor, 2.0 * places), self._config.ceiling)

    def p95_ms(self, now_ms: float) -> float | None:
        return None
