"""What to do with the members of an attempt that failed: try elsewhere, or tell them.

A batch that fails whole is split once, because one poisonous item must not sink the other
fifteen again; its halves go to replicas that have not failed them. An item that fails alone
was rejected by the runtime and is answered. Faults spend the retry budget that hedges share
(5 % of attempts, counted in dispatches), so that retries cannot become a storm.

Busy is not a fault. From a replica that finished something a moment ago it is contention
with another gateway: the members queue again at no cost. From one that finishes nothing it
is overload, and charged, or forty requests against a busy fleet become four hundred.
"""

from __future__ import annotations

from engine.actions import ItemResult, LeaseReport
from engine.outcomes import Outcome
from engine.scheduling.attempt import Attempt
from engine.scheduling.settle import fail, upstream_refusal
from engine.scheduling.state import State
from engine.scheduling.ticket import DONE, QUEUED, Ticket

_CONTENTION_MS = 1000.0


def retry_or_fail(
    state: State,
    attempt: Attempt,
    report: LeaseReport,
    losers: list[tuple[Ticket, ItemResult | None]],
    now_ms: float,
) -> None:
    """Requeue the members that may try again; answer the rest."""
    outcome = report.outcome
    whole = report.items is None
    groups: list[list[tuple[Ticket, ItemResult | None]]] = []
    for loser in losers:
        if whole and _may_retry(state, attempt, loser[0], outcome, now_ms):
            continue
        _tell(state, attempt, report, *loser, now_ms)
    again = [loser for loser in losers if loser[0].state != DONE]
    if not again:
        return
    if outcome is Outcome.FAULT and len(again) > 1:
        half = (len(again) + 1) // 2
        groups = [again[:half], again[half:]]
    else:
        groups = [again]
    free = outcome is Outcome.BACKPRESSURE and _is_contention(attempt, now_ms)
    for number, group in enumerate(groups):
        reserve = outcome is Outcome.FAULT and not attempt.pool.router.panic
        if not free and not state.budget.withdraw(now_ms, reserve=reserve):
            for loser in group:
                _tell(state, attempt, report, *loser, now_ms)
            continue
        split_group = attempt.lease_id * 2 + number if len(groups) > 1 else None
        for ticket, _ in group:
            _requeue(state, attempt, ticket, outcome, split_group, now_ms)


def _may_retry(
    state: State, attempt: Attempt, ticket: Ticket, outcome: Outcome, now_ms: float
) -> bool:
    if not outcome.is_retryable or attempt.streaming or ticket.shadow:
        return False
    pool = attempt.pool
    if ticket.deadline_ms - now_ms < pool.alone_ms(ticket.work, now_ms):
        return False
    if outcome is Outcome.BACKPRESSURE:
        return True
    if ticket.attempts >= state.config.max_attempts:
        return False
    return len(pool.devices) == 1 or any(
        replica_id not in ticket.tried and replica_id != attempt.lease.replica_id
        for replica_id in pool.devices
    )


def _is_contention(attempt: Attempt, now_ms: float) -> bool:
    finished_ms = attempt.lease.replica.last_success_ms
    return finished_ms is not None and now_ms - finished_ms < _CONTENTION_MS


def _requeue(
    state: State,
    attempt: Attempt,
    ticket: Ticket,
    outcome: Outcome,
    split_group: int | None,
    now_ms: float,
) -> None:
    pool = ticket.pool
    if outcome is Outcome.FAULT and len(pool.devices) > 1:
        ticket.tried = (*ticket.tried, attempt.lease.replica_id)
    ticket.split_group = split_group
    ticket.state = QUEUED
    ticket.queued = True
    state.ledger.running -= 1
    state.ledger.queued += 1
    pool.former.offer(ticket, now_ms, again=True)
    state.dirty[pool] = None


def _tell(
    state: State,
    attempt: Attempt,
    report: LeaseReport,
    ticket: Ticket,
    item: ItemResult | None,
    now_ms: float,
) -> None:
    shown = ticket.outcome or item
    if shown is None:
        shown = ItemResult(report.outcome, error=report.error, status=report.status)
    fail(state, attempt, ticket, shown, upstream_refusal(attempt, shown, report, now_ms), now_ms)
