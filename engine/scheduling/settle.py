"""How attempts end, and how each request gets its one answer.

`finish_*` are the only ways out for a ticket: each releases the permit by exactly one verb,
moves the ledger, feeds the evidence and emits one `Deliver`. The permit's verb follows the
outcome: served -> succeed (a latency sample), timed out on a replica -> drop (congestion),
everything else -> ignore (a fast failure must never read as a latency improvement, nor a
stream that began in time and was cut short as congestion). What the planner gave up in the
queue is ignored too: shedding is its way of keeping the others in time, and a limit that read
it as congestion would refuse at random what it sheds by worth.
"""

from __future__ import annotations

from engine.actions import Deliver, ItemResult, LeaseReport
from engine.errors import Refusal, RefusalCode
from engine.outcomes import Outcome
from engine.routing import hard_gate
from engine.scheduling.attempt import Attempt
from engine.scheduling.state import State
from engine.scheduling.streams import stream_work, usual_size
from engine.scheduling.ticket import DONE, QUEUED, RUNNING, Ticket

_SERVED = ItemResult(Outcome.SUCCESS)  # what a decision record keeps of an answer


def serve(
    state: State,
    attempt: Attempt,
    ticket: Ticket,
    item: ItemResult,
    execution_ms: float,
    now_ms: float,
) -> None:
    """The answer is here and in time."""
    latency_ms = now_ms - ticket.arrived_ms
    pool = ticket.pool
    _close(state, ticket, now_ms)
    ticket.outcome = _SERVED
    if ticket.shadow:
        return
    permit, ticket.permit = ticket.permit, None
    if permit is not None:
        spent = item.prompt_tokens + item.completion_tokens
        permit.succeed(latency_ms, spent, now_ms, _against_slo_ms(attempt, ticket, item, now_ms))
    state.ledger.served += 1
    pool.served += 1
    pool.latency.record(latency_ms, now_ms)
    _deliver(state, ticket, attempt, item, None, execution_ms, now_ms)


def refuse_ticket(state: State, ticket: Ticket, refusal: Refusal, now_ms: float) -> None:
    """Turn an admitted request away: its time ran out, or nothing can run it any more."""
    was_running = ticket.state == RUNNING
    timed_out = refusal.code is RefusalCode.DEADLINE_EXCEEDED
    _close(state, ticket, now_ms)
    ticket.refusal = refusal
    if ticket.judged:
        arm = ticket.arm
        pool = ticket.pool
        if timed_out and was_running:
            state.evidence.miss(pool.model, pool.version, arm, now_ms)
        else:
            state.evidence.shed(pool.model, pool.version, arm, refusal.code, now_ms)
    if ticket.shadow:
        return
    if ticket.permit is not None:
        if timed_out and was_running:
            spent = ticket.request.tokens_spent
            if any(attempt.streaming for attempt in ticket.history):
                ticket.permit.ignore(spent, now_ms)
            else:
                ticket.permit.drop(now_ms - ticket.arrived_ms, spent, now_ms)
        else:
            ticket.permit.ignore(0, now_ms)
    ledger = state.ledger
    if was_running:
        ledger.failed += 1
        if timed_out:
            ledger.late += 1
    else:
        ledger.refuse(refusal.code)
    attempt = ticket.history[-1] if ticket.history else None
    _deliver(state, ticket, attempt, None, refusal, 0.0, now_ms)


def fail(
    state: State,
    attempt: Attempt,
    ticket: Ticket,
    item: ItemResult,
    refusal: Refusal,
    now_ms: float,
) -> None:
    """The upstream failed it, or found fault with the request itself."""
    _close(state, ticket, now_ms)
    ticket.outcome = item
    ticket.refusal = refusal
    if ticket.shadow:
        return
    if ticket.permit is not None:
        spent = item.prompt_tokens + item.completion_tokens
        ticket.permit.ignore(spent or ticket.request.tokens_spent, now_ms)
    if item.outcome is Outcome.CLIENT_ERROR:
        state.ledger.refuse(refusal.code)
    else:
        state.ledger.failed += 1
    _deliver(state, ticket, attempt, item, refusal, now_ms - attempt.started_ms, now_ms)


def cancel(state: State, request_id: str) -> tuple[Ticket, list[Attempt]] | None:
    """The client left. Returns the attempts that may now have nobody waiting."""
    ticket = state.live.get(request_id)
    if ticket is None or ticket.state == DONE:
        return None
    now_ms = state.clock.now_ms()
    was_queued = ticket.state == QUEUED
    if was_queued and ticket.queued:
        ticket.pool.former.remove(ticket)
        state.dirty[ticket.pool] = None
    _close(state, ticket, now_ms)
    ticket.outcome = ItemResult(Outcome.CANCELLED)
    if ticket.permit is not None:
        request = ticket.request
        spent = 0 if was_queued else request.tokens_spent or request.prompt_tokens
        ticket.permit.ignore(spent, now_ms)
    state.ledger.cancelled += 1
    if ticket.judged:
        state.evidence.cancelled(ticket.pool.model, ticket.pool.version, ticket.arm, now_ms)
    return ticket, [a for a in ticket.history if a.lease_id in state.attempts]


def observe(state: State, attempt: Attempt, report: LeaseReport, now_ms: float) -> None:
    """Let everything that learns from attempts learn from this one, and free the replica."""
    pool = attempt.pool
    outcome = report.outcome
    if attempt.abort_outcome is not None and outcome is not Outcome.SUCCESS:
        outcome = attempt.abort_outcome
    elapsed_ms = now_ms - attempt.started_ms
    sample_ms = elapsed_ms if report.first_byte_ms is None else report.first_byte_ms
    replica = attempt.lease.replica
    attempt.lease.release(outcome, sample_ms, now_ms, _size(attempt, report))
    if outcome is Outcome.BACKPRESSURE:
        replica.backpressure(report.retry_after_ms, now_ms)
    if outcome is not Outcome.SUCCESS:
        return
    if report.queued_at_replica is not None:
        replica.queued = report.queued_at_replica
    pool.last_success_ms = now_ms
    if pool.streams:
        _learn_stream(attempt, report, elapsed_ms, now_ms)
    cost = pool.costs.get(attempt.lease.replica_id)
    if cost is not None and elapsed_ms > 0.0:
        cost.observe(attempt.work, attempt.items, attempt.longest, elapsed_ms)
    pool.hedging.observe(attempt.work, elapsed_ms, now_ms)
    pool.execution.record(elapsed_ms, now_ms)


def _size(attempt: Attempt, report: LeaseReport) -> float:
    """How much longer than a usual one this had to take: a first byte takes what it takes."""
    if not attempt.pool.streams or report.first_byte_ms is not None or report.items is None:
        return 1.0
    item = report.items[0]
    return usual_size(item.prompt_tokens, item.completion_tokens)


def _learn_stream(attempt: Attempt, report: LeaseReport, elapsed_ms: float, now_ms: float) -> None:
    """A stream's size is known only now: by the tokens that came."""
    item = None if report.items is None else report.items[0]
    if item is None or item.completion_tokens <= 0:
        return
    pool = attempt.pool
    prompt = item.prompt_tokens or attempt.members[0].request.prompt_tokens
    attempt.work = attempt.longest = stream_work(prompt, item.completion_tokens)
    pool.outputs.observe(item.completion_tokens, now_ms)
    timing = pool.timings.get(attempt.lease.replica_id)
    first_ms = report.first_byte_ms
    if timing is not None and first_ms is not None:
        tokens = item.completion_tokens
        timing.observe(first_ms, elapsed_ms, tokens, now_ms)
        spec = attempt.lease.replica.spec
        pool.yardstick(spec).observe(prompt, first_ms, elapsed_ms, tokens, now_ms)


def upstream_refusal(
    attempt: Attempt, item: ItemResult | None, report: LeaseReport, now_ms: float
) -> Refusal:
    """What the client is told when its last attempt did not succeed."""
    outcome = report.outcome if item is None else item.outcome
    error = (item.error if item is not None else None) or report.error or str(outcome)
    status = (item.status if item is not None else None) or report.status
    replica_id = attempt.lease.replica_id
    details: dict[str, object] = {"replicaId": replica_id, "upstreamStatus": status}
    if outcome is Outcome.CLIENT_ERROR:
        return Refusal(
            code=RefusalCode.INVALID_REQUEST,
            message=f"the model refused it: {error}",
            details=details,
        )
    if outcome is Outcome.BACKPRESSURE:
        return Refusal(
            code=RefusalCode.OVERLOADED,
            message=f"replica {replica_id} is busy: {error}",
            limit_name="replica",
            retry_after_ms=max(hard_gate.ready_in_ms(attempt.lease.replica, now_ms), 1.0),
            details=details,
        )
    return Refusal(
        code=RefusalCode.UPSTREAM_FAILURE,
        message=f"replica {replica_id} failed: {error}",
        limit_name="replica",
        retry_after_ms=max(attempt.plan.predicted_ms, 1.0),
        details=details,
    )


def _against_slo_ms(attempt: Attempt, ticket: Ticket, item: ItemResult, now_ms: float) -> float:
    """What of a request's latency the SLO speaks of. Writing takes as long as the answer is
    long, however empty the fleet: a stream is held to its first token, an answer that was
    written to its wait and the time for each hundred tokens."""
    if attempt.answered_ms is not None:
        return attempt.answered_ms - ticket.arrived_ms
    size = 1.0
    if attempt.pool.streams and item.completion_tokens:
        size = max(usual_size(item.prompt_tokens, item.completion_tokens), 1.0)
    return attempt.started_ms - ticket.arrived_ms + (now_ms - attempt.started_ms) / size


def _close(state: State, ticket: Ticket, now_ms: float) -> None:
    """Move a ticket to DONE and take it off the books it is on."""
    ledger = state.ledger
    if not ticket.shadow:
        if ticket.state == RUNNING:
            ledger.running -= 1
        else:
            ledger.queued -= 1
        state.live.pop(ticket.request.request_id, None)
    ticket.state = DONE
    ticket.queued = False
    ticket.finished_ms = now_ms


def _deliver(
    state: State,
    ticket: Ticket,
    attempt: Attempt | None,
    item: ItemResult | None,
    refusal: Refusal | None,
    execution_ms: float,
    now_ms: float,
) -> None:
    pool = ticket.pool
    started_ms = now_ms if attempt is None else attempt.started_ms
    replica_id, hedged, batch_size, reason = None, False, 0, None
    if attempt is not None:
        replica_id = attempt.lease.replica_id
        hedged = attempt.rival is not None
        batch_size = len(attempt.members)
        reason = attempt.plan.reason
    state.out.append(
        Deliver(  # by position: one is made for every request
            ticket.request,
            item,
            refusal,
            pool.version,
            ticket.arm,
            replica_id,
            hedged,
            ticket.attempts,
            started_ms - ticket.arrived_ms,
            execution_ms,
            now_ms - ticket.arrived_ms,
            batch_size,
            reason,
        )
    )
