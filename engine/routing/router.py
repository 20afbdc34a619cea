"""The choice: one free replica for one request or batch, by the model's strategy.

    peak_ewma      the better of two random free replicas, by score
    affinity       along the hash ring, where a key is given; else as peak_ewma
    least_loaded   the better of two by load over health; `requestType: update` always
    round_robin    in turn, for comparison

A replica whose breaker is half open comes first: it needs real requests to prove itself, and
as the worst-scored member of the fleet it would never win a comparison. Urgent requests and
second attempts are not used for that.

Choosing takes nothing: whoever uses the decision acquires the lease. It makes no call, and
its cost does not grow with the fleet.
"""

import random
from dataclasses import dataclass, field
from functools import partial

from engine.errors import require_range
from engine.routing import p2c
from engine.routing.affinity import Affinity, AffinityConfig, Preference, WaitForWarm
from engine.routing.decision import RouteDecision, Rule
from engine.routing.panic import PanicConfig
from engine.routing.replica_state import ReplicaState
from engine.routing.roster import Roster
from engine.routing.staged_ring import RingConfig, StagedRing
from engine.types import Priority, RequestType, Strategy

__all__ = ["RouteDecision", "Router", "RouterConfig", "Rule"]

_score = ReplicaState.score
_load = ReplicaState.load


@dataclass(slots=True, frozen=True, kw_only=True)
class RouterConfig:
    """`turn_reach` bounds how far round robin looks for a free replica."""

    affinity: AffinityConfig = field(default_factory=AffinityConfig)
    ring: RingConfig = field(default_factory=RingConfig)
    panic: PanicConfig = field(default_factory=PanicConfig)
    turn_reach: int = 16

    def __post_init__(self) -> None:
        require_range("turn_reach", self.turn_reach, 1, 1024)


class Router:
    """Chooses among the replicas of one model version."""

    __slots__ = ("_affinity", "_config", "_ring", "_rng", "_turn", "_turns", "roster")

    def __init__(
        self, config: RouterConfig | None = None, rng: random.Random | None = None
    ) -> None:
        self._config = config or RouterConfig()
        self._rng = rng or random.Random(0)
        self._affinity = Affinity(self._config.affinity)
        self._ring = StagedRing(self._config.ring)
        self._turns: list[ReplicaState] = []
        self._turn = 0
        self.roster = Roster(self._config.panic)

    # -- membership ------------------------------------------------------------------

    def set_replicas(self, states: list[ReplicaState], now_ms: float) -> None:
        """These are the replicas now. Leases and what was learned stay with them."""
        self.roster.set_replicas(states, now_ms)
        self._ring.want((state.spec.replica_id for state in states), now_ms)
        self._turns = list(states)

    # -- choosing --------------------------------------------------------------------

    def pick(
        self,
        now_ms: float,
        *,
        tried: tuple[str, ...] = (),
        key: str | None = None,
        strategy: Strategy = Strategy.PEAK_EWMA,
        request_type: RequestType = RequestType.INFER,
        priority: Priority = Priority.NORMAL,
        model: str | None = None,
        within_ms: float | None = None,
    ) -> RouteDecision | None:
        """A free replica outside `tried`, or None. O(1) in the number of replicas.

        `model` names what must be in memory for affinity to call a replica warm; where all
        warm ones are full the answer may be None though cold ones are free: wait for a lease
        to end. `within_ms` is what the deadline leaves, past which affinity is dropped.
        """
        roster = self.roster
        if now_ms >= roster.due_ms:
            roster.advance(now_ms)
        free = roster.free
        if not free:
            return None
        if roster.probing and priority < Priority.HIGH and not tried:
            replica = next(iter(roster.probing))
            scored = ((replica, replica.score(now_ms)),)
            return RouteDecision(replica, Rule.PROBE, scored, roster.panic)
        rate: p2c.Rate = _score
        rule = Rule.TWO_CHOICES
        if strategy is not Strategy.PEAK_EWMA or request_type is RequestType.UPDATE:
            if request_type is RequestType.UPDATE or strategy is Strategy.LEAST_LOADED:
                rate = _load if model is None else partial(ReplicaState.load, model=model)
                rule = Rule.LEAST_LOADED
            elif strategy is Strategy.AFFINITY and key is not None:
                wish = Preference(
                    key=key, model=model, tried=tried, priority=priority, within_ms=within_ms
                )
                ring = self._ring.current(now_ms)
                found = self._affinity.choose(wish, ring, roster, self._rng, now_ms)
                if isinstance(found, WaitForWarm):
                    return None
                if found is not None:
                    return RouteDecision(*found, roster.panic)
                rule = Rule.LET_GO
            elif strategy is Strategy.ROUND_ROBIN:
                in_turn = self._next_in_turn(tried)
                if in_turn is not None:
                    return RouteDecision(in_turn, Rule.ROUND_ROBIN, (), roster.panic)
        choice = p2c.choose(free, tried, rate, self._rng, now_ms)
        if choice is None:
            return None
        return RouteDecision(choice[0], rule, choice[1], roster.panic)

    def _next_in_turn(self, tried: tuple[str, ...]) -> ReplicaState | None:
        turns = self._turns
        for _ in range(min(len(turns), self._config.turn_reach)):
            replica = turns[self._turn % len(turns)]
            self._turn += 1
            if replica.slot >= 0 and replica.replica_id not in tried:
                return replica
        return None

    # -- telling ---------------------------------------------------------------------

    @property
    def panic(self) -> bool:
        """Whether ejections are suspended because most of the fleet has tripped."""
        return self.roster.panic

    def utilisation(self, now_ms: float) -> float:
        """Leases out over places of the replicas in service; 1 where none is."""
        self.roster.advance(now_ms)
        capacity = self.roster.capacity
        return self.roster.in_flight / capacity if capacity > 0 else 1.0

    def next_change_ms(self, now_ms: float) -> float | None:
        """When time alone brings a replica back, or None."""
        self.roster.advance(now_ms)
        return self.roster.next_timer_ms()

    def earliest_probe_ms(self, now_ms: float) -> float | None:
        """When a replica can take work: now where one serves (be it full), later where all
        are ejected or asked for a pause, None where only an event can bring one back."""
        self.roster.advance(now_ms)
        if self.roster.usable > 0:
            return now_ms
        return self.roster.next_timer_ms()
