"""What a replica knows of the fleet around it, and whom it tells when it changes.

The roster of a router is the real one. `Alone` stands in for a replica that no router has
taken in yet: no median, no panic, nobody to tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.routing.replica_state import ReplicaState


class Surroundings(Protocol):
    """`median_ms` is the typical latency of the fleet's median replica, None if unknown."""

    median_ms: float | None
    panic: bool
    in_flight: int

    def changed(self, replica: ReplicaState, now_ms: float) -> None:
        """Something that decides whether `replica` may be chosen has changed."""
        ...

    def leave(self, replica: ReplicaState) -> None:
        """`replica` belongs to another fleet from now on."""
        ...


class Alone:
    """No fleet."""

    __slots__ = ("in_flight", "median_ms", "panic")

    def __init__(self) -> None:
        self.median_ms: float | None = None
        self.panic = False
        self.in_flight = 0

    def changed(self, replica: ReplicaState, now_ms: float) -> None:
        return

    def leave(self, replica: ReplicaState) -> None:
        return
