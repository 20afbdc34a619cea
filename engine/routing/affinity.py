"""Send a key where its state is warm, unless that replica already has more than its share.

A session's cache, a prompt's prefix, a model's weights: whatever `key` stands for is warm
where it ran last. The key's place on the ring gives an order of replicas, the first two are
its *home set*, and the first that is free, within its bound and warm takes the request:

    bound = max(ceil(average), floor(1.25 x average)) in flight, in proportion to weight

Without the bound the most popular key of a Zipf 1.1 mix alone overloads its node (consistent
hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam, SODA 2018). What does not fit
spills to the next distinct node on the ring, always the same one, so the spill warms up too.

Where the caller names a `model`, warm means that the replica has it in memory. A warm replica
further along is preferred to a cold home, so a ring change moves a model only once it is warm
in its new place. Where all are cold the first with memory to spare loads it.

Urgency widens the choice: high priority takes the best *score* of four, critical of four and
two free ones drawn at random. A deadline that the choice would miss drops affinity.
"""

import random
from dataclasses import dataclass
from math import ceil, floor

from engine.errors import require_range
from engine.routing.decision import Rule
from engine.routing.hash_ring import HashRing
from engine.routing.p2c import Scored
from engine.routing.replica_state import ReplicaState
from engine.routing.roster import Roster
from engine.types import Priority


@dataclass(slots=True, frozen=True, kw_only=True)
class AffinityConfig:
    """`reach` is how many distinct nodes along the ring are looked at in all."""

    load_factor: float = 1.25
    homes: int = 2
    urgent_width: int = 4
    reach: int = 8
    memory_full_ratio: float = 0.95

    def __post_init__(self) -> None:
        require_range("load_factor", self.load_factor, 1.0, 10.0)
        require_range("homes", self.homes, 1, self.reach)
        require_range("urgent_width", self.urgent_width, 1, self.reach)
        require_range("reach", self.reach, 1, 64)
        require_range("memory_full_ratio", self.memory_full_ratio, 0.0, 1.0)


@dataclass(slots=True, kw_only=True)
class Preference:
    """What affinity goes by. `within_ms` is what the deadline leaves."""

    key: str
    model: str | None
    tried: tuple[str, ...]
    priority: Priority
    within_ms: float | None


class Affinity:
    """Chooses along the ring."""

    __slots__ = ("_config",)

    def __init__(self, config: AffinityConfig) -> None:
        self._config = config

    def choose(
        self,
        wish: Preference,
        ring: HashRing,
        roster: Roster,
        rng: random.Random,
        now_ms: float,
    ) -> tuple[ReplicaState, Rule, Scored] | None:
        """The replica for this key, or None where affinity should not decide."""
        warm, cold = self._candidates(wish, ring, roster)
        if wish.priority >= Priority.HIGH:
            choice = self._urgent(wish, warm or cold, roster, rng, now_ms)
        elif warm:
            position, state = warm[0]
            if position < self._config.homes:
                choice = state, Rule.HOME
            else:
                choice = state, Rule.SPILL if wish.model is None else Rule.WARM
        elif cold:
            choice = self._with_room(cold)
        else:
            return None
        if choice is None:
            return None
        state, rule = choice
        if wish.within_ms is not None:
            idle = state.in_flight == 0
            expected_ms = state.latency.read_ms(roster.median_ms, idle, now_ms)
            if expected_ms > wish.within_ms:
                return None
        looked_at = tuple((s, float(s.in_flight)) for _, s in (warm or cold)[:4])
        return state, rule, looked_at

    def _candidates(
        self, wish: Preference, ring: HashRing, roster: Roster
    ) -> tuple[list[tuple[int, ReplicaState]], list[tuple[int, ReplicaState]]]:
        """(warm, cold): free replicas within their bound, in ring order, with position."""
        config = self._config
        average = (roster.in_flight + 1) / max(roster.usable, 1)
        bound = max(ceil(average), floor(average * config.load_factor))
        by_id = roster.by_id
        model = wish.model
        urgent = wish.priority >= Priority.HIGH
        warm: list[tuple[int, ReplicaState]] = []
        cold: list[tuple[int, ReplicaState]] = []
        for position, name in enumerate(ring.walk(wish.key)):
            if position >= config.reach:
                break
            state = by_id.get(name)
            if state is None or state.slot < 0 or name in wish.tried:
                continue
            if state.in_flight + 1 > max(1.0, bound * state.weight / roster.mean_weight):
                continue
            if model is not None and model not in state.loaded_models:
                cold.append((position, state))
                continue
            warm.append((position, state))
            if not urgent:
                break
            if len(warm) >= config.urgent_width:
                break
        return warm, cold

    def _with_room(self, cold: list[tuple[int, ReplicaState]]) -> tuple[ReplicaState, Rule]:
        """The first that need not evict another model for this one, else the first."""
        full = self._config.memory_full_ratio
        for position, state in cold:
            if state.gpu_memory_ratio is None or state.gpu_memory_ratio < full:
                return state, Rule.HOME if position < self._config.homes else Rule.SPILL
        position, state = cold[0]
        return state, Rule.HOME if position < self._config.homes else Rule.SPILL

    def _urgent(
        self,
        wish: Preference,
        ordered: list[tuple[int, ReplicaState]],
        roster: Roster,
        rng: random.Random,
        now_ms: float,
    ) -> tuple[ReplicaState, Rule] | None:
        candidates = [state for _, state in ordered[: self._config.urgent_width]]
        if wish.priority >= Priority.CRITICAL:
            free = roster.free
            for _ in range(2):
                extra = free[int(rng.random() * len(free))]
                if extra.replica_id not in wish.tried:
                    candidates.append(extra)
        if not candidates:
            return None
        return min(candidates, key=lambda state: state.score(now_ms)), Rule.WIDENED
