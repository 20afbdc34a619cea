"""The nouns that cross the engine's border: requests in, configuration in, decisions out.

Times are float milliseconds on the injected monotonic clock. Work is in the unit that the
runtime declares (`WorkUnit`). Configuration objects are frozen and checked where they are
built; `Request` is a plain slotted object because one is built per request on the hot path.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from engine.errors import InvalidInput, require_positive, require_range


class Lane(StrEnum):
    INTERACTIVE = "interactive"
    BULK = "bulk"


class Priority(IntEnum):
    """Graded ceilings: under contention the highest is refused last."""

    LOW = 0
    NORMAL = 1
    HIGH = 2
    CRITICAL = 3


class RequestType(StrEnum):
    INFER = "infer"
    UPDATE = "update"  # online learning, index updates: least loaded, never affine


class WorkUnit(StrEnum):
    """What a runtime's service time grows with."""

    TOKENS = "tokens"
    PADDED = "padded"
    PADDED_QUADRATIC = "padded_quadratic"


class Protocol(StrEnum):
    BATCH = "batch"
    OPENAI = "openai"


class Strategy(StrEnum):
    PEAK_EWMA = "peak_ewma"
    AFFINITY = "affinity"
    LEAST_LOADED = "least_loaded"
    ROUND_ROBIN = "round_robin"


class Arm(StrEnum):
    BASELINE = "baseline"
    CANARY = "canary"


class FlushReason(StrEnum):
    """Why a batch left when it did."""

    SATURATED = "saturated"  # full: no further member fits size, work or slot length
    DEADLINE = "deadline"  # a member could not wait any longer
    LINGER = "linger"  # waited for expected arrivals, none came in time
    IDLE = "idle"  # the device was free and waiting would not have paid
    DRAIN = "drain"  # the gateway is shutting down
    GOODPUT = "goodput"  # past saturation: the most useful work for this slot


@dataclass(slots=True, eq=False)
class Request:
    """One request as the gateway understood it. `payload` is opaque to the engine.

    Name the fields, but for the gateway's hot path: naming thirteen of them costs 0.5 us.

    `deadline_ms` and `arrived_ms` are absolute. `items` is the number of batch places it
    takes (a list of strings takes one each). `version` set means a tester's override:
    the request goes there and stays out of the evidence.
    """

    request_id: str
    tenant: str
    model: str
    prompt_tokens: int
    deadline_ms: float
    arrived_ms: float
    max_output_tokens: int = 256
    items: int = 1
    lane: Lane = Lane.INTERACTIVE
    priority: Priority = Priority.NORMAL
    request_type: RequestType = RequestType.INFER
    session_key: str | None = None
    prefix_key: str | None = None
    version: str | None = None
    first_token_deadline_ms: float | None = None  # absolute; streams only
    tokens_spent: int = 0  # by a stream so far, kept by the driver: charged if it ends early
    payload: object = None


@dataclass(slots=True, frozen=True, kw_only=True)
class ReplicaSpec:
    """A replica as configured. `max_concurrency` is batches (or streams) at a time."""

    replica_id: str
    model: str
    version: str
    address: str
    protocol: Protocol = Protocol.BATCH
    weight: float = 1.0
    accelerator: str = ""
    max_batch_size: int = 32
    max_batch_tokens: int = 16_384
    max_concurrency: int = 1
    work_unit: WorkUnit = WorkUnit.TOKENS
    draining: bool = False
    age_s: float | None = None  # since its process started, when the snapshot was taken
    loaded_models: frozenset[str] = frozenset()
    gpu_memory_ratio: float | None = None

    def __post_init__(self) -> None:
        require_positive("weight", self.weight)
        require_range("max_batch_size", self.max_batch_size, 1, 4096)
        require_range("max_batch_tokens", self.max_batch_tokens, 1)
        require_range("max_concurrency", self.max_concurrency, 1, 65_536)


@dataclass(slots=True, frozen=True, kw_only=True)
class SplitSpec:
    """How a model's traffic is divided. `canary_ratio` is in [0, 1]."""

    model: str
    baseline: str
    canary: str | None = None
    canary_ratio: float = 0.0
    salt: str = ""
    shadow: bool = False

    def __post_init__(self) -> None:
        require_range("canary_ratio", self.canary_ratio, 0.0, 1.0)
        if self.canary is not None and self.canary == self.baseline:
            raise InvalidInput("canary", self.canary, "must differ from the baseline version")
        if self.canary is None and self.canary_ratio > 0:
            raise InvalidInput("canary_ratio", self.canary_ratio, "needs a canary version")


@dataclass(slots=True, frozen=True, kw_only=True)
class ModelSpec:
    """A model: its versions, its split and how its replicas are chosen."""

    model: str
    versions: frozenset[str]
    split: SplitSpec | None = None
    strategy: Strategy = Strategy.PEAK_EWMA
    slo_ms: float = 1000.0

    def __post_init__(self) -> None:
        require_positive("slo_ms", self.slo_ms, unit="ms")
        if self.split is not None:
            for name in (self.split.baseline, self.split.canary):
                if name is not None and name not in self.versions:
                    raise InvalidInput("split", name, f"no such version of {self.model}")


@dataclass(slots=True, frozen=True, kw_only=True)
class TenantSpec:
    """A tenant's limits. None means that this limit does not apply."""

    tenant: str
    priority: Priority = Priority.NORMAL
    weight: float = 1.0
    requests_per_s: float | None = None
    requests_burst: float | None = None
    tokens_per_s: float | None = None
    tokens_burst: float | None = None
    max_in_flight: int | None = None
    enabled: bool = True

    def __post_init__(self) -> None:
        require_positive("weight", self.weight)
        for name in ("requests_per_s", "requests_burst", "tokens_per_s", "tokens_burst"):
            value = getattr(self, name)
            if value is not None:
                require_positive(name, value)
        for what in ("requests", "tokens"):
            burst = getattr(self, f"{what}_burst")
            if burst is not None and getattr(self, f"{what}_per_s") is None:
                raise InvalidInput(f"{what}_burst", burst, f"needs {what}_per_s: it never refills")


@dataclass(slots=True, frozen=True, kw_only=True)
class FleetSnapshot:
    """All configuration at one instant, swapped whole. `revision` only grows."""

    revision: int
    models: Mapping[str, ModelSpec] = field(default_factory=dict)
    replicas: Mapping[str, ReplicaSpec] = field(default_factory=dict)
    tenants: Mapping[str, TenantSpec] = field(default_factory=dict)
