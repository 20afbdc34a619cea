"""The decision record of one request: every comparison that was made, with its numbers.

Nothing is written down while the request runs: the ticket keeps the objects that decided
(split position, queue length met, batch plan, route, attempts), and the record is read off
them when somebody asks. A refusal's record is its `Refusal`.
"""

from __future__ import annotations

from itertools import islice

from engine.errors import Refusal
from engine.outcomes import Outcome
from engine.scheduling.attempt import Attempt
from engine.scheduling.state import Refused, State
from engine.scheduling.ticket import DONE, QUEUED, Ticket
from engine.types import Request

Record = dict[str, object]

_SAMPLED_FROM = 256


def explain(state: State, request_id: str) -> Record | None:
    """The whole record, JSON-ready, or None where it is no longer remembered."""
    found = state.recent.get(request_id)
    if found is None:
        return None
    if isinstance(found, Refused):
        record = _request(found.request)
        record["state"] = "refused"
        record["refusal"] = refusal_record(found.refusal)
        record["stages"] = [
            _stage("admission", str(found.refusal.code), 0.0, _compared(found.refusal))
        ]
        return record
    return _ticket(state, found)


def samples(state: State, limit: int) -> list[Record]:
    """Records of recent finished requests, newest first, those that went wrong preferred.

    A second may bring a thousand served requests and one refusal: the refusal is the one that
    somebody will ask about. Looks at no more than `_SAMPLED_FROM` requests.
    """
    odd: list[str] = []
    plain: list[str] = []
    for found in islice(reversed(state.order), _SAMPLED_FROM):
        request_id = found.request.request_id
        if isinstance(found, Refused):
            odd.append(request_id)
        elif found.state == DONE:
            outcome = found.outcome
            served = outcome is not None and outcome.outcome is Outcome.SUCCESS
            (plain if served and found.attempts <= 1 else odd).append(request_id)
    kept = odd[: limit - limit // 3]
    kept += plain[: limit - len(kept)]
    now_ms = state.clock.now_ms()
    made = []
    for request_id in kept:
        record = explain(state, request_id)
        if record is not None:
            record["agoMs"] = now_ms - state.recent[request_id].request.arrived_ms
            made.append(record)
    return made


def refusal_record(refusal: Refusal) -> Record:
    """A refusal with the comparison it made and what would have let the request pass."""
    return {
        "code": str(refusal.code),
        "message": refusal.message,
        **_compared(refusal),
        "retryAfterMs": refusal.retry_after_ms,
        "details": refusal.details,
    }


def _compared(refusal: Refusal) -> Record:
    return {"limit": refusal.limit_name, "value": refusal.limit, "used": refusal.used}


def _ticket(state: State, ticket: Ticket) -> Record:
    request = ticket.request
    record = _request(request)
    record["state"] = {QUEUED: "queued", DONE: "done"}.get(ticket.state, "running")
    record["version"] = ticket.pool.version
    record["arm"] = str(ticket.arm)
    stages = [
        _stage("admission", "admitted", 0.0, {"limit": ticket.admitted_limit}),
        _stage(
            "split",
            str(ticket.arm),
            0.0,
            {
                "position": ticket.position,
                "canaryRatio": _canary_ratio(state, request.model),
                "override": request.version,
                "shadow": ticket.shadow,
            },
        ),
        _stage("queue", "queued", 0.0, {"ahead": ticket.met_queue, "work": ticket.work}),
    ]
    for attempt in ticket.history:
        stages.extend(_attempt(ticket, attempt))
    if ticket.finished_ms is not None:
        verdict = "served"
        numbers: Record = {}
        if ticket.refusal is not None:
            verdict = str(ticket.refusal.code)
            numbers = _compared(ticket.refusal)
        elif ticket.outcome is not None and ticket.outcome.outcome != "success":
            verdict = str(ticket.outcome.outcome)
        stages.append(_stage("outcome", verdict, ticket.finished_ms - ticket.arrived_ms, numbers))
        record["totalMs"] = ticket.finished_ms - ticket.arrived_ms
    if ticket.refusal is not None:
        record["refusal"] = refusal_record(ticket.refusal)
    record["attempts"] = ticket.attempts
    record["stages"] = stages
    return record


def _attempt(ticket: Ticket, attempt: Attempt) -> list[Record]:
    at_ms = attempt.started_ms - ticket.arrived_ms
    plan = attempt.plan
    batch = _stage(
        "batch",
        str(plan.reason),
        at_ms,
        {
            "size": len(attempt.members),
            "work": attempt.work,
            "predictedMs": plan.predicted_ms,
            "marginMs": plan.margin_ms,
            **plan.numbers,
        },
    )
    route = attempt.route
    numbers: Record = {"lease": attempt.lease_id, "rule": None if route is None else route.rule}
    if route is not None:
        numbers["candidates"] = [
            {"replicaId": replica_id, "score": score} for replica_id, score in route.candidates
        ]
        numbers.update(route.numbers)
    stage = "hedge" if attempt.hedge_of is not None else "route"
    return [batch, _stage(stage, attempt.lease.replica_id, at_ms, numbers)]


def _canary_ratio(state: State, model: str) -> float | None:
    spec = state.snapshot.models.get(model)
    return None if spec is None or spec.split is None else spec.split.canary_ratio


def _request(request: Request) -> Record:
    return {
        "requestId": request.request_id,
        "tenant": request.tenant,
        "model": request.model,
        "promptTokens": request.prompt_tokens,
        "maxOutputTokens": request.max_output_tokens,
        "items": request.items,
        "lane": str(request.lane),
        "priority": request.priority.name.lower(),
        "sessionKey": request.session_key,
        "deadlineMs": request.deadline_ms - request.arrived_ms,
    }


def _stage(stage: str, verdict: str, at_ms: float, numbers: Record) -> Record:
    return {"stage": stage, "verdict": verdict, "atMs": at_ms, "numbers": numbers}
