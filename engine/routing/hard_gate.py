"""May this replica be sent anything now? The hard gates, before any score is looked at.

The first reason that applies is given, in the order of `WhyNot`. In panic (see `panic`) a
breaker yields to the pace that the replica's last answers earn; everything else holds: a
draining replica is not woken because others are broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.routing.breaker import BreakerState
from engine.routing.eligibility import WhyNot

if TYPE_CHECKING:
    from engine.routing.replica_state import ReplicaState


def why_not(replica: ReplicaState, now_ms: float) -> WhyNot | None:
    """Why nothing may be sent, or None where something may."""
    if replica.spec.draining:
        return WhyNot.DRAINING
    if not replica.ready:
        return WhyNot.NOT_READY
    if replica.breaker.state is not BreakerState.CLOSED:
        reason = replica.breaker.why_not(now_ms)
        if reason is not None and replica.surroundings.panic:
            reason = _in_panic(replica, reason, now_ms)
        if reason is not None:
            return reason
    if now_ms < replica.busy.until_ms:
        return WhyNot.BACKPRESSURE
    if replica.in_flight + replica.elsewhere >= replica.ceiling:
        return WhyNot.CEILING
    return None


def ready_in_ms(replica: ReplicaState, now_ms: float) -> float:
    """How long until it may be sent something, where time alone decides; else 0."""
    reason = why_not(replica, now_ms)
    if reason is None or not reason.is_timed:
        return 0.0
    return max(opens_ms(replica, reason) - now_ms, 0.0)


def is_ready(replica: ReplicaState, now_ms: float) -> bool:
    """Whether it can serve: it may be full, but nothing is wrong with it."""
    reason = why_not(replica, now_ms)
    return reason is None or reason is WhyNot.CEILING or reason is WhyNot.BACKPRESSURE


def opens_ms(replica: ReplicaState, reason: WhyNot) -> float:
    """When a timed `reason` will be over."""
    if reason is WhyNot.BACKPRESSURE:
        return replica.busy.until_ms
    if not replica.surroundings.panic:
        return replica.breaker.open_until_ms
    if replica.breaker.state is BreakerState.HALF_OPEN:
        return replica.pace.until_ms
    return min(replica.pace.until_ms, replica.breaker.open_until_ms)


def _in_panic(replica: ReplicaState, reason: WhyNot, now_ms: float) -> WhyNot | None:
    pace = replica.pace
    if now_ms < pace.until_ms:
        return WhyNot.BREAKER_OPEN if reason is WhyNot.PROBING else reason
    return WhyNot.PROBING if pace.full(replica.in_flight) else None
