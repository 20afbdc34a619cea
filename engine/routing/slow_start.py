"""How much of its fair share does a replica get that has just arrived, or just come back?

    ratio(t) = floor + (1 - floor) (t / ramp)^0.5,   floor 10 %, ramp 10 s (3 s after a trip)

Caches are cold, kernels not compiled, and an idle newcomer wins every comparison of load: a
whole fast fleet would send to it at once. The ratio is the probability that a won comparison
is honoured, so the *share* follows the ramp; dividing the score by the ratio instead makes
the newcomer lose every comparison until late in the ramp and then win its full share in one
step. The square root gives half of the share well before half of the time.
"""

from dataclasses import dataclass
from math import sqrt

from engine.errors import require_range


@dataclass(slots=True, frozen=True, kw_only=True)
class SlowStartConfig:
    """`ramp_ms` for a new process, `recovery_ms` after its breaker closed."""

    ramp_ms: float = 10_000.0
    recovery_ms: float = 3_000.0
    floor_ratio: float = 0.10

    def __post_init__(self) -> None:
        require_range("ramp_ms", self.ramp_ms, 0.0, unit="ms")
        require_range("recovery_ms", self.recovery_ms, 0.0, unit="ms")
        require_range("floor_ratio", self.floor_ratio, 0.01, 1.0)


class SlowStart:
    """The ramp of one replica. `until_ms` is when it ends."""

    __slots__ = ("_floor", "_from_ms", "until_ms")

    def __init__(self, config: SlowStartConfig) -> None:
        self._floor = config.floor_ratio
        self._from_ms = 0.0
        self.until_ms = 0.0

    def begin(self, from_ms: float, ramp_ms: float) -> None:
        self._from_ms = from_ms
        self.until_ms = from_ms + ramp_ms

    def ratio(self, now_ms: float) -> float:
        """Share of its fair share, in [floor, 1]."""
        if now_ms >= self.until_ms:
            return 1.0
        done = max(now_ms - self._from_ms, 0.0) / (self.until_ms - self._from_ms)
        return self._floor + (1.0 - self._floor) * sqrt(done)
