"""When is an attempt so late that a second one, elsewhere, is worth its cost?

    delay = the 95th percentile of the service times of its size class, taken anew every 3 s

A size class is a doubling of work: a request of 4,000 tokens is not late when one of 40
would be. One in twenty attempts passes its own p95, which is just what the budget of 5 % pays
for. Until a class has 30 samples it is not hedged at all.

A hedge only helps where the lateness is that replica's own. In a slowdown that all share it
is load on top of load, so it also needs a fleet below 80 % utilisation, or a loser that can
really be stopped (`losers_cancel`), and the budget. The p95 follows the slowdown within
seconds, which stops the rest. First success wins, the loser stays counted as load until it
truly ends: the scheduler sees to both.
"""

from dataclasses import dataclass

from engine.errors import require_positive, require_range
from engine.stats.window import RotatingCounter, RotatingHistogram


@dataclass(slots=True, frozen=True, kw_only=True)
class HedgeConfig:
    quantile: float = 0.95
    refresh_ms: float = 3_000.0
    window_ms: float = 30_000.0
    min_samples: int = 30
    max_utilisation: float = 0.8
    losers_cancel: bool = False
    enabled: bool = True

    def __post_init__(self) -> None:
        require_range("quantile", self.quantile, 0.5, 0.9999)
        require_positive("refresh_ms", self.refresh_ms, unit="ms")
        require_range("window_ms", self.window_ms, self.refresh_ms, unit="ms")
        require_range("min_samples", self.min_samples, 1)
        require_range("max_utilisation", self.max_utilisation, 0.0, 1.0)


class _SizeClass:
    __slots__ = ("delay_ms", "fresh_until_ms", "times")

    def __init__(self, window_ms: float) -> None:
        self.times = RotatingHistogram(window_ms, 10)
        self.delay_ms: float | None = None
        self.fresh_until_ms = 0.0


class HedgePolicy:
    """The delays of one model version, by size class."""

    __slots__ = ("_classes", "_config", "_fired", "count")

    def __init__(self, config: HedgeConfig | None = None) -> None:
        self._config = config or HedgeConfig()
        self._classes: dict[int, _SizeClass] = {}
        self._fired = RotatingCounter(10_000.0, 10)
        self.count = 0

    def observe(self, work: float, service_ms: float, now_ms: float) -> None:
        """An attempt of this much work succeeded after `service_ms`."""
        number = int(work).bit_length()
        size = self._classes.get(number)
        if size is None:
            size = self._classes[number] = _SizeClass(self._config.window_ms)
        size.times.record(service_ms, now_ms)

    def delay_ms(self, work: float, now_ms: float) -> float | None:
        """How long to wait before a hedge, or None where too little is known."""
        size = self._classes.get(int(work).bit_length())
        if size is None or not self._config.enabled:
            return None
        if now_ms >= size.fresh_until_ms:
            times = size.times.merged(now_ms)
            enough = times.count >= self._config.min_samples
            size.delay_ms = times.quantile(self._config.quantile) if enough else None
            size.fresh_until_ms = now_ms + (self._config.refresh_ms if enough else 250.0)
        return size.delay_ms

    def allowed(self, utilisation: float, now_ms: float) -> bool:
        """Whether the fleet has room for a bet."""
        return self._config.enabled and (
            self._config.losers_cancel or utilisation < self._config.max_utilisation
        )

    def fired(self, now_ms: float) -> None:
        """A hedge was sent."""
        self.count += 1
        self._fired.add(1, now_ms)

    def per_second(self, now_ms: float) -> float:
        """Hedges a second, over the last 10 s."""
        return self._fired.per_second(now_ms)
