"""How long to leave a replica alone that said it is busy.

    pause = what it asked for, or 100 ms doubled at each busy answer in a row,
            times U(0.8, 1.2), at most 1 s

Busy is not broken: the breaker never hears of it. Forty requests that are told "busy" in the
same instant are one piece of news, so the pause grows only when an answer comes after the
pause before it was over. One second is the most, whatever a Retry-After in whole seconds
says: asking again costs a round trip, an idle replica costs its whole throughput.
"""

import random
from dataclasses import dataclass

from engine.errors import require_positive, require_range


@dataclass(slots=True, frozen=True, kw_only=True)
class BackpressureConfig:
    first_ms: float = 100.0
    longest_ms: float = 1_000.0
    jitter_ratio: float = 0.2

    def __post_init__(self) -> None:
        require_positive("first_ms", self.first_ms, unit="ms")
        require_range("longest_ms", self.longest_ms, self.first_ms, unit="ms")
        require_range("jitter_ratio", self.jitter_ratio, 0.0, 0.9)


class Backpressure:
    """The pause of one replica. `until_ms` is when it may be asked again."""

    __slots__ = ("_config", "_streak", "answers", "until_ms")

    def __init__(self, config: BackpressureConfig) -> None:
        self._config = config
        self._streak = 0
        self.answers = 0
        self.until_ms = 0.0

    def busy(self, retry_after_ms: float | None, rng: random.Random, now_ms: float) -> None:
        """It said busy, and perhaps when to come back."""
        self.answers += 1
        if now_ms < self.until_ms:
            return
        config = self._config
        asked_ms = retry_after_ms
        if asked_ms is None or asked_ms <= 0.0:
            asked_ms = config.first_ms * 2.0 ** min(self._streak, 10)
        self._streak += 1
        jitter = 1.0 + config.jitter_ratio * (2.0 * rng.random() - 1.0)
        self.until_ms = now_ms + min(asked_ms * jitter, config.longest_ms)

    def at_least(self, until_ms: float) -> None:
        """Somebody who shares its places heard that it is busy."""
        self.until_ms = max(self.until_ms, until_ms)

    def free(self) -> None:
        """It served something: the next pause starts short again."""
        self._streak = 0
