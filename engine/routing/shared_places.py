"""One process, several models: seats that share its places.

A replica that serves several models has one *seat* for each: a `ReplicaState` with a breaker,
a latency and a cost of its own, because a model that fails or is slow says little of the next
one. What they share is the process: its places. A lease of any seat counts at every other one
(`elsewhere`), so that together they never hold more than the ceiling, and the score of each
sees the load of all.

    seat.in_flight + seat.elsewhere = leases out at the process, at every seat

A busy answer is said of the places too: every seat pauses until the same moment. What a seat
does not share: a dead process is found out by each seat's own breaker (its readiness probe
speaks to all of them). Each fleet counts the whole ceiling as its capacity, so where seats are
shared a quote is optimistic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.routing.replica_state import ReplicaState


class SharedPlaces:
    """The places of one process. A seat that left still gives back through it."""

    __slots__ = ("in_flight", "seats")

    def __init__(self, first: ReplicaState) -> None:
        self.seats = [first]
        self.in_flight = first.in_flight
        first.shared = self

    def join(self, seat: ReplicaState, now_ms: float) -> None:
        """One more model is served from the same places."""
        seat.shared = self
        seat.elsewhere = self.in_flight
        self.seats.append(seat)
        seat.surroundings.changed(seat, now_ms)

    def leave(self, seat: ReplicaState) -> None:
        """A model is served no more; its leases count until they end."""
        self.seats.remove(seat)

    def taken(self, by: ReplicaState, now_ms: float) -> None:
        """A seat took a place: it is gone for the others too."""
        self.in_flight += 1
        for seat in self.seats:
            if seat is not by:
                seat.elsewhere += 1
                if seat.in_flight + seat.elsewhere >= seat.ceiling:
                    seat.surroundings.changed(seat, now_ms)

    def given_back(self, by: ReplicaState, now_ms: float) -> None:
        """A lease ended: the others may use its place."""
        self.in_flight -= 1
        for seat in self.seats:
            if seat is not by:
                seat.elsewhere -= 1
                if seat.slot < 0:
                    seat.surroundings.changed(seat, now_ms)

    def busy(self, by: ReplicaState, until_ms: float, now_ms: float) -> None:
        """The process told one seat that it has no place: none of the others asks before it."""
        for seat in self.seats:
            if seat is not by:
                seat.busy.at_least(until_ms)
                seat.surroundings.changed(seat, now_ms)
