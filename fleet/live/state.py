"""The merged live state: what `GET /v1/control/state` answers and every panel reads.

`status` says how to read the rest: *live*, *stale* (every gateway fell silent; the numbers
are the last ones known) or *empty* (no gateway has spoken yet; there are no numbers, which
is not the same as zeros).
"""

from typing import Literal, TypedDict

from engine.view import (
    AdmissionView,
    Conservation,
    ModelView,
    QueueView,
    ReplicaView,
    TenantView,
    TrafficView,
)


class GatewayStatus(TypedDict):
    id: str
    status: str  # healthy | degraded | down: one vocabulary for everything
    ageS: float  # since it last spoke
    seq: int
    process: str | None
    startedAt: str | None
    uptimeS: float | None
    eventLoopLagMs: float | None
    snapshotRevision: int | None
    snapshotAgeS: float | None
    degraded: list[str]
    offeredPerS: float
    inFlight: int


class FeedEvent(TypedDict):
    """A line of the decision feed, with its gateway and its age in milliseconds."""

    id: str  # gateway and sequence: stable, so that a page never shows a line twice
    gateway: str
    ageMs: float
    kind: str
    subject: str
    text: str
    numbers: dict[str, object]


class LiveState(TypedDict):
    status: Literal["live", "stale", "empty"]
    ageS: float | None
    gateways: list[GatewayStatus]
    revision: int | None  # the oldest snapshot in force anywhere
    converged: bool | None  # every live gateway works from the same snapshot
    conservation: Conservation | None
    traffic: TrafficView | None
    admission: AdmissionView | None
    queues: list[QueueView]
    models: list[ModelView]
    replicas: list[ReplicaView]
    tenants: list[TenantView]
    events: list[FeedEvent]
