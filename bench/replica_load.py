"""The traffic of the replica benchmark: when requests come, of which class, how much work each.

Five patterns. `steady`, `burst` and `longtail` are what people run against a model server;
`step` doubles the load past what the device can do, and `incident` slows the device down
eightfold for twenty seconds under a load that it normally carries with ease.
"""

import random
from dataclasses import dataclass
from math import exp

PREMIUM, STANDARD = "premium", "standard"
PREMIUM_RATIO = 0.3


@dataclass(slots=True, frozen=True, kw_only=True)
class Incident:
    """From `start_s` to `end_s` everything takes `slowdown` times as long."""

    start_s: float
    end_s: float
    slowdown: float


@dataclass(slots=True, frozen=True, kw_only=True)
class Pattern:
    """Phases of (seconds, requests per second), Poisson within each."""

    name: str
    phases: tuple[tuple[float, float], ...]
    heavy_tail: bool = False
    incident: Incident | None = None

    @property
    def duration_s(self) -> float:
        return sum(seconds for seconds, _ in self.phases)

    def rate_at(self, at_s: float) -> float:
        """The offered rate at `at_s`, per second."""
        for seconds, rate in self.phases:
            if at_s < seconds:
                return rate
            at_s -= seconds
        return 0.0


@dataclass(slots=True, frozen=True)
class Arrival:
    """A request: when, which class, and its work in units of an ordinary request."""

    at_s: float
    priority: str
    work: float


PATTERNS: dict[str, Pattern] = {
    pattern.name: pattern
    for pattern in (
        Pattern(name="steady", phases=((60.0, 50.0),)),
        Pattern(name="burst", phases=((20.0, 20.0), (20.0, 150.0), (20.0, 20.0))),
        Pattern(name="longtail", phases=((60.0, 50.0),), heavy_tail=True),
        Pattern(name="step", phases=((60.0, 75.0), (60.0, 150.0))),
        Pattern(
            name="incident",
            phases=((120.0, 50.0),),
            incident=Incident(start_s=30.0, end_s=50.0, slowdown=8.0),
        ),
    )
}


def arrivals(pattern: Pattern, rng: random.Random) -> list[Arrival]:
    """The trace of a pattern: a pure function of the generator's state."""
    trace: list[Arrival] = []
    phase_start_s = 0.0
    for seconds, rate in pattern.phases:
        at_s = phase_start_s + rng.expovariate(rate)
        while at_s < phase_start_s + seconds:
            priority = PREMIUM if rng.random() < PREMIUM_RATIO else STANDARD
            trace.append(Arrival(at_s, priority, _work(rng) if pattern.heavy_tail else 1.0))
            at_s += rng.expovariate(rate)
        phase_start_s += seconds
    return trace


def _work(rng: random.Random) -> float:
    """Log-normal with mean 1: half the requests are small, one in a hundred is 8 x the mean."""
    sigma = 1.1
    return exp(rng.gauss(-sigma * sigma / 2, sigma))
