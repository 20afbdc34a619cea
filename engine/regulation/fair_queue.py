"""Who goes next: weighted fair queueing over any number of classes, each with a bounded queue.

Strict priority starves the lower class for as long as the upper one is busy; first come,
first served lets a flood of one class delay the other. Start-time fair queueing (Goyal, Vin,
Cheng 1996) gives each backlogged class its share *by work*:

    start  = the class's finish tag        (raised to V when it wakes from empty)
    finish = start + work / weight
    serve the smallest finish; V = its start; the class's finish tag = its finish

So with weights 3 and 1 and both backlogged, the first gets 3/4 of the work; alone, each gets
everything, and a class that slept has saved up nothing. Within a class: first in, first out.

Each class holds at most its `capacity` entries: a full queue is an answer at once
(`offer` returns None), where a long one would be a timeout later. An entry that leaves early
(cancelled, expired) is removed in O(1) and skipped when its turn comes.

Units: work in whatever the caller counts (requests, tokens); times in ms.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.errors import InvalidInput, UnknownName, require_positive, require_range


@dataclass(slots=True, frozen=True, kw_only=True)
class QueueClass:
    """A priority class: its share under contention and how many entries may wait in it."""

    name: str
    weight: float = 1.0
    capacity: int = 500

    def __post_init__(self) -> None:
        require_positive("weight", self.weight)
        require_range("capacity", self.capacity, 1, 1_000_000, unit="entries")


@dataclass(slots=True, eq=False, kw_only=True)
class Waiting[T]:
    """An entry in the queue. `items` is the number of batch places it takes."""

    item: T
    priority: str
    arrived_ms: float
    expires_ms: float
    work: float = 1.0
    items: int = 1
    queued: bool = True


@dataclass(slots=True, eq=False)
class _Class[T]:
    """A class's queue and its finish tag on the virtual clock."""

    spec: QueueClass
    entries: deque[Waiting[T]] = field(default_factory=deque)
    depth: int = 0
    finish: float = 0.0

    def head(self) -> Waiting[T] | None:
        entries = self.entries
        while entries and not entries[0].queued:
            entries.popleft()
        return entries[0] if entries else None


class FairQueue[T]:
    """Weighted fair queueing over `classes`. O(classes) to serve, O(log n) to expire."""

    def __init__(self, classes: Sequence[QueueClass]) -> None:
        if not classes:
            raise InvalidInput("classes", [], "needs at least one class")
        self._classes: dict[str, _Class[T]] = {spec.name: _Class(spec) for spec in classes}
        if len(self._classes) != len(classes):
            raise InvalidInput("classes", [s.name for s in classes], "names must differ")
        self._expiries: list[tuple[float, int, Waiting[T]]] = []
        self._sequence = 0
        self._virtual = 0.0

    def __len__(self) -> int:
        return sum(queue.depth for queue in self._classes.values())

    @property
    def classes(self) -> list[QueueClass]:
        return [queue.spec for queue in self._classes.values()]

    def depth(self, priority: str) -> int:
        """How many entries of this class wait."""
        return self._of(priority).depth

    def ahead(self, priority: str) -> float:
        """How many entries will be served before one of this class that enters now.

        Those of its own class, and of each other class what its weight lets past them.
        """
        own = self._of(priority)
        ahead = float(own.depth)
        for queue in self._classes.values():
            if queue is not own:
                ahead += min(queue.depth, (own.depth + 1) * queue.spec.weight / own.spec.weight)
        return ahead

    def offer(
        self,
        item: T,
        *,
        priority: str,
        now_ms: float,
        expires_ms: float,
        work: float = 1.0,
        items: int = 1,
    ) -> Waiting[T] | None:
        """Take an entry in, or None where its class is full."""
        require_positive("work", work)
        queue = self._of(priority)
        if queue.depth >= queue.spec.capacity:
            return None
        if queue.depth == 0:
            queue.finish = max(queue.finish, self._virtual)
        entry = Waiting(
            item=item,
            priority=priority,
            arrived_ms=now_ms,
            expires_ms=expires_ms,
            work=work,
            items=items,
        )
        queue.entries.append(entry)
        queue.depth += 1
        self._sequence += 1
        heapq.heappush(self._expiries, (expires_ms, self._sequence, entry))
        return entry

    def peek(self) -> Waiting[T] | None:
        """The entry that `pop` would serve."""
        chosen = self._next()
        return None if chosen is None else chosen[1]

    def pop(self) -> Waiting[T] | None:
        """Serve the next entry, or None where nothing waits."""
        chosen = self._next()
        if chosen is None:
            return None
        queue, entry = chosen
        queue.entries.popleft()
        self._virtual = queue.finish
        queue.finish += entry.work / queue.spec.weight
        self._leave(queue, entry)
        return entry

    def remove(self, entry: Waiting[T]) -> bool:
        """Forget an entry whose client left. True if it was still waiting."""
        if not entry.queued:
            return False
        self._leave(self._of(entry.priority), entry)
        return True

    def expire(self, now_ms: float) -> list[Waiting[T]]:
        """Remove and return the entries whose time is up."""
        expired = []
        while (at_ms := self.next_expiry_ms()) is not None and at_ms <= now_ms:
            entry = heapq.heappop(self._expiries)[2]
            self._leave(self._of(entry.priority), entry)
            expired.append(entry)
        return expired

    def next_expiry_ms(self) -> float | None:
        """When the next entry's time is up, or None where nothing waits."""
        expiries = self._expiries
        while expiries and not expiries[0][2].queued:
            heapq.heappop(expiries)
        return expiries[0][0] if expiries else None

    def _of(self, priority: str) -> _Class[T]:
        try:
            return self._classes[priority]
        except KeyError:
            raise UnknownName("priority", priority, self._classes) from None

    def _next(self) -> tuple[_Class[T], Waiting[T]] | None:
        best: tuple[_Class[T], Waiting[T]] | None = None
        best_finish = 0.0
        for queue in self._classes.values():
            if queue.depth == 0:
                continue
            entry = queue.head()
            if entry is None:
                continue
            finish = queue.finish + entry.work / queue.spec.weight
            if best is None or finish < best_finish:
                best, best_finish = (queue, entry), finish
        return best

    @staticmethod
    def _leave(queue: _Class[T], entry: Waiting[T]) -> None:
        entry.queued = False
        queue.depth -= 1
