"""Who is free? Kept current by the replicas themselves, so that choosing costs O(1).

Every replica is filed in one of four places, by `why_not`:

    FREE    may be chosen; sits in `free`, a dense list (removal swaps the last one in)
    BUSY    full, or half open with its probes out: the end of a lease brings it back
    TIMED   ejected, or told us to wait: a heap of instants brings it back
    OUT     draining or not ready: only an event brings it back

A replica calls `changed` when something that decides this has changed, and is filed anew.
Scanning the fleet for a free replica instead costs most exactly when most are at their
ceiling, which is when the gateway is busiest. `advance` brings time: it fires due instants
and, once a second, takes the fleet's median latency anew.

The roster also counts how many available replicas have tripped, and declares panic where
they are more than half (see `panic`).
"""

from heapq import heappop, heappush
from typing import Protocol

from engine.routing import hard_gate
from engine.routing.breaker import BreakerState
from engine.routing.panic import PanicConfig
from engine.routing.replica_state import ReplicaState
from engine.routing.surroundings import Alone

_FREE, _BUSY, _TIMED, _OUT = range(4)
_NEVER_MS = float("inf")
REFRESH_MS = 1_000.0


class Watcher(Protocol):
    """Who wants to know when a breaker or the panic moves. Told after the fact."""

    def breaker_moved(self, replica: ReplicaState, now_ms: float) -> None: ...

    def panic_changed(self, roster: "Roster", now_ms: float) -> None: ...


class _Entry:
    """What the roster has noted of one replica."""

    __slots__ = ("available", "capacity", "generation", "place", "tripped", "until_ms")

    def __init__(self) -> None:
        self.place = _OUT
        self.until_ms = 0.0
        self.capacity = 0
        self.available = False
        self.tripped = False
        self.generation = 0


class Roster:
    """The replicas of one router. Implements `Surroundings` for them."""

    __slots__ = (
        "_available",
        "_config",
        "_counts",
        "_entries",
        "_refresh_ms",
        "_sequence",
        "_timers",
        "_tripped",
        "by_id",
        "capacity",
        "due_ms",
        "free",
        "in_flight",
        "mean_weight",
        "median_ms",
        "panic",
        "probing",
        "watcher",
    )

    def __init__(self, config: PanicConfig) -> None:
        self._config = config
        self._entries: dict[ReplicaState, _Entry] = {}
        self._timers: list[tuple[float, int, ReplicaState]] = []
        self._sequence = 0
        self._refresh_ms = 0.0
        self._counts = [0, 0, 0, 0]
        self._available = 0
        self._tripped = 0
        self.by_id: dict[str, ReplicaState] = {}
        self.free: list[ReplicaState] = []
        self.probing: dict[ReplicaState, None] = {}  # free, half open: want a probe
        self.in_flight = 0
        self.capacity = 0
        self.mean_weight = 1.0
        self.median_ms: float | None = None
        self.panic = False
        self.watcher: Watcher | None = None
        self.due_ms = 0.0  # `advance` has nothing to do before this

    def __len__(self) -> int:
        return len(self._entries)

    # -- membership ------------------------------------------------------------------

    def set_replicas(self, states: list[ReplicaState], now_ms: float) -> None:
        """These are the replicas now. Those that left keep their leases, and are let go."""
        wanted = dict.fromkeys(states)
        for gone in [state for state in self._entries if state not in wanted]:
            self.leave(gone)
            gone.surroundings = Alone()
        for state in wanted:
            if state not in self._entries:
                state.surroundings.leave(state)
                state.surroundings = self
                entry = self._entries[state] = _Entry()
                entry.generation = state.breaker.generation
        self.by_id = {state.spec.replica_id: state for state in states}
        self._refresh(now_ms)

    def leave(self, replica: ReplicaState) -> None:
        """Forget `replica`; another roster takes it, or none does."""
        entry = self._entries.pop(replica)
        self._unlist(replica)
        self.probing.pop(replica, None)
        self._counts[entry.place] -= 1
        self.capacity -= entry.capacity
        self.in_flight -= replica.in_flight

    # -- change ----------------------------------------------------------------------

    def changed(self, replica: ReplicaState, now_ms: float) -> None:
        """File `replica` anew, and see whether this begins or ends a panic."""
        entry = self._entries[replica]
        tripped = replica.breaker.state is not BreakerState.CLOSED
        available = replica.ready and not replica.spec.draining
        if tripped is not entry.tripped or available is not entry.available:
            self._tripped += (tripped and available) - (entry.tripped and entry.available)
            self._available += available - entry.available
            entry.tripped = tripped
            entry.available = available
            self._judge_panic(now_ms)
        if entry.generation != replica.breaker.generation:
            entry.generation = replica.breaker.generation
            if self.watcher is not None:
                self.watcher.breaker_moved(replica, now_ms)
        self._file(replica, entry, now_ms)

    def advance(self, now_ms: float) -> None:
        """Bring time forward to `now_ms`. Cheap to call when nothing is due."""
        if now_ms < self.due_ms:
            return
        timers = self._timers
        while timers and timers[0][0] <= now_ms:
            when_ms, _, replica = heappop(timers)
            entry = self._entries.get(replica)
            if entry is not None and entry.until_ms == when_ms:
                entry.until_ms = 0.0
                self.changed(replica, now_ms)
        if now_ms >= self._refresh_ms:
            self._refresh(now_ms)
        self._set_due()

    # -- asking ----------------------------------------------------------------------

    @property
    def tripped(self) -> int:
        """How many of the available replicas have a breaker that is not closed."""
        return self._tripped

    @property
    def available(self) -> int:
        """How many are ready and not draining."""
        return self._available

    @property
    def max_ejected_ratio(self) -> float:
        return self._config.max_ejected_ratio

    @property
    def usable(self) -> int:
        """How many could serve now or as soon as a lease ends."""
        return self._counts[_FREE] + self._counts[_BUSY]

    def next_timer_ms(self) -> float | None:
        """When the next replica comes back by time alone."""
        timers = self._timers
        while timers:
            when_ms, _, replica = timers[0]
            entry = self._entries.get(replica)
            if entry is not None and entry.until_ms == when_ms:
                return when_ms
            heappop(timers)
        return None

    # -- inside ----------------------------------------------------------------------

    def _file(self, replica: ReplicaState, entry: _Entry, now_ms: float) -> None:
        reason = replica.why_not(now_ms)
        capacity = replica.ceiling
        if reason is None:
            place = _FREE
        elif reason.is_timed:
            place = _TIMED
            capacity = 0
            until_ms = hard_gate.opens_ms(replica, reason)
            if until_ms != entry.until_ms:
                entry.until_ms = until_ms
                self._sequence += 1
                heappush(self._timers, (until_ms, self._sequence, replica))
                if until_ms < self.due_ms:
                    self.due_ms = until_ms
        elif reason.is_out:
            place = _OUT
            capacity = 0
        else:
            place = _BUSY
        if place != _TIMED:
            entry.until_ms = 0.0
        if place != entry.place:
            self._counts[entry.place] -= 1
            self._counts[place] += 1
            entry.place = place
        self.capacity += capacity - entry.capacity
        entry.capacity = capacity
        if place == _FREE:
            if replica.slot < 0:
                replica.slot = len(self.free)
                self.free.append(replica)
        elif replica.slot >= 0:
            self._unlist(replica)
        if entry.tripped:
            if place == _FREE and replica.breaker.state is BreakerState.HALF_OPEN:
                self.probing[replica] = None
            else:
                self.probing.pop(replica, None)
        elif self.probing:
            self.probing.pop(replica, None)

    def _unlist(self, replica: ReplicaState) -> None:
        slot = replica.slot
        if slot < 0:
            return
        replica.slot = -1
        last = self.free.pop()
        if last is not replica:
            self.free[slot] = last
            last.slot = slot

    def _judge_panic(self, now_ms: float) -> None:
        panic = self._tripped > self._available * self._config.max_ejected_ratio
        if panic is not self.panic:
            self.panic = panic
            if self.watcher is not None:
                self.watcher.panic_changed(self, now_ms)
            for replica, entry in self._entries.items():
                if entry.tripped:
                    self._file(replica, entry, now_ms)

    def _refresh(self, now_ms: float) -> None:
        """Count everything anew, and take the median. O(n log n), once a second."""
        self._refresh_ms = now_ms + REFRESH_MS
        entries = self._entries
        typical = sorted(s.latency.typical_ms for s in entries if s.latency.typical_ms is not None)
        self.median_ms = typical[len(typical) // 2] if typical else None
        self._counts = [0, 0, 0, 0]
        self._available = self._tripped = self.capacity = 0
        for replica, entry in entries.items():
            entry.tripped = replica.breaker.state is not BreakerState.CLOSED
            entry.available = replica.ready and not replica.spec.draining
            entry.capacity = 0
            self._counts[entry.place] += 1
            self._available += entry.available
            self._tripped += entry.tripped and entry.available
        self.in_flight = sum(state.in_flight for state in entries)
        if entries:
            self.mean_weight = sum(state.weight for state in entries) / len(entries)
        panic = self._tripped > self._available * self._config.max_ejected_ratio
        if panic is not self.panic:
            self.panic = panic
            if self.watcher is not None:
                self.watcher.panic_changed(self, now_ms)
        for replica, entry in entries.items():
            self._file(replica, entry, now_ms)
        self._set_due()

    def _set_due(self) -> None:
        timers = self._timers
        self.due_ms = min(timers[0][0] if timers else _NEVER_MS, self._refresh_ms)
