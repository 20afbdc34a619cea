"""When requests leave: the rate over time, and Poisson arrivals drawn from it."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from engine.errors import require_positive

PatternName = Literal["steady", "burst", "longtail"]
PATTERNS: tuple[PatternName, ...] = ("steady", "burst", "longtail")
BURST_FACTOR = 7.5  # 20 -> 150 -> 20 per second
BURST_BASE_PER_S = 20.0


@dataclass(slots=True, frozen=True)
class Pattern:
    """A rate over `duration_s`. In a burst the middle third runs at 7.5 times the rate."""

    name: PatternName
    rate_per_s: float
    duration_s: float  # infinite: until stopped

    def __post_init__(self) -> None:
        require_positive("rate", self.rate_per_s, unit="requests per s")
        if self.duration_s != float("inf"):
            require_positive("duration", self.duration_s, unit="s")

    def rate_at(self, at_s: float) -> float:
        third = self.duration_s / 3
        if self.name == "burst" and third <= at_s < 2 * third:
            return self.rate_per_s * BURST_FACTOR
        return self.rate_per_s

    def peak_per_s(self) -> float:
        return self.rate_per_s * (BURST_FACTOR if self.name == "burst" else 1.0)

    def arrivals(self, rng: random.Random) -> Iterator[float]:
        """Seconds from the start, by thinning a Poisson stream at the peak rate."""
        peak, at_s = self.peak_per_s(), 0.0
        while True:
            at_s += rng.expovariate(peak)
            if at_s >= self.duration_s:
                return
            if rng.random() * peak < self.rate_at(at_s):
                yield at_s
