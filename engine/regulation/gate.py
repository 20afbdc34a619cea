"""Admission control of the lower classes: refuse what could not be answered in time anyway.

A switch that refuses a whole class while it is on has no way to see that its reason is over:
no traffic, no latency, no decision, so it stays on. One such latch shed 14,800 requests
after an incident of twenty seconds. Two properties keep this gate from it:

    it lets in whatever still fits  forecast <= target x SLO      (so the load finds its level)
    it always lets in a trickle     while fewer than `trickle` of the class are in the house

With the gate on and no backlog, everything passes. So being on costs nothing by itself, and
the controller sees by `refused` whether the gate is still needed. The trickle paces itself:
the next probe enters when the last one has been answered, however slow the device is.

A forecast is biased where the device slows down under load, so its target is steered by what
came out: `target *= aim x SLO / p95` once a decision, within [lowest, highest] of the
SLO.
"""

from dataclasses import dataclass

from engine.errors import require_positive, require_range

_SLOWEST, _FASTEST = 0.8, 1.5  # steps of steering, per decision


@dataclass(slots=True, frozen=True, kw_only=True)
class GateConfig:
    """`target_ratio` of the SLO is the longest forecast that passes at first; `trickle` is in
    requests, `aim_ratio` is where steering wants p95, of the SLO."""

    slo_ms: float = 150.0
    target_ratio: float = 0.75
    lowest_ratio: float = 0.5
    highest_ratio: float = 0.9
    aim_ratio: float = 0.85
    trickle: int = 1

    def __post_init__(self) -> None:
        require_positive("slo_ms", self.slo_ms, unit="ms")
        require_range("lowest_ratio", self.lowest_ratio, 0.01, 1.0)
        require_range("highest_ratio", self.highest_ratio, self.lowest_ratio, 1.0)
        require_range("target_ratio", self.target_ratio, self.lowest_ratio, self.highest_ratio)
        require_range("aim_ratio", self.aim_ratio, 0.1, 1.0)
        require_range("trickle", self.trickle, 1, 1000, unit="requests")


class Gate:
    """Open (`on` is False) it passes everything; on, what fits and a trickle."""

    __slots__ = ("_asked", "_config", "_refused", "_target_ratio", "on")

    def __init__(self, config: GateConfig) -> None:
        self._config = config
        self._refused = self._asked = 0
        self.on = False
        self._target_ratio = config.target_ratio

    @property
    def target_ms(self) -> float:
        """The longest forecast that passes while the gate is on."""
        return self._target_ratio * self._config.slo_ms

    def steer(self, p95_ms: float | None) -> None:
        """Learn from what came out since the last call. No data, no move."""
        config = self._config
        if not self.on or p95_ms is None or p95_ms <= 0.0:
            return
        factor = min(max(config.aim_ratio * config.slo_ms / p95_ms, _SLOWEST), _FASTEST)
        self._target_ratio = min(
            config.highest_ratio, max(config.lowest_ratio, self._target_ratio * factor)
        )

    def passes(self, *, forecast_ms: float | None, in_house: int) -> bool:
        """Whether a request of a lower class may enter now. `in_house`: waiting or running."""
        self._asked += 1
        if not self.on or in_house < self._config.trickle:
            return True
        if forecast_ms is not None and forecast_ms <= self.target_ms:
            return True
        self._refused += 1
        return False

    def take_counts(self) -> tuple[int, int]:
        """How many were refused since the last call, of how many that asked."""
        counts = self._refused, self._asked
        self._refused = self._asked = 0
        return counts
