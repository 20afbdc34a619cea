"""What the scheduler's rooms share, and the knobs of the whole."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.actions import Action
from engine.admission.gate import Gate, GateConfig
from engine.batching.former import BatchFormer
from engine.clock import Clock
from engine.errors import Refusal, require_range
from engine.rollout.evidence import EvidenceBook
from engine.routing.budget import RetryBudget
from engine.routing.hedge import HedgeConfig
from engine.routing.replica_state import ReplicaState
from engine.routing.router import RouterConfig
from engine.scheduling.attempt import Attempt
from engine.scheduling.ledger import Ledger
from engine.scheduling.pool import Pool, PoolConfig
from engine.scheduling.seats import Seats
from engine.scheduling.ticket import DONE, Ticket
from engine.types import FleetSnapshot, Request
from engine.view import EventView

PoolKey = tuple[str, str]  # model, version
FormerFactory = Callable[[PoolKey], BatchFormer]

MIN_WAKE_MS = 0.5  # never ask to be woken sooner than this: no spin at saturation


@dataclass(slots=True, frozen=True, kw_only=True)
class SchedulerConfig:
    """Knobs of the composition; those of the parts live with the parts.

    `max_attempts` counts the first one. `explain_size` is how many recent requests keep
    their decision record. `window_ms` is the evidence window. `secret` salts the size
    lottery, so that nobody can grind request ids for a better place.
    """

    gate: GateConfig = field(default_factory=GateConfig)
    pool: PoolConfig = field(default_factory=PoolConfig)
    router: RouterConfig = field(default_factory=RouterConfig)
    hedge: HedgeConfig = field(default_factory=HedgeConfig)
    max_queue: int = 4096
    max_attempts: int = 2
    explain_size: int = 4096
    event_size: int = 256
    window_ms: float = 1000.0
    warm_up_ms: float = 30_000.0
    secret: bytes = b"halcyon"
    former_factory: FormerFactory | None = None

    def __post_init__(self) -> None:
        require_range("max_queue", self.max_queue, 1)
        require_range("max_attempts", self.max_attempts, 1, 5)
        require_range("explain_size", self.explain_size, 0)
        require_range("window_ms", self.window_ms, 100.0, unit="ms")
        require_range("warm_up_ms", self.warm_up_ms, 0.0, unit="ms")


class Refused:
    """A request that never became a ticket, kept for its decision record."""

    __slots__ = ("at_ms", "refusal", "request")

    def __init__(self, request: Request, refusal: Refusal, at_ms: float) -> None:
        self.request = request
        self.refusal = refusal
        self.at_ms = at_ms


class State:
    """Everything one scheduler knows. Only the rooms of `engine.scheduling` touch it."""

    __slots__ = (
        "attempts",
        "budget",
        "clock",
        "config",
        "deadlines",
        "dirty",
        "draining",
        "event_seq",
        "events",
        "evidence",
        "gate",
        "hedge_events",
        "hedges",
        "lease_seq",
        "ledger",
        "live",
        "order",
        "out",
        "pools",
        "recent",
        "replicas",
        "rng",
        "seats",
        "snapshot",
        "wakes",
    )

    def __init__(self, clock: Clock, rng: random.Random, config: SchedulerConfig) -> None:
        self.clock = clock
        self.rng = rng
        self.config = config
        now_ms = clock.now_ms()
        self.snapshot = FleetSnapshot(revision=-1)
        self.gate = Gate(config.gate, now_ms)
        self.ledger = Ledger(now_ms)
        self.evidence = EvidenceBook(config.window_ms, now_ms)
        self.budget = RetryBudget()
        self.pools: dict[PoolKey, Pool] = {}
        self.replicas: dict[str, ReplicaState] = {}
        self.seats: dict[str, Seats] = {}  # of replicas that serve more than one model
        self.live: dict[str, Ticket] = {}
        self.recent: dict[str, Ticket | Refused] = {}  # by request id
        self.order: deque[Ticket | Refused] = deque()  # the same, oldest first
        self.attempts: dict[int, Attempt] = {}
        self.lease_seq = 0
        self.dirty: dict[Pool, None] = {}
        self.wakes: list[tuple[float, int, Pool]] = []
        self.deadlines: list[tuple[float, int]] = []  # (when, lease id)
        self.hedges: list[tuple[float, int]] = []
        self.out: list[Action] = []
        self.events: deque[tuple[float, EventView]] = deque(maxlen=config.event_size)
        self.hedge_events: deque[tuple[float, EventView]] = deque(maxlen=config.event_size)
        self.event_seq = 0
        self.draining = False

    def remember(self, request_id: str, record: Ticket | Refused) -> None:
        """Keep a decision record, forgetting the oldest past `explain_size`."""
        recent, order = self.recent, self.order
        recent[request_id] = record
        order.append(record)
        if len(order) > self.config.explain_size:
            oldest = order.popleft()
            name = oldest.request.request_id
            if recent.get(name) is oldest:
                del recent[name]
            if isinstance(oldest, Ticket) and oldest.state == DONE:
                oldest.history = ()  # parts it from its attempts, or only a GC could free both

    def freed(self, replica_id: str, by: Pool) -> None:
        """A lease of a replica with several seats ended: whoever else sits there may go first,
        in turn, or the model with the longest queue would keep all places to itself."""
        replica = self.replicas.get(replica_id)
        if replica is None:
            return
        keys = [(replica.spec.model, replica.spec.version), *self.seats.get(replica_id, ())]
        own = (by.model, by.version)
        turn = keys.index(own) + 1 if own in keys else 0
        for key in (*keys[turn:], *keys[:turn]):
            pool = self.pools.get(key)
            if pool is not None:
                self.dirty.pop(pool, None)
                self.dirty[pool] = None

    def event(self, kind: str, subject: str, text: str, numbers: dict[str, object]) -> None:
        """Add a line to the decision feed (rare things only: never one a request)."""
        self.event_seq += 1
        at_ms = self.clock.now_ms()
        kept = self.hedge_events if kind == "hedge" else self.events  # many push out none
        kept.append(
            (
                at_ms,
                {
                    "seq": self.event_seq,
                    "atMs": 0.0,
                    "kind": kind,
                    "subject": subject,
                    "text": text,
                    "numbers": numbers,
                },
            )
        )
