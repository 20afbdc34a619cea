"""What a replica really does with a batch: how long it takes, and how it goes wrong.

A `ServiceTime` says how many ms a batch of these sizes takes; wrappers change it:

    affine(18, 0.022)                    a decoder: a + b x tokens
    padded(2.0, 0.185, 0.00054)          an encoder: a + b x B L + c x B L^2
    jittered(s, 0.08)                    x U(0.92, 1.08)
    noisy(s, 0.1)                        x log-normal, sigma 0.1
    scaled(s, 0.6)                       a device at 0.6 of the speed
    drifting(s, at_ms, 1.6)              the marginal cost changes mid-run

A `Fault` makes it fail, hang or refuse as busy for a while. The truth stays here: schedulers
see predictions, this is what happens. Times are ms, sizes are tokens.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.errors import require_positive, require_range
from engine.types import ReplicaSpec

ServiceTime = Callable[[Sequence[float], float, random.Random], float]
_FAIL_FAST_MS = 2.0
_BUSY_MS = 1.0


def affine(fixed_ms: float, per_token_ms: float) -> ServiceTime:
    """A decoder, or anything whose cost grows with the tokens in the batch."""
    require_range("fixed_ms", fixed_ms, 0.0, unit="ms")
    require_positive("per_token_ms", per_token_ms, unit="ms")

    def service(sizes: Sequence[float], now_ms: float, rng: random.Random) -> float:
        return fixed_ms + per_token_ms * sum(sizes)

    return service


def padded(fixed_ms: float, per_token_ms: float, quadratic_ms: float = 0.0) -> ServiceTime:
    """An encoder: every member is padded to the longest, attention grows with its square."""
    require_range("fixed_ms", fixed_ms, 0.0, unit="ms")
    require_positive("per_token_ms", per_token_ms, unit="ms")

    def service(sizes: Sequence[float], now_ms: float, rng: random.Random) -> float:
        longest = max(sizes)
        cells = len(sizes) * longest
        return fixed_ms + per_token_ms * cells + quadratic_ms * cells * longest

    return service


def jittered(inner: ServiceTime, ratio: float) -> ServiceTime:
    """Uniform noise of +-`ratio`."""
    require_range("ratio", ratio, 0.0, 0.99)

    def service(sizes: Sequence[float], now_ms: float, rng: random.Random) -> float:
        return inner(sizes, now_ms, rng) * rng.uniform(1.0 - ratio, 1.0 + ratio)

    return service


def noisy(inner: ServiceTime, sigma: float) -> ServiceTime:
    """Log-normal noise: the median is right, the tail is long."""
    require_range("sigma", sigma, 0.0, 2.0)

    def service(sizes: Sequence[float], now_ms: float, rng: random.Random) -> float:
        return inner(sizes, now_ms, rng) * math.exp(rng.gauss(0.0, sigma))

    return service


def scaled(inner: ServiceTime, speed: float) -> ServiceTime:
    """The same device at another speed: 0.6 takes 1 / 0.6 of the time."""
    require_positive("speed", speed)

    def service(sizes: Sequence[float], now_ms: float, rng: random.Random) -> float:
        return inner(sizes, now_ms, rng) / speed

    return service


def drifting(before: ServiceTime, after: ServiceTime, at_ms: float) -> ServiceTime:
    """`before` until `at_ms`, `after` from then on."""

    def service(sizes: Sequence[float], now_ms: float, rng: random.Random) -> float:
        return (before if now_ms < at_ms else after)(sizes, now_ms, rng)

    return service


class FaultKind(StrEnum):
    FAIL = "fail"  # answers with an error in 2 ms
    HANG = "hang"  # never answers
    BUSY = "busy"  # refuses at once: backpressure


@dataclass(slots=True, frozen=True, kw_only=True)
class Fault:
    """A replica that misbehaves from `start_ms` to `end_ms`, for `ratio` of its batches."""

    kind: FaultKind
    start_ms: float = 0.0
    end_ms: float = math.inf
    ratio: float = 1.0
    retry_after_ms: float | None = None

    def __post_init__(self) -> None:
        require_range("ratio", self.ratio, 0.0, 1.0)

    def strikes(self, now_ms: float, rng: random.Random) -> bool:
        inside = self.start_ms <= now_ms < self.end_ms
        return inside and (self.ratio >= 1.0 or rng.random() < self.ratio)


@dataclass(slots=True, frozen=True, kw_only=True)
class Execution:
    """What will come of a batch: after `service_ms` (None: never), well or by `fault`."""

    service_ms: float | None
    fault: Fault | None = None


@dataclass(slots=True, kw_only=True)
class SimulatedReplica:
    """A replica as configured, and as it really is. `stoppable`: an abort frees it at once."""

    spec: ReplicaSpec
    service: ServiceTime
    faults: list[Fault] = field(default_factory=list)
    stoppable: bool = False
    busy_ms: float = 0.0
    batches: int = 0
    items: int = 0

    def run(self, sizes: Sequence[float], now_ms: float, rng: random.Random) -> Execution:
        """Start a batch of these sizes now."""
        for fault in self.faults:
            if not fault.strikes(now_ms, rng):
                continue
            if fault.kind is FaultKind.HANG:
                return Execution(service_ms=None, fault=fault)
            fails_ms = _FAIL_FAST_MS if fault.kind is FaultKind.FAIL else _BUSY_MS
            return Execution(service_ms=fails_ms, fault=fault)
        service_ms = self.service(sizes, now_ms, rng)
        self.busy_ms += service_ms
        self.batches += 1
        self.items += len(sizes)
        return Execution(service_ms=service_ms)
