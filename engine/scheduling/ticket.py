"""The state of one request inside the engine, from admission to its single answer.

A `Ticket` is the queue entry itself (it extends `Queued`), so that the hot path builds one
object per admitted request. It moves queued -> running -> done, may go back to queued when
an attempt failed and another replica can still make the deadline, and reaches done exactly
once: `Ledger.settle` refuses a second time. What it collects on the way (split position,
queue length it met, the attempts with their batch plans and routes) is its decision record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.batching.former import Queued
from engine.errors import Refusal
from engine.types import Arm, Request

if TYPE_CHECKING:
    from engine.actions import ItemResult
    from engine.admission.permit import Permit
    from engine.scheduling.attempt import Attempt
    from engine.scheduling.pool import Pool

QUEUED = 0
RUNNING = 1
DONE = 2


class Ticket(Queued):
    """An admitted request. `running` counts its live attempts (a hedge makes it two)."""

    __slots__ = (
        "admitted_limit",
        "arm",
        "attempts",
        "finished_ms",
        "history",
        "met_queue",
        "outcome",
        "permit",
        "pool",
        "position",
        "refusal",
        "request",
        "running",
        "shadow",
        "state",
    )

    def __init__(
        self,
        request: Request,
        pool: Pool,
        arm: Arm,
        position: float | None,
        permit: Permit | None,
        work: float,
        weight: float,
        *,
        shadow: bool = False,
    ) -> None:
        # the parent's fields, set here because its generated __init__ is keyword-only and slow
        self.ticket = None
        self.work = work
        self.deadline_ms = request.deadline_ms
        self.arrived_ms = request.arrived_ms
        self.items = request.items
        self.weight = weight
        self.lane = request.lane
        self.tried = ()
        self.split_group = None
        self.queued = False
        self.slot = None
        self.request = request
        self.pool = pool
        self.arm = arm
        self.position = position
        self.permit = permit
        self.shadow = shadow
        self.state = QUEUED
        self.running = 0
        self.attempts = 0
        self.history: tuple[Attempt, ...] = ()
        self.met_queue = 0
        self.admitted_limit: float | None = None
        self.finished_ms: float | None = None
        self.outcome: ItemResult | None = None
        self.refusal: Refusal | None = None

    def identity(self) -> str:
        return self.request.request_id

    @property
    def judged(self) -> bool:
        """Whether it counts as evidence: a tester's override does not."""
        return self.request.version is None
