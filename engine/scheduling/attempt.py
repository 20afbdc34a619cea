"""One batch at one replica: what was sent, under which lease, and who still waits for it.

An attempt ends exactly once, by `Scheduler.complete`. Members may leave earlier (their
client left, their own deadline passed, a hedge won); when nobody is left the attempt is
aborted, and its replica stays counted as busy until the attempt truly ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.batching.former import BatchPlan
from engine.outcomes import Outcome
from engine.routing.lease import Lease
from engine.routing.router import RouteDecision
from engine.scheduling.ticket import DONE, Ticket

if TYPE_CHECKING:
    from engine.scheduling.pool import Pool


class Attempt:
    """A dispatched batch. `hedge_of` is the attempt it duplicates, `rival` its duplicate."""

    __slots__ = (
        "abort_outcome",
        "aborted",
        "answered_ms",
        "hedge_of",
        "lease",
        "lease_id",
        "longest",
        "members",
        "plan",
        "pool",
        "rival",
        "route",
        "started_ms",
        "work",
    )

    def __init__(
        self,
        lease_id: int,
        pool: Pool,
        lease: Lease,
        members: list[Ticket],
        plan: BatchPlan,
        route: RouteDecision | None,
        started_ms: float,
        hedge_of: Attempt | None = None,
    ) -> None:
        self.lease_id = lease_id
        self.pool = pool
        self.lease = lease
        self.members = members
        self.plan = plan
        self.route = route
        self.started_ms = started_ms
        self.hedge_of = hedge_of
        self.rival: Attempt | None = None
        self.aborted = False
        self.abort_outcome: Outcome | None = None
        self.answered_ms: float | None = None  # the first byte of a stream
        work = longest = 0.0
        for member in members:
            work += member.work
            each = member.work / member.items
            if each > longest:
                longest = each
        self.work = work
        self.longest = longest

    @property
    def items(self) -> int:
        return sum(member.items for member in self.members)

    @property
    def streaming(self) -> bool:
        """Whether it began to answer."""
        return self.answered_ms is not None

    def waiting(self) -> list[Ticket]:
        """The members that have not been answered yet."""
        return [member for member in self.members if member.state != DONE]

    def next_deadline_ms(self) -> float | None:
        """When the next unanswered member gives up, or None where nobody waits."""
        soonest: float | None = None
        for member in self.members:
            if member.state == DONE:
                continue
            limit = member.request.deadline_ms
            if not self.streaming:
                first = member.request.first_token_deadline_ms
                if first is not None and first < limit:
                    limit = first
            if soonest is None or limit < soonest:
                soonest = limit
        return soonest
