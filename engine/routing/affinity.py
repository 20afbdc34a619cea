"""Send a key where its state is warm, unless that replica already has more than its share.

A session's cache, a prompt's prefix, a model's weights: whatever `key` stands for is warm
where it ran last. The key's place on the ring gives an order of replicas, the first two are
its *home set*, and the first that is free and within its bound takes the request:

    bound = max(ceil(average), floor(1.25 x average)) in flight, in proportion to weight

What waits inside a replica beyond our own counts as in flight there: others use it too.

Without the bound the most popular key of a Zipf 1.1 mix alone overloads its node (consistent
hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam, SODA 2018). What does not fit
spills to the next distinct node on the ring, always the same one, so the spill warms up too.

Where the caller names a `model`, warm means that the replica has it in memory (one that says
nothing of its memory has the benefit of the doubt), and a warm replica anywhere in reach
beats a cold home: a ring change moves a model only once it is warm in its new place. Where
the bound leaves only cold ones the bound yields; where every warm one is full the request
waits for one, but that a model may be loaded once more every `copy_every_ms`. Each load
evicts something that somebody else wants: unbridled, the loads fill the places, which makes
more warm replicas full, which makes more loads.

Urgency widens the choice: high priority takes the best *score* of four, critical of four and
two free ones drawn at random. A deadline that the choice would miss drops affinity.
"""

import random
from collections import OrderedDict
from dataclasses import dataclass
from math import ceil, floor

from engine.errors import require_range
from engine.routing.decision import Rule
from engine.routing.hash_ring import HashRing
from engine.routing.p2c import Scored
from engine.routing.replica_state import ReplicaState
from engine.routing.roster import Roster
from engine.types import Priority

_MODELS_REMEMBERED = 1024


@dataclass(slots=True, frozen=True, kw_only=True)
class AffinityConfig:
    """`reach` is how many distinct nodes along the ring are looked at in all."""

    load_factor: float = 1.25
    homes: int = 2
    urgent_width: int = 4
    reach: int = 8
    memory_full_ratio: float = 0.95
    copy_every_ms: float = 2_000.0

    def __post_init__(self) -> None:
        require_range("load_factor", self.load_factor, 1.0, 10.0)
        require_range("homes", self.homes, 1, self.reach)
        require_range("urgent_width", self.urgent_width, 1, self.reach)
        require_range("reach", self.reach, 1, 64)
        require_range("memory_full_ratio", self.memory_full_ratio, 0.0, 1.0)
        require_range("copy_every_ms", self.copy_every_ms, 0.0, unit="ms")


@dataclass(slots=True, kw_only=True)
class Preference:
    """What affinity goes by. `within_ms` is what the deadline leaves."""

    key: str
    model: str | None
    tried: tuple[str, ...]
    priority: Priority
    within_ms: float | None


class WaitForWarm:
    """The answer where waiting for a warm replica beats loading the model once more."""


WAIT_FOR_WARM = WaitForWarm()
Placed = tuple[ReplicaState, Rule, Scored]
_At = list[tuple[int, ReplicaState]]  # position along the ring, replica


class _Candidates:
    """The free replicas in reach, in ring order, by how well they suit."""

    __slots__ = ("cold", "over", "warm", "warm_is_full")

    def __init__(self) -> None:
        self.warm: _At = []  # within the bound
        self.over: _At = []  # warm, past the bound
        self.cold: _At = []
        self.warm_is_full = False  # a warm one exists, at its ceiling


class Affinity:
    """Chooses along the ring, and remembers when each model was last loaded."""

    __slots__ = ("_config", "_loaded_ms")

    def __init__(self, config: AffinityConfig) -> None:
        self._config = config
        self._loaded_ms: OrderedDict[str, float] = OrderedDict()

    def choose(
        self,
        wish: Preference,
        ring: HashRing,
        roster: Roster,
        rng: random.Random,
        now_ms: float,
    ) -> Placed | WaitForWarm | None:
        """The replica for this key; `WAIT_FOR_WARM`; or None where affinity should not decide."""
        found = self._candidates(wish, ring, roster)
        suited = found.warm
        if not suited and wish.model is not None:
            suited = found.over
        if wish.priority >= Priority.HIGH:
            choice = self._most_urgent(wish, suited or found.cold, roster, rng, now_ms)
        elif suited:
            choice = suited[0][1], self._rule(suited[0][0], wish)
        elif found.cold:
            if found.warm_is_full and not self._may_copy(wish, now_ms):
                return WAIT_FOR_WARM
            choice = self._with_room(found.cold, wish, now_ms)
        else:
            return WAIT_FOR_WARM if found.warm_is_full else None
        if choice is None:
            return None
        state, rule = choice
        if wish.within_ms is not None:
            idle = state.in_flight == 0
            if state.latency.read_ms(roster.median_ms, idle, now_ms) > wish.within_ms:
                return None
        looked_at = (suited or found.cold)[: self._config.urgent_width]
        return state, rule, tuple((other, float(other.in_flight)) for _, other in looked_at)

    def _candidates(self, wish: Preference, ring: HashRing, roster: Roster) -> _Candidates:
        config = self._config
        average = (roster.in_flight + 1) / max(roster.usable, 1)
        bound = max(ceil(average), floor(average * config.load_factor))
        model = wish.model
        enough = config.urgent_width if wish.priority >= Priority.HIGH else 1
        found = _Candidates()
        for position, name in enumerate(ring.walk(wish.key)):
            if position >= config.reach:
                break
            state = roster.by_id.get(name)
            if state is None or name in wish.tried:
                continue
            loaded = state.loaded_models
            is_warm = model is None or not loaded or model in loaded
            ours = state.in_flight + state.elsewhere
            if state.slot < 0:
                if is_warm and model is not None and ours >= state.ceiling:
                    found.warm_is_full = True
                continue
            others = max(state.queued - ours, 0)  # a queue we cannot have made
            load = ours + others + 1
            within = load <= max(1.0, bound * state.weight / roster.mean_weight)
            if not is_warm:
                found.cold.append((position, state))
            elif not within:
                found.over.append((position, state))
            else:
                found.warm.append((position, state))
                if len(found.warm) >= enough:
                    break
        return found

    def _rule(self, position: int, wish: Preference) -> Rule:
        if position < self._config.homes:
            return Rule.HOME
        return Rule.SPILL if wish.model is None else Rule.WARM

    def _may_copy(self, wish: Preference, now_ms: float) -> bool:
        loaded_ms = self._loaded_ms.get(wish.model or "")
        return loaded_ms is None or now_ms - loaded_ms >= self._config.copy_every_ms

    def _with_room(self, cold: _At, wish: Preference, now_ms: float) -> tuple[ReplicaState, Rule]:
        """The first that need not evict another model for this one, else the first."""
        if wish.model is not None:
            self._loaded_ms[wish.model] = now_ms
            self._loaded_ms.move_to_end(wish.model)
            if len(self._loaded_ms) > _MODELS_REMEMBERED:
                self._loaded_ms.popitem(last=False)
        full = self._config.memory_full_ratio
        roomy = (
            (position, state)
            for position, state in cold
            if state.gpu_memory_ratio is None or state.gpu_memory_ratio < full
        )
        position, state = next(roomy, cold[0])
        return state, Rule.HOME if position < self._config.homes else Rule.SPILL

    def _most_urgent(
        self,
        wish: Preference,
        ordered: _At,
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
