"""How well is this replica, between 0 and 1? For ranking, never for excluding.

    raw   = (0.4 no errors + 0.3 speed + 0.2 free GPU memory + 0.1 free places) / their weights
    value = decaying mean of raw, tau 5 s, published when it moved by more than 0.05

`no errors` is 1 - fault ratio over 30 s, `speed` the fleet's median latency over the
replica's (at most 1). A part that nobody measured is left out with its weight: an unknown
GPU is neither full nor empty. A resident model raises the rank by 0.25.

Hard gates (ready, breaker, ceiling) come first and live elsewhere: a replica that fails
everything still scores 0.6 here, and one with a single error must not be shut out for 0.39.
Hysteresis is what keeps two replicas of 0.700 and 0.701 from swapping all their traffic at
every sample; `grade` has the same, with 0.5 to fall and 0.65 to rise.
"""

from dataclasses import dataclass
from math import exp

from engine.errors import require_positive, require_range


@dataclass(slots=True, frozen=True, kw_only=True)
class HealthConfig:
    errors_weight: float = 0.4
    latency_weight: float = 0.3
    memory_weight: float = 0.2
    connections_weight: float = 0.1
    tau_ms: float = 5_000.0
    dead_band: float = 0.05
    falls_below: float = 0.5
    rises_above: float = 0.65
    resident_bonus: float = 0.25
    every_ms: float = 250.0

    def __post_init__(self) -> None:
        for name in ("errors_weight", "latency_weight", "memory_weight", "connections_weight"):
            require_range(name, getattr(self, name), 0.0, 1.0)
        require_positive("errors_weight + ...", self.errors_weight + self.connections_weight)
        require_positive("tau_ms", self.tau_ms, unit="ms")
        require_range("dead_band", self.dead_band, 0.0, 0.5)
        require_range("falls_below", self.falls_below, 0.0, self.rises_above)
        require_range("rises_above", self.rises_above, 0.0, 1.0)
        require_range("resident_bonus", self.resident_bonus, 0.0, 1.0)
        require_positive("every_ms", self.every_ms, unit="ms")


@dataclass(slots=True, kw_only=True)
class Vitals:
    """What the score is made of; None where nothing was measured."""

    fault_ratio: float | None
    latency_ms: float | None
    median_ms: float | None
    gpu_memory_ratio: float | None
    occupied_ratio: float


class HealthScore:
    """The smoothed score of one replica."""

    __slots__ = ("_at_ms", "_config", "_smooth", "degraded", "parts", "value")

    def __init__(self, config: HealthConfig) -> None:
        self._config = config
        self._at_ms: float | None = None
        self._smooth = 1.0
        self.value = 1.0
        self.degraded = False
        self.parts: dict[str, float] = {}

    def due(self, now_ms: float) -> bool:
        """Whether it is time to look again."""
        return self._at_ms is None or now_ms - self._at_ms >= self._config.every_ms

    def observe(self, vitals: Vitals, now_ms: float) -> float:
        """Take in the vitals of this moment; the value that ranks is returned."""
        config = self._config
        parts = self.parts = _parts(vitals)
        weights = {
            "errors": config.errors_weight,
            "latency": config.latency_weight,
            "memory": config.memory_weight,
            "connections": config.connections_weight,
        }
        total = sum(weights[name] for name in parts)
        raw = sum(weights[name] * part for name, part in parts.items()) / total
        if self._at_ms is None:
            self._smooth = self.value = raw
        else:
            kept = exp((self._at_ms - now_ms) / config.tau_ms)
            self._smooth = raw + (self._smooth - raw) * kept
        self._at_ms = now_ms
        if abs(self._smooth - self.value) > config.dead_band:
            self.value = self._smooth
        if self._smooth < config.falls_below:
            self.degraded = True
        elif self._smooth > config.rises_above:
            self.degraded = False
        return self.value

    def rank(self, resident: bool) -> float:
        """The value, raised where the wanted model is already in memory."""
        return self.value + self._config.resident_bonus if resident else self.value


def _parts(vitals: Vitals) -> dict[str, float]:
    parts = {"connections": max(0.0, 1.0 - vitals.occupied_ratio)}
    if vitals.fault_ratio is not None:
        parts["errors"] = 1.0 - vitals.fault_ratio
    if vitals.latency_ms is not None and vitals.median_ms is not None:
        parts["latency"] = min(1.0, vitals.median_ms / max(vitals.latency_ms, 1e-9))
    if vitals.gpu_memory_ratio is not None:
        parts["memory"] = max(0.0, 1.0 - vitals.gpu_memory_ratio)
    return parts
