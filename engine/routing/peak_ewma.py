"""How slow is this replica right now? A mean that is quick to fear and slow to forget.

    sample >= value:  value = sample                                    (up at once)
    sample <  value:  value = sample + (value - sample) exp(-dt / tau)  (down by time)
    idle:             value -> fleet median, by exp(-dt / tau)
    unmeasured:       1.5 x fleet median
    fault:            at least 3 x fleet median, however fast it failed

Units: milliseconds. Source: Finagle's PeakEwma, as in tower's `load::peak_ewma`. Both of
those decay an idle endpoint toward zero, so that a replica which was rested after a slow
spell suddenly looks like the fastest of all and the herd runs onto it. Never decaying is no
better: it is never tried again. The fleet's median is what we honestly expect of a replica
of which we know nothing fresh.

The median must not be a median of the values above: penalties would raise it, and it would
raise the penalties. `typical_ms` is the plain decaying mean of the successes, and the fleet
takes its median over those. A replica with leases out is not idle and does not decay, or one
that hangs would look better by the second.
"""

from dataclasses import dataclass
from math import exp

from engine.errors import require_positive, require_range

_NOBODY_KNOWS_MS = 100.0  # any constant: with no measurement anywhere, all replicas tie


@dataclass(slots=True, frozen=True, kw_only=True)
class PeakEwmaConfig:
    """`unmeasured_ratio` and `fault_ratio` are multiples of the fleet's median."""

    tau_ms: float = 10_000.0
    unmeasured_ratio: float = 1.5
    fault_ratio: float = 3.0

    def __post_init__(self) -> None:
        require_positive("tau_ms", self.tau_ms, unit="ms")
        require_range("unmeasured_ratio", self.unmeasured_ratio, 1.0, 10.0)
        require_range("fault_ratio", self.fault_ratio, 1.0, 100.0)


class PeakEwma:
    """Latency of one replica, for ranking it against the others."""

    __slots__ = ("_at_ms", "_config", "_tau_ms", "_typical_at_ms", "typical_ms", "value_ms")

    def __init__(self, config: PeakEwmaConfig | None = None) -> None:
        self._config = config or PeakEwmaConfig()
        self._tau_ms = self._config.tau_ms
        self.forget()

    def forget(self) -> None:
        """Back to unmeasured: another process answers under this name now."""
        self.value_ms: float | None = None
        self._at_ms = 0.0
        self._typical_at_ms = 0.0
        self.typical_ms: float | None = None

    def forgive(self) -> None:
        """Drop the penalties but keep what its successes took: it has just proved itself."""
        self.value_ms = self.typical_ms

    def observe(self, sample_ms: float, now_ms: float) -> None:
        """A success took `sample_ms`."""
        value_ms = self.value_ms
        typical_ms = self.typical_ms
        if typical_ms is None:
            self.typical_ms = sample_ms
        else:
            kept = exp((self._typical_at_ms - now_ms) / self._tau_ms)
            # a burst at one instant still counts: no sample moves the mean by less than 2 %
            self.typical_ms = sample_ms + (typical_ms - sample_ms) * min(kept, 0.98)
        self._typical_at_ms = now_ms
        if value_ms is None or sample_ms >= value_ms:
            self.value_ms = sample_ms
        else:
            kept = exp((self._at_ms - now_ms) / self._tau_ms)
            self.value_ms = sample_ms + (value_ms - sample_ms) * kept
        self._at_ms = now_ms

    def at_least(self, elapsed_ms: float, now_ms: float) -> None:
        """It did not answer for `elapsed_ms` (cancelled, out of time): a lower bound."""
        value_ms = self.value_ms
        if value_ms is not None and elapsed_ms > value_ms:
            self.value_ms = elapsed_ms
            self._at_ms = now_ms

    def penalise(self, elapsed_ms: float, median_ms: float | None, now_ms: float) -> None:
        """A fault after `elapsed_ms`: failing fast is not being fast."""
        base_ms = median_ms or self.typical_ms or _NOBODY_KNOWS_MS
        value_ms = max(elapsed_ms, base_ms * self._config.fault_ratio)
        if self.value_ms is None or value_ms >= self.value_ms:
            self.value_ms = value_ms
        self._at_ms = now_ms

    def read_ms(self, median_ms: float | None, idle: bool, now_ms: float) -> float:
        """What to expect of it now, given the fleet's median."""
        value_ms = self.value_ms
        if value_ms is None:
            return (median_ms or _NOBODY_KNOWS_MS) * self._config.unmeasured_ratio
        if idle and median_ms is not None:
            return median_ms + (value_ms - median_ms) * exp((self._at_ms - now_ms) / self._tau_ms)
        return value_ms
