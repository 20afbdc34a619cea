"""Where a batch goes once it is known who rides in it.

A batch is formed for a replica that the model's strategy chose without knowing the batch. Some
batches want another one:

    an update (`requestType: update`)   the least loaded, whatever the strategy
    an urgent one, under affinity       the best of a wider set: four homes, and for `critical`
                                        two drawn from all
    one request with a session or a prefix   where that is warm

A batch takes the priority of its most urgent member. Under affinity updates and inference do
not ride together, for they want different replicas: those unlike the first go back into the
queue. Elsewhere a batch is an update where all of it is. The wish is dropped where the other
replica cannot take the batch as it is, in size or in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.batching.former import BatchPlan
from engine.routing.replica_state import ReplicaState
from engine.routing.router import RouteDecision
from engine.scheduling.ticket import Ticket
from engine.types import Priority, RequestType, Strategy

if TYPE_CHECKING:
    from engine.scheduling.pool import Pool

Placement = tuple[ReplicaState, BatchPlan, RouteDecision]


def place_one(pool: Pool, plan: BatchPlan, route: RouteDecision, now_ms: float) -> Placement:
    """Give a single request the replica that its session, prefix or kind prefers.

    The preference is dropped where it would miss the deadline that `route` can meet.
    """
    member = plan.members[0]
    assert isinstance(member, Ticket)
    request = member.request
    key = request.session_key or request.prefix_key
    if request.request_type is RequestType.UPDATE:
        strategy = Strategy.LEAST_LOADED
    elif key is not None and pool.strategy is Strategy.PEAK_EWMA:
        strategy = Strategy.AFFINITY
    else:
        strategy = pool.strategy
    if strategy is pool.strategy and key is None and not member.tried:
        return route.replica, plan, route
    better = pool.router.pick(
        now_ms,
        tried=member.tried,
        key=key,
        strategy=strategy,
        request_type=request.request_type,
        priority=request.priority,
        within_ms=member.deadline_ms - now_ms,
    )
    return _moved(pool, plan, route, better, now_ms)


def place_batch(pool: Pool, plan: BatchPlan, route: RouteDecision, now_ms: float) -> Placement:
    """Give a batch of updates, or an urgent one under affinity, the replica that suits it."""
    members: list[Ticket] = plan.members  # type: ignore[assignment]
    affine = pool.strategy is Strategy.AFFINITY
    kind = members[0].request.request_type
    update = kind is RequestType.UPDATE
    if not affine and not update:
        return route.replica, plan, route
    others = [m for m in members if m.request.request_type is not kind]
    if others and affine:
        members = [m for m in members if m.request.request_type is kind]
        for other in others:
            pool.former.offer(other, now_ms, again=True)
        plan = _planned(pool, plan, members, route.replica.spec.replica_id)
    elif others:
        return route.replica, plan, route
    priority = max(m.request.priority for m in members)
    if not update and (not affine or priority < Priority.HIGH):
        return route.replica, plan, route
    better = pool.router.pick(
        now_ms,
        tried=tuple({name for m in members for name in m.tried}),
        key=pool.model,
        model=pool.model if affine else None,
        strategy=pool.strategy,
        request_type=RequestType.UPDATE if update else RequestType.INFER,
        priority=priority,
        within_ms=min(m.deadline_ms for m in members) - now_ms,
    )
    return _moved(pool, plan, route, better, now_ms)


def _moved(
    pool: Pool,
    plan: BatchPlan,
    route: RouteDecision,
    better: RouteDecision | None,
    now_ms: float,
) -> Placement:
    """`plan` on the better replica, where that one can take it in size and in time."""
    if better is None:
        return route.replica, plan, route
    if better.replica is route.replica:
        return route.replica, plan, better
    members: list[Ticket] = plan.members  # type: ignore[assignment]
    replica_id = better.replica.spec.replica_id
    device = pool.devices[replica_id]
    if (
        sum(m.items for m in members) > device.max_batch_size
        or sum(m.work for m in members) > device.max_batch_work
    ):
        return route.replica, plan, route
    moved = _planned(pool, plan, members, replica_id)
    if now_ms + moved.predicted_ms > min(m.deadline_ms for m in members):
        return route.replica, plan, route
    return better.replica, moved, better


def _planned(pool: Pool, plan: BatchPlan, members: list[Ticket], replica_id: str) -> BatchPlan:
    """`plan` with these members on that replica."""
    predicted_ms = pool.costs[replica_id].predict_ms(
        sum(m.work for m in members),
        sum(m.items for m in members),
        max(m.work / m.items for m in members),
    )
    return BatchPlan(
        members=list(members),
        predicted_ms=predicted_ms,
        margin_ms=plan.margin_ms,
        reason=plan.reason,
        numbers=plan.numbers,
    )
