"""Which batch leaves now, on which replica; who has waited too long; what gets a hedge.

`poll` runs three clocks (deadlines of running work, hedges that are due, pools to look at
again) and then lets every pool that changed send what it can. It is called after each event
and at `next_wake_ms`, and costs nothing where nothing changed.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from engine.actions import Abort, Action, Dispatch
from engine.batching.former import BatchPlan
from engine.errors import Refusal, RefusalCode
from engine.outcomes import Outcome
from engine.routing.replica_state import ReplicaState
from engine.routing.router import RouteDecision
from engine.scheduling.attempt import Attempt
from engine.scheduling.pool import Pool
from engine.scheduling.settle import refuse_ticket
from engine.scheduling.state import MIN_WAKE_MS, State
from engine.scheduling.ticket import DONE, QUEUED, RUNNING, Ticket

_SLACK = 256


def poll(state: State) -> list[Action]:
    """Advance to now and return what the driver must do, in order."""
    now_ms = state.clock.now_ms()
    _enforce_deadlines(state, now_ms)
    if state.hedges:
        _fire_hedges(state, now_ms)
    wakes = state.wakes
    while wakes and wakes[0][0] <= now_ms:
        when_ms, _, pool = heappop(wakes)
        if pool.wake_ms == when_ms:
            pool.wake_ms = None
            state.dirty[pool] = None
    if state.dirty:
        dirty, state.dirty = state.dirty, {}
        for pool in dirty:
            _serve(state, pool, now_ms)
    out = state.out
    state.out = []
    return out


def next_wake_ms(state: State) -> float | None:
    """When time alone changes something; None where only an event can."""
    soonest: float | None = None
    wakes = state.wakes
    while wakes and wakes[0][2].wake_ms != wakes[0][0]:
        heappop(wakes)
    if wakes:
        soonest = wakes[0][0]
    attempts = state.attempts
    for heap in (state.deadlines, state.hedges):
        while heap and heap[0][1] not in attempts:
            heappop(heap)
        if heap and (soonest is None or heap[0][0] < soonest):
            soonest = heap[0][0]
    return soonest


def _serve(state: State, pool: Pool, now_ms: float) -> None:
    """Send every batch that should leave this pool now, and note when to look again."""
    former = pool.former
    for entry in former.expire(now_ms):
        assert isinstance(entry, Ticket)
        entry.queued = False
        _expire(state, entry, now_ms)
    while len(former) > 0:
        choice = pool.next_batch(now_ms)
        if choice is None:
            break
        send(state, pool, *choice, now_ms)
    if len(former) == 0:
        pool.wake_ms = None
        return
    wake_ms = former.next_wake_ms(now_ms)
    for other in (pool.wait_ms, pool.router.next_change_ms(now_ms)):
        if other is not None and (wake_ms is None or other < wake_ms):
            wake_ms = other
    if wake_ms is None:
        pool.wake_ms = None
        return
    wake_ms = max(wake_ms, now_ms + MIN_WAKE_MS)
    if pool.wake_ms != wake_ms:
        pool.wake_ms = wake_ms
        heappush(state.wakes, (wake_ms, id(pool), pool))


def send(
    state: State,
    pool: Pool,
    replica: ReplicaState,
    plan: BatchPlan,
    route: RouteDecision | None,
    now_ms: float,
    hedge_of: Attempt | None = None,
) -> Attempt:
    """Lease the replica and hand the batch to the driver."""
    lease = replica.acquire(now_ms)
    state.lease_seq += 1
    lease_id = state.lease_seq
    members: list[Ticket] = plan.members  # type: ignore[assignment]
    attempt = Attempt(lease_id, pool, lease, members, plan, route, now_ms, hedge_of)
    state.attempts[lease_id] = attempt
    ledger = state.ledger
    give_up_ms = 0.0
    tries = 1
    requests = []
    real = 0
    alone = (attempt,)  # the history of whoever is sent for the first time: one for all of them
    for member in members:
        if member.state == QUEUED:
            member.state = RUNNING
            member.queued = False
            if not member.shadow:
                real += 1
        member.running += 1
        member.attempts += 1
        member.history = (*member.history, attempt) if member.history else alone
        if member.attempts > tries:
            tries = member.attempts
        if member.request.deadline_ms > give_up_ms:
            give_up_ms = member.request.deadline_ms
        requests.append(member.request)
    ledger.queued -= real
    ledger.running += real
    ledger.attempts += 1
    if hedge_of is None:
        pool.count_batch(plan)
        if tries == 1:
            state.budget.deposit(now_ms)
    first = members[0]
    state.out.append(
        Dispatch(
            lease_id=lease_id,
            replica_id=replica.spec.replica_id,
            model=pool.model,
            version=pool.version,
            arm=first.arm,
            requests=requests,
            reason=plan.reason,
            predicted_ms=plan.predicted_ms,
            give_up_ms=give_up_ms,
            hedge_of=None if hedge_of is None else hedge_of.lease_id,
            attempt=tries,
            shadow=first.shadow,
        )
    )
    deadline_ms = attempt.next_deadline_ms()
    if deadline_ms is not None:
        _note(state, state.deadlines, deadline_ms, lease_id)
    if hedge_of is None and len(pool.devices) > 1:
        delay_ms = pool.hedging.delay_ms(attempt.work, now_ms)
        if delay_ms is not None and now_ms + delay_ms < give_up_ms:
            _note(state, state.hedges, now_ms + delay_ms, lease_id)
    return attempt


def _note(state: State, heap: list[tuple[float, int]], when_ms: float, lease_id: int) -> None:
    """Look at this attempt again then. Moments of attempts that ended wait for their time, and
    deadlines may be minutes away: where they outnumber the rest they go."""
    attempts = state.attempts
    if len(heap) > 2 * len(attempts) + _SLACK:
        heap[:] = [moment for moment in heap if moment[1] in attempts]
        heapify(heap)
    heappush(heap, (when_ms, lease_id))


def _expire(state: State, ticket: Ticket, now_ms: float) -> None:
    """Answer a request that no replica can serve in time any more."""
    pool = ticket.pool
    waited_ms = now_ms - ticket.arrived_ms
    alone_ms = pool.alone_ms(ticket.work, now_ms)
    refuse_ticket(
        state,
        ticket,
        Refusal(
            code=RefusalCode.DEADLINE_EXCEEDED,
            message=(
                f"waited {waited_ms:.0f} ms in the queue of {pool.model} {pool.version}; it needs "
                f"{alone_ms:.0f} ms more and the deadline leaves "
                f"{max(ticket.deadline_ms - now_ms, 0.0):.0f} ms"
            ),
            limit_name="deadline_ms",
            limit=ticket.deadline_ms - ticket.arrived_ms,
            used=waited_ms,
            retry_after_ms=max(alone_ms, 1.0),
            details={"queued": len(pool.former), "phase": "queue"},
        ),
        now_ms,
    )


def _enforce_deadlines(state: State, now_ms: float) -> None:
    """Answer the members of running batches whose own time is up, and drop empty attempts."""
    deadlines = state.deadlines
    while deadlines and deadlines[0][0] <= now_ms:
        _, lease_id = heappop(deadlines)
        attempt = state.attempts.get(lease_id)
        if attempt is None or attempt.aborted:
            continue
        for member in attempt.members:
            if member.state != DONE and _out_of_time(member, attempt, now_ms):
                _give_up(state, attempt, member, now_ms)
        again_ms = attempt.next_deadline_ms()
        if again_ms is not None:
            heappush(deadlines, (max(again_ms, now_ms + MIN_WAKE_MS), lease_id))
        else:
            abort(state, attempt, Outcome.DEADLINE, "every member's deadline has passed")


def _out_of_time(member: Ticket, attempt: Attempt, now_ms: float) -> bool:
    first = member.request.first_token_deadline_ms
    return now_ms >= member.request.deadline_ms or (
        first is not None and not attempt.streaming and now_ms >= first
    )


def _give_up(state: State, attempt: Attempt, member: Ticket, now_ms: float) -> None:
    limit_ms = member.request.deadline_ms - member.arrived_ms
    refuse_ticket(
        state,
        member,
        Refusal(
            code=RefusalCode.DEADLINE_EXCEEDED,
            message=(
                f"replica {attempt.lease.replica_id} was still working after "
                f"{now_ms - attempt.started_ms:.0f} ms, expected {attempt.plan.predicted_ms:.0f}"
            ),
            limit_name="deadline_ms",
            limit=limit_ms,
            used=now_ms - member.arrived_ms,
            retry_after_ms=max(attempt.plan.predicted_ms, 1.0),
            details={"phase": "execution", "replicaId": attempt.lease.replica_id},
        ),
        now_ms,
    )


def abort(state: State, attempt: Attempt, outcome: Outcome, why: str) -> None:
    """Tell the driver that nobody waits for this attempt; its replica stays leased."""
    if not attempt.aborted:
        attempt.aborted = True
        attempt.abort_outcome = outcome
        state.out.append(
            Abort(lease_id=attempt.lease_id, replica_id=attempt.lease.replica_id, why=why)
        )


def _fire_hedges(state: State, now_ms: float) -> None:
    """Duplicate what has run for longer than its class usually does, inside the budget."""
    hedges = state.hedges
    while hedges and hedges[0][0] <= now_ms:
        _, lease_id = heappop(hedges)
        attempt = state.attempts.get(lease_id)
        if attempt is None or attempt.aborted or attempt.streaming or attempt.rival is not None:
            continue
        pool = attempt.pool
        members = [
            m
            for m in attempt.waiting()
            if m.running == 1 and m.attempts < state.config.max_attempts
        ]
        if not members or not pool.hedging.allowed(pool.router.utilisation(now_ms), now_ms):
            continue
        tried = tuple({spec for m in members for spec in (*m.tried, attempt.lease.replica_id)})
        route = pool.router.pick(now_ms, tried=tried, strategy=pool.strategy)
        if route is None:
            continue
        cost = pool.costs[route.replica.spec.replica_id]
        work = sum(m.work for m in members)
        predicted_ms = cost.predict_ms(
            work, sum(m.items for m in members), max(m.work for m in members)
        )
        in_time = [m for m in members if now_ms + predicted_ms <= m.deadline_ms]
        if not in_time or not state.budget.withdraw(now_ms, reserve=False):
            continue
        plan = BatchPlan(
            members=list(in_time),
            predicted_ms=predicted_ms,
            margin_ms=0.0,
            reason=attempt.plan.reason,
            numbers={"hedgeAfterMs": now_ms - attempt.started_ms},
        )
        hedge = send(state, pool, route.replica, plan, route, now_ms, hedge_of=attempt)
        attempt.rival = hedge
        hedge.rival = attempt
        pool.hedging.fired(now_ms)
        state.event(
            "hedge",
            attempt.lease.replica_id,
            f"no answer after {now_ms - attempt.started_ms:.0f} ms, "
            f"also sent to {route.replica.spec.replica_id}",
            {"model": pool.model, "members": len(in_time), "predictedMs": predicted_ms},
        )
