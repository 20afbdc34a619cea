"""A replica as the live view shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.routing.breaker import BreakerState
from engine.routing.eligibility import WhyNot
from engine.view import BreakerView, ReplicaView

if TYPE_CHECKING:
    from engine.routing.replica_state import ReplicaState


def view(replica: ReplicaState, now_ms: float) -> ReplicaView:
    """Status, load, latency and breaker, and why it gets no traffic if it gets none."""
    spec = replica.spec
    why = replica.why_not(now_ms)
    health = replica.healthy(now_ms)
    return {
        "replicaId": spec.replica_id,
        "model": spec.model,
        "version": spec.version,
        "address": spec.address,
        "protocol": str(spec.protocol),
        "accelerator": spec.accelerator,
        "status": _status(replica, why),
        "inFlight": replica.in_flight + replica.elsewhere,
        "loadedModels": sorted(replica.loaded_models),
        "gpuMemoryRatio": replica.gpu_memory_ratio,
        "ceiling": replica.ceiling,
        "score": replica.score(now_ms),
        "latencyMs": replica.latency.typical_ms,
        "p95Ms": replica.recent.quantile(0.95, now_ms),
        "errorRatio": replica.breaker.fault_ratio(now_ms),
        "batches": replica.batches,
        "backpressure": replica.busy.answers,
        "breaker": _breaker(replica, now_ms),
        "health": {"score": health, **replica.health.parts},
        "why": None if why is None else str(why),
    }


def _breaker(replica: ReplicaState, now_ms: float) -> BreakerView:
    breaker = replica.breaker
    is_open = breaker.state is BreakerState.OPEN
    return {
        "state": str(breaker.state),
        "trips": breaker.trips,
        "reopensInMs": max(breaker.open_until_ms - now_ms, 0.0) if is_open else None,
        "faultRatio": breaker.fault_ratio(now_ms),
    }


def _status(replica: ReplicaState, why: WhyNot | None) -> str:
    if why is WhyNot.DRAINING:
        return "draining"
    if why is WhyNot.NOT_READY:
        return "down"
    if replica.breaker.state is BreakerState.OPEN:
        return "down"
    if replica.breaker.state is BreakerState.HALF_OPEN or replica.health.degraded:
        return "degraded"
    return "unknown" if replica.batches == 0 else "healthy"
