"""How many batches may run at once: a limit that can change while they run.

Replacing a semaphore by a new one of another size forgets who still holds the old one, so
for a while both sets run: old running + new limit. Here there is one count. `resize` only
moves the bar it is compared with, so

    running <= max(running when the limit was lowered, new limit)

at every instant: after a cut nothing new starts until enough of the old has ended, after a
raise the free places are there at once.

A slot is a guard. It is given back exactly once, on whatever path its batch ends; giving it
back twice is a bug and raises, because a silent second release would widen the limit for
ever.
"""

from engine.errors import BrokenInvariant, require_range

_MOST_SLOTS = 65_536


class Slot:
    """The right to run one batch. Give it back with `release`, exactly once."""

    __slots__ = ("_held", "_limit")

    def __init__(self, limit: "ResizableLimit") -> None:
        self._limit = limit
        self._held = True

    @property
    def held(self) -> bool:
        return self._held

    def release(self) -> None:
        if not self._held:
            raise BrokenInvariant("a slot was released twice")
        self._held = False
        self._limit._give_back()


class ResizableLimit:
    """A counting limit. `limit` is how many may run, `in_use` how many do."""

    __slots__ = ("_in_use", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = _checked(limit)
        self._in_use = 0

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def in_use(self) -> int:
        return self._in_use

    @property
    def free(self) -> int:
        """How many could start now: never negative, also right after a cut."""
        return max(0, self._limit - self._in_use)

    def try_acquire(self) -> Slot | None:
        """A slot, or None where the limit is reached."""
        if self._in_use >= self._limit:
            return None
        self._in_use += 1
        return Slot(self)

    def resize(self, limit: int) -> None:
        """Set the limit. What runs goes on running."""
        self._limit = _checked(limit)

    def _give_back(self) -> None:
        self._in_use -= 1


def _checked(limit: int) -> int:
    return int(require_range("limit", limit, 1, _MOST_SLOTS, unit="batches at a time"))
