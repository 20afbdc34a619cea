"""How long will a request that enters now take? Rounds ahead of it, times a round.

    service(n) = a + b n                       n entries in a batch, fitted to recent batches
    rounds     = (entries ahead + 1) / batch size, rounded up
    wait       = (rounds - free slots) x service(full) / slots         where slots are free
               = mean / (slots + 1) + (rounds - 1) x service(full) / slots    where all are taken
    total      = wait + service(own batch)

The fit is least squares over moments that decay with tau = 2 s, so the forecast follows a
slow-down within a few batches and forgets it as fast. The slope matters: at low load batches
are small and quick, and a mean over them promises a speed that a full batch does not have,
just when the load rises. Where all recent batches are alike there is no slope to be had, and
the mean stands for all.

It looks ahead, where a percentile of finished requests looks back: at a step in load the
backlog is visible within milliseconds, while the percentile needs a window of victims first.
None before the first batch has ended: without a measurement there is no forecast.
"""

from math import ceil, exp

from engine.errors import require_positive

_LEAST_SPREAD = 0.25  # variance of the batch size under which no slope is believed


class Forecast:
    """What the last batches say about the next request."""

    __slots__ = ("_at_ms", "_n", "_nn", "_nt", "_t", "_tau_ms", "_weight")

    def __init__(self, tau_ms: float = 2000.0) -> None:
        self._tau_ms = require_positive("tau_ms", tau_ms, unit="ms")
        self._at_ms = 0.0
        self._weight = self._n = self._nn = self._t = self._nt = 0.0

    def learn(self, entries: int, service_ms: float, now_ms: float) -> None:
        """A batch of `entries` took `service_ms`."""
        fade = exp(-max(0.0, now_ms - self._at_ms) / self._tau_ms)
        self._at_ms = max(self._at_ms, now_ms)
        self._weight = self._weight * fade + 1.0
        self._n = self._n * fade + entries
        self._nn = self._nn * fade + entries * entries
        self._t = self._t * fade + service_ms
        self._nt = self._nt * fade + entries * service_ms

    def service_ms(self, entries: float) -> float | None:
        """How long a batch of `entries` takes, in ms."""
        weight = self._weight
        if weight <= 0.0:
            return None
        mean_n, mean_t = self._n / weight, self._t / weight
        spread = self._nn / weight - mean_n * mean_n
        if spread < _LEAST_SPREAD:
            return mean_t
        slope = max(0.0, (self._nt / weight - mean_n * mean_t) / spread)
        return max(0.0, mean_t + slope * (entries - mean_n))

    def total_ms(
        self, ahead: float, *, entries_per_batch: int, slots: int, free: int
    ) -> float | None:
        """Time until a request with `ahead` entries before it is answered, in ms."""
        full_ms = self.service_ms(entries_per_batch)
        own_ms = self.service_ms(min(ahead + 1, entries_per_batch))
        if full_ms is None or own_ms is None:
            return None
        rounds = ceil((ahead + 1) / entries_per_batch)
        if free > 0:
            return max(0, rounds - free) * full_ms / slots + own_ms
        first_end_ms = self._t / self._weight / (slots + 1)
        return first_end_ms + (rounds - 1) * full_ms / slots + own_ms

    def smallest_batch(
        self, current: int, *, slots: int, demand_per_s: float, longest_ms: float
    ) -> int:
        """The batch size below which a cut does harm.

        That is the smallest that carries the demand, or a smaller one where only that can be
        run within `longest_ms`. `current` where nothing is known.
        """
        carries, fits = current, 0
        for size in range(1, current + 1):
            service_ms = self.service_ms(size)
            if service_ms is None:
                return current
            if service_ms <= longest_ms:
                fits = size
            if carries == current and slots * size * 1000 >= demand_per_s * service_ms:
                carries = size
        return min(carries, fits or carries)
