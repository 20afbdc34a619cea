"""The port between a pool and whatever decides its batches.

The goodput planner implements it, and so do the baselines that the benchmark prints beside
it, so that every scheduler under test runs inside the same `Scheduler`, on the same trace.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.types import FlushReason, Lane, WorkUnit


@dataclass(slots=True, eq=False, kw_only=True)
class Queued:
    """A request waiting in a pool. `work` is in the runtime's unit, `weight` its worth.

    `ticket` is the owner's handle and opaque here. `tried` holds the replicas that already
    failed it and `alone` demands a batch of its own (after its batch failed whole).
    `slot` belongs to the former: whatever it needs to find or forget the entry in O(log q).
    """

    ticket: object
    work: float
    deadline_ms: float
    arrived_ms: float
    items: int = 1
    weight: float = 1.0
    lane: Lane = Lane.INTERACTIVE
    tried: tuple[str, ...] = ()
    split_group: int | None = None  # members of a failed batch that may only ride with their half
    queued: bool = False
    slot: object = None

    def identity(self) -> str:
        """What tells this request from another: the size lottery draws by it."""
        return str(self.ticket)


class ServiceModel(Protocol):
    """What a former needs to know of a device's speed: `service = f(work, count, longest)`."""

    def predict_ms(self, work: float, count: int = 1, longest: float = 0.0) -> float:
        """Service time of a batch in ms. `work` is the sum of its members' token counts,
        `count` the number of items, `longest` the largest member (used by padded units)."""
        ...

    @property
    def unit(self) -> WorkUnit:
        """What the runtime's service time grows with."""
        ...

    @property
    def deviation_ms(self) -> float:
        """Standard deviation of the residuals, in ms, at the batch size of late."""
        ...

    @property
    def deviation_ratio(self) -> float:
        """Standard deviation of the residuals, relative to the prediction."""
        ...

    @property
    def fixed_ms(self) -> float:
        """Cost of an empty batch: a."""
        ...

    @property
    def per_work_ms(self) -> float:
        """Marginal cost of a unit of work: b (at the current operating point)."""
        ...


@dataclass(slots=True, frozen=True, kw_only=True)
class Device:
    """A free replica as a former sees it."""

    replica_id: str
    cost: ServiceModel
    max_batch_size: int
    max_batch_work: float


@dataclass(slots=True, frozen=True, kw_only=True)
class BatchPlan:
    """A batch that leaves now."""

    members: list[Queued]
    predicted_ms: float
    margin_ms: float
    reason: FlushReason
    numbers: dict[str, float | str | None] = field(default_factory=dict)


@dataclass(slots=True, frozen=True, kw_only=True)
class Wait:
    """Nothing leaves now; ask again at `until_ms` (or at the next arrival or completion)."""

    until_ms: float
    why: str


class BatchFormer(Protocol):
    """One queue for one model version, from which its replicas pull batches."""

    def offer(self, entry: Queued, now_ms: float, *, again: bool = False) -> None:
        """Take an entry in, O(log q). `again`: it was here before and is no news of traffic."""
        ...

    def remove(self, entry: Queued) -> bool:
        """Forget an entry (cancelled, expired elsewhere). True if it was queued here."""
        ...

    def expire(self, now_ms: float) -> list[Queued]:
        """Remove and return the entries that no device can serve in time any more."""
        ...

    def form(self, device: Device, now_ms: float) -> BatchPlan | Wait | None:
        """The batch for `device`, a reason to wait, or None where nothing waits for it.
        Members are removed from the queue and never include one that `tried` this replica."""
        ...

    def set_devices(self, devices: Sequence[Device], now_ms: float) -> None:
        """The devices that can serve this queue now (ready ones, free or busy)."""
        ...

    def on_finished(self, answered: int, now_ms: float) -> None:
        """A batch ended and `answered` clients were answered: they may send again at once."""
        ...

    def next_wake_ms(self, now_ms: float) -> float | None:
        """When time alone (an entry becoming hopeless, a linger ending) changes an answer."""
        ...

    def numbers(self) -> dict[str, float | str | None]:
        """Mode, slot length, theta, queued work: for the view and the explain record."""
        ...

    def __len__(self) -> int: ...
