"""The right to occupy one place at a replica, given back exactly once.

A lease remembers what it was when it was taken: when, in which generation of the breaker,
and whether it is one of the probes of a half-open replica. Whoever holds it releases it with
how the attempt ended, on every path: success, fault, busy, client error, cancelled, lost
hedge, out of time. A second release raises; a counter that can be given back twice is a
counter that goes negative, and then a ceiling of 8 admits 9.

What breaks without it: a probe whose client hung up keeps its permit for ever, and a healed
replica is never let back in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import BrokenInvariant
from engine.outcomes import Outcome

if TYPE_CHECKING:
    from engine.routing.replica_state import ReplicaState


class Lease:
    """One place at `replica`, taken at `taken_ms`."""

    __slots__ = (
        "begun",
        "generation",
        "is_probe",
        "released",
        "replica",
        "replica_id",
        "taken_ms",
    )

    def __init__(
        self, replica: ReplicaState, generation: int, is_probe: bool, taken_ms: float
    ) -> None:
        self.replica = replica
        self.replica_id = replica.replica_id
        self.generation = generation
        self.is_probe = is_probe
        self.taken_ms = taken_ms
        self.begun = False
        self.released = False

    def begin(self, now_ms: float) -> bool:
        """The first byte of a stream came. Returns whether the replica now takes more at once."""
        self.begun = True
        return self.replica.began(self, now_ms)

    def release(
        self, outcome: Outcome, latency_ms: float | None, now_ms: float, size: float = 1.0
    ) -> None:
        """The attempt ended. `latency_ms` is its time to the first byte, or to the answer;
        None where nothing was measured (then the time since the lease was taken counts).
        `size` is how many times longer than a usual one it had to take."""
        if self.released:
            raise BrokenInvariant(f"a lease of {self.replica_id} was released twice")
        self.released = True
        elapsed_ms = now_ms - self.taken_ms if latency_ms is None else latency_ms
        self.replica.released(self, outcome, elapsed_ms, now_ms, size)
