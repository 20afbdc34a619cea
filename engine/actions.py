"""What the scheduler tells its driver to do: three verbs, as data.

The asyncio driver and the simulator interpret the same actions. A `Dispatch` is answered
by exactly one `LeaseReport`; each admitted request ends in exactly one `Deliver`.
"""

from dataclasses import dataclass, field

from engine.errors import Refusal
from engine.outcomes import Outcome
from engine.types import Arm, FlushReason, Request


@dataclass(slots=True, eq=False)
class ItemResult:
    """What an attempt produced for one member. `payload` is opaque to the engine."""

    outcome: Outcome
    payload: object = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str | None = None
    status: int | None = None


@dataclass(slots=True, eq=False)
class LeaseReport:
    """How one dispatch ended.

    `items` is in the order of `Dispatch.requests`, or None where the attempt failed (or was
    refused) whole, with `outcome` saying how. `execution_ms` is as the replica measured it,
    `queued_at_replica` what it reports waiting, both None where it did not say.
    """

    outcome: Outcome
    items: list[ItemResult] | None = None
    execution_ms: float | None = None
    queued_at_replica: int | None = None
    retry_after_ms: float | None = None
    error: str | None = None
    status: int | None = None
    first_byte_ms: float | None = None  # from dispatch to the first byte of a stream


@dataclass(slots=True, eq=False, kw_only=True)
class Dispatch:
    """Send these requests to this replica, now, as one batch."""

    lease_id: int
    replica_id: str
    model: str
    version: str
    arm: Arm
    requests: list[Request]
    reason: FlushReason
    predicted_ms: float
    give_up_ms: float  # absolute: the last member's deadline; abandon the attempt then
    hedge_of: int | None = None
    attempt: int = 1
    shadow: bool = False


@dataclass(slots=True, eq=False)
class Deliver:
    """Answer this request: with a result, or with a refusal. Its permit is already released."""

    request: Request
    result: ItemResult | None
    refusal: Refusal | None
    version: str | None = None
    arm: Arm | None = None
    replica_id: str | None = None
    hedged: bool = False
    attempts: int = 0
    queued_ms: float = 0.0
    execution_ms: float = 0.0
    total_ms: float = 0.0
    batch_size: int = 0
    reason: FlushReason | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class Abort:
    """Stop this attempt: nobody waits for it any more. It still reports, as CANCELLED."""

    lease_id: int
    replica_id: str
    why: str


Action = Dispatch | Deliver | Abort


@dataclass(slots=True, eq=False)
class Decision:
    """One decision about a request, in order, with the numbers it compared."""

    at_ms: float
    stage: str  # admission | split | queue | batch | route | hedge | retry | outcome
    verdict: str
    numbers: dict[str, object] = field(default_factory=dict)
