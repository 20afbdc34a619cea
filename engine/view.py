"""The live state of one scheduler, as it goes on the wire and onto the dashboard.

Keys are camelCase because this is JSON's side of the border. None means "no data", never 0.
Rates are per second over the last 10 s; latencies are milliseconds over the last 60 s.
"""

from typing import TypedDict


class Conservation(TypedDict):
    """arrived = served + refused + failed + cancelled + queued + running, at every instant."""

    arrived: int
    served: int
    refused: int
    failed: int
    cancelled: int
    queued: int
    running: int
    balanced: bool


class TrafficView(TypedDict):
    offeredPerS: float
    goodputPerS: float  # served within the deadline
    latePerS: float
    failedPerS: float
    cancelledPerS: float
    refusedPerS: dict[str, float]  # by RefusalCode
    goodputRatio: float | None
    p50Ms: float | None
    p95Ms: float | None
    p99Ms: float | None


class AdmissionView(TypedDict):
    policy: str
    limit: float
    inFlight: int
    sloMs: float
    p95Ms: float | None
    reason: str  # why the limit last moved, with its numbers


class QueueView(TypedDict):
    model: str
    version: str
    queued: int
    queuedWork: float
    oldestMs: float | None
    meanBatch: float | None
    flushReasons: dict[str, int]
    mode: str  # idle | edf | goodput
    slotMs: float | None
    theta: float | None


class BatchView(TypedDict):
    """A batch that ended: its work in the unit of the cost model, and what it took."""

    work: float
    ms: float


class CostView(TypedDict):
    replicaId: str
    accelerator: str
    unit: str
    fixedMs: float
    perWorkMs: float
    quadraticMs: float
    deviationMs: float
    samples: int
    firstTokenMs: float | None  # streams only
    perTokenMs: float | None
    last: BatchView | None  # the last batch that was served


class VersionView(TypedDict):
    version: str
    arm: str | None
    share: float
    readyReplicas: int
    ratePerS: float
    errorRatio: float | None
    p50Ms: float | None
    p95Ms: float | None
    p99Ms: float | None
    cost: list[CostView]


class SplitView(TypedDict):
    baseline: str
    canary: str | None
    percent: float
    shadow: bool


class ModelView(TypedDict):
    model: str
    strategy: str
    sloMs: float
    split: SplitView | None
    versions: list[VersionView]


class BreakerView(TypedDict):
    state: str  # closed | open | half_open
    trips: int
    reopensInMs: float | None
    faultRatio: float | None


class ReplicaView(TypedDict):
    replicaId: str
    model: str
    version: str
    address: str
    protocol: str
    accelerator: str
    status: str  # healthy | degraded | down | draining | unknown
    inFlight: int
    ceiling: int
    loadedModels: list[str]
    gpuMemoryRatio: float | None
    score: float | None
    latencyMs: float | None
    p95Ms: float | None
    errorRatio: float | None
    batches: int
    backpressure: int
    breaker: BreakerView
    health: dict[str, float]
    why: str | None  # why it gets no traffic now


class TenantView(TypedDict):
    tenant: str
    inFlight: int
    ratePerS: float
    tokensPerS: float
    bucketLevel: float | None
    bucketBurst: float | None
    refused: dict[str, int]


class EventView(TypedDict):
    """A line of the decision feed."""

    seq: int
    atMs: float  # milliseconds before the view was made
    kind: str  # breaker | panic | split | hedge
    subject: str
    text: str
    numbers: dict[str, object]


class SchedulerView(TypedDict):
    """Everything one scheduler can say of itself. The gateway adds its own section."""

    revision: int
    conservation: Conservation
    traffic: TrafficView
    admission: AdmissionView
    queues: list[QueueView]
    models: list[ModelView]
    replicas: list[ReplicaView]
    tenants: list[TenantView]
    events: list[EventView]
