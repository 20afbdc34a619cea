"""What to do when most of the fleet looks broken: believe the breakers less, but not blindly.

    panic = more than half of the available replicas have tripped

In panic nothing is ejected. A tripped replica takes traffic again, at a pace that its last
answers earn: at once and up to its ceiling while they were successes; after f faults in a
row, one request at a time and a pause of 50 ms x 2^(f-1) (at most 1 s, jittered) before each.

So a fleet with 30 % random errors is served at 70 %, over all of its replicas, instead of
being switched off by its own breakers; and a fleet that is dead costs each replica one
request a second, by which its recovery is noticed within a second. Requests that can wait
for the next turn wait, the others are told when it is. The classic panic rule (Envoy: ignore
health, spread over all) has no pace. Where free replicas *pull* work it must have one: a
replica that fails in 2 ms is free again in 2 ms and would eat the whole queue.
"""

import random
from dataclasses import dataclass

from engine.errors import require_positive, require_range


@dataclass(slots=True, frozen=True, kw_only=True)
class PanicConfig:
    """`max_ejected_ratio` of the available replicas may be ejected; more is panic."""

    max_ejected_ratio: float = 0.5
    first_pause_ms: float = 50.0
    longest_pause_ms: float = 1_000.0
    jitter_ratio: float = 0.2

    def __post_init__(self) -> None:
        require_range("max_ejected_ratio", self.max_ejected_ratio, 0.0, 1.0)
        require_positive("first_pause_ms", self.first_pause_ms, unit="ms")
        require_range("longest_pause_ms", self.longest_pause_ms, self.first_pause_ms, unit="ms")
        require_range("jitter_ratio", self.jitter_ratio, 0.0, 0.9)


class PanicPace:
    """How often a tripped replica is tried in panic."""

    __slots__ = ("_config", "_faults", "until_ms")

    def __init__(self, config: PanicConfig) -> None:
        self._config = config
        self._faults = 0
        self.until_ms = 0.0

    def faulted(self, rng: random.Random, now_ms: float) -> None:
        config = self._config
        pause_ms = config.first_pause_ms * 2.0 ** min(self._faults, 20)
        self._faults += 1
        jitter = 1.0 + config.jitter_ratio * (2.0 * rng.random() - 1.0)
        self.until_ms = now_ms + min(pause_ms * jitter, config.longest_pause_ms)

    def succeeded(self) -> None:
        self._faults = 0
        self.until_ms = 0.0

    def full(self, in_flight: int) -> bool:
        """Whether the replica has all that its last answers earn."""
        return self._faults > 0 and in_flight > 0
