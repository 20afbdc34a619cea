"""A mean that forgets by time: how large were the recent values?

    weight = weight x exp(-dt / tau) + 1
    value  = value + (sample - value) / weight

The weight of a sample halves every 0.69 tau, whatever the rate of samples. An average that
forgets by *count* instead remembers an hour at one request a minute and a blink at a
thousand a second, so that one setting can never be right for both. Samples of the same
instant weigh the same, so the burst at the end of a batch is averaged, not overwritten.

Units: the value's own; `tau_ms` in milliseconds. Unmeasured is None, never zero.
"""

from math import exp

from engine.errors import require_positive


class DecayingEwma:
    """Exponentially weighted mean over time, with time constant `tau_ms`."""

    __slots__ = ("_at_ms", "_tau_ms", "_weight", "value")

    def __init__(self, tau_ms: float) -> None:
        self._tau_ms = require_positive("tau_ms", tau_ms, unit="ms")
        self._at_ms = 0.0
        self._weight = 0.0
        self.value: float | None = None

    def add(self, value: float, now_ms: float) -> None:
        """Take in one sample. A sample older than the newest counts as of that instant."""
        if self.value is None:
            self.value = value
            self._weight = 1.0
            self._at_ms = now_ms
            return
        elapsed_ms = now_ms - self._at_ms
        if elapsed_ms > 0.0:
            self._weight *= exp(-elapsed_ms / self._tau_ms)
            self._at_ms = now_ms
        self._weight += 1.0
        self.value += (value - self.value) / self._weight

    def samples(self, now_ms: float) -> float:
        """How many recent samples stand behind the value: fades to 0 when none come."""
        return self._weight * exp(-max(0.0, now_ms - self._at_ms) / self._tau_ms)
