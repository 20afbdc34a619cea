"""How many second attempts may there be? One budget for hedges and retries.

    hedge: allowed while  spent + 1 <= 5 % of the requests of the last 10 s
    retry: the same, plus a reserve of 10 per 10 s

A retry storm is a fleet that fails a little, is asked again, and so fails a lot. Counting in
a window, and not in a bucket that fills up, bounds *every* ten seconds: a bucket saved up in a
quiet hour is spent in one second of trouble. The reserve is for faults of single replicas: at
one request a second 5 % is nothing, and the one request that met a dead replica deserves its
second chance. It is not for hedges, which are bets; not for busy answers, which are load
already; and not in panic, when the second replica is as bad as the first.
"""

from dataclasses import dataclass

from engine.errors import require_positive, require_range
from engine.stats.window import RotatingCounter


@dataclass(slots=True, frozen=True, kw_only=True)
class BudgetConfig:
    """`ratio` of the requests in `window_ms` may be attempted once more, plus `reserve`."""

    ratio: float = 0.05
    window_ms: float = 10_000.0
    reserve: int = 10

    def __post_init__(self) -> None:
        require_range("ratio", self.ratio, 0.0, 1.0)
        require_positive("window_ms", self.window_ms, unit="ms")
        require_range("reserve", self.reserve, 0)


class RetryBudget:
    """`deposit` at each first attempt, `withdraw` before each further one."""

    __slots__ = ("_config", "_requests", "_spent", "refused")

    def __init__(self, config: BudgetConfig | None = None) -> None:
        self._config = config or BudgetConfig()
        slots = 21  # one more than the window has, so that a whole window is always covered
        width_ms = self._config.window_ms * slots / (slots - 1)
        self._requests = RotatingCounter(width_ms, slots)
        self._spent = RotatingCounter(width_ms, slots)
        self.refused = 0

    def deposit(self, now_ms: float) -> None:
        """A request is sent for the first time."""
        self._requests.add(1, now_ms)

    def withdraw(self, now_ms: float, *, reserve: bool = True) -> bool:
        """Take one further attempt. `reserve=False` for hedges, busy replicas, and in panic."""
        allowed = self._config.ratio * self._requests.total(now_ms)
        if reserve:
            allowed += self._config.reserve
        if self._spent.total(now_ms) + 1 > allowed:
            self.refused += 1
            return False
        self._spent.add(1, now_ms)
        return True

    def spent(self, now_ms: float) -> float:
        """Further attempts within the window."""
        return self._spent.total(now_ms)
