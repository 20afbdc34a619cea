"""What an attempt says of its arm, for the judge of rollouts."""

from __future__ import annotations

from engine.actions import LeaseReport
from engine.outcomes import Outcome
from engine.rollout.evidence import execution_ratio
from engine.scheduling.attempt import Attempt
from engine.scheduling.state import State
from engine.scheduling.ticket import DONE
from engine.types import Arm


def judge(state: State, attempt: Attempt, report: LeaseReport, now_ms: float) -> None:
    """Count this attempt as evidence for its arm, once per member that had a stake in it.

    Execution time is divided by what the *baseline's* cost model predicts for that batch on
    that class of hardware: a slower canary must not become its own yardstick. A stream is
    measured by its first token and its pace instead, see `stream_yardstick`.
    """
    pool = attempt.pool
    spec = attempt.lease.replica.spec
    split = state.snapshot.models[pool.model].split if pool.model in state.snapshot.models else None
    yardstick = pool
    if split is not None:
        yardstick = state.pools.get((pool.model, split.baseline), pool)
    predicted_ms = yardstick.reference_ms(spec, attempt.work, attempt.items, attempt.longest)
    execution_ms = report.execution_ms
    if execution_ms is None:
        execution_ms = now_ms - attempt.started_ms
    busy_ms = execution_ms
    if report.first_byte_ms is not None and report.items is not None:
        item, first_ms = report.items[0], report.first_byte_ms
        prompt = item.prompt_tokens or attempt.members[0].request.prompt_tokens
        elapsed_ms, tokens = now_ms - attempt.started_ms, item.completion_tokens
        slowness = yardstick.yardstick(spec).slowness(prompt, first_ms, elapsed_ms, tokens)
        if slowness is not None:
            execution_ms, predicted_ms = slowness, 1.0
    ratio = None
    if replica_is_warm(state, attempt):
        ratio = execution_ratio(execution_ms, predicted_ms)
    items = report.items
    evidence = state.evidence
    arm: Arm | None = None
    for index, member in enumerate(attempt.members):
        if member.state == DONE or not member.judged:
            continue
        own = None if items is None else items[index]
        outcome = report.outcome if own is None else own.outcome
        if outcome is Outcome.SUCCESS:
            if member.arm is not arm:  # members of a batch are of one arm, but for a shadow
                arm = member.arm
                cell = evidence.cell(pool.model, pool.version, arm, now_ms)
            cell.answer(
                ratio,
                now_ms - member.arrived_ms,
                now_ms <= member.request.deadline_ms,
                0 if own is None else own.prompt_tokens,
                0 if own is None else own.completion_tokens,
            )
        elif outcome is Outcome.FAULT:
            evidence.fault(pool.model, pool.version, member.arm, now_ms)
        elif outcome is Outcome.CLIENT_ERROR:
            evidence.client_error(pool.model, pool.version, member.arm, now_ms)
    evidence.batch(pool.model, pool.version, attempt.members[0].arm, attempt.items, now_ms, busy_ms)


def replica_is_warm(state: State, attempt: Attempt) -> bool:
    """Whether this replica is old enough for its timings to be evidence."""
    return attempt.lease.replica.age_ms(state.clock.now_ms()) >= state.config.warm_up_ms
