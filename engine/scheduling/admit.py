"""May this request come in, and which version serves it?

Order: tenant reservation -> feasibility -> adaptive limit. A refusal at any step returns
what the earlier ones took, so a request that is turned away costs no quota. Feasibility asks
only what no scheduler could change (no replica, or slower alone than the deadline allows):
whether the queue is too long is the planner's question, and it answers later and better.
"""

import math
from copy import copy

from engine.admission.permit import Permit
from engine.errors import InvalidInput, Refusal, RefusalCode
from engine.rollout.splitter import assign
from engine.scheduling.pool import Pool
from engine.scheduling.state import Refused, State
from engine.scheduling.ticket import Ticket
from engine.types import Arm, ModelSpec, Request

_WHEN_NOBODY_KNOWS_MS = 1000.0  # the pace at which a fleet without replicas is looked at again


def submit(state: State, request: Request) -> Ticket | Refusal:
    """Admit or refuse. Raises `InvalidInput` for a request that makes no sense at all."""
    examine(state, request)
    now_ms = state.clock.now_ms()
    ledger = state.ledger
    ledger.arrived += 1
    spec = state.snapshot.models.get(request.model)
    if spec is None:
        return _refuse(state, request, unknown_model(state, request), None, now_ms)
    if state.draining:
        return _refuse(state, request, _draining(), None, now_ms)
    tokens = request.prompt_tokens + request.max_output_tokens
    reservation = state.gate.reserve(request.tenant, tokens, now_ms)
    if isinstance(reservation, Refusal):
        return _refuse(state, request, reservation, None, now_ms)
    placed = place(state, spec, request)
    if isinstance(placed, Refusal):
        reservation.give_back(now_ms)
        return _refuse(state, request, placed, None, now_ms)
    pool, arm, position = placed
    if position is not None and request.session_key is not None:
        # before anything may turn it away: an arm that sheds was sent its share all the same
        state.evidence.arrived(request.model, pool.version, arm, position, now_ms)
    try:
        work = pool.work_of(request)
        refusal = infeasible(state, pool, request, work, now_ms)
    except Exception:  # an estimate that raises fails its own request alone
        ledger.arrived -= 1
        reservation.give_back(now_ms)
        raise
    if refusal is not None:
        reservation.give_back(now_ms)
        return _refuse(state, request, refusal, (pool, arm), now_ms)
    permit = state.gate.admit(reservation, request.model, request.priority, now_ms)
    if isinstance(permit, Refusal):
        return _refuse(state, request, permit, (pool, arm), now_ms)
    try:
        ticket = _enqueue(state, request, pool, arm, position, permit, work, now_ms)
    except Exception:
        ledger.arrived -= 1
        permit.ignore(0, now_ms)
        raise
    state.live[request.request_id] = ticket
    state.remember(request.request_id, ticket)
    ledger.queued += 1
    split = spec.split
    if (
        split is not None
        and split.shadow
        and split.canary is not None
        and position is not None
        and position < split.canary_ratio
    ):
        _shadow(state, request, split.canary, position, work, now_ms)
    return ticket


def infeasible(
    state: State, pool: Pool, request: Request, work: float, now_ms: float
) -> Refusal | None:
    """Why no scheduler could serve this in time, or None where one could."""
    deadline_ms = request.deadline_ms
    probe_ms = pool.router.earliest_probe_ms(now_ms)
    if probe_ms is None or probe_ms > deadline_ms:
        wait_ms = _WHEN_NOBODY_KNOWS_MS if probe_ms is None else max(probe_ms - now_ms, 1.0)
        return Refusal(
            code=RefusalCode.NO_CAPACITY,
            message=f"no replica of {pool.model} {pool.version} can take work now",
            limit_name="ready_replicas",
            limit=0.0,
            used=float(len(pool.costs)),
            retry_after_ms=wait_ms,
            details={"version": pool.version},
        )
    largest = pool.largest_batch
    if request.items > largest and not pool.streams:
        return Refusal(
            code=RefusalCode.INVALID_REQUEST,
            message=f"input has {request.items} items, a batch of {pool.model} holds {largest}",
            limit_name="max_batch_size",
            limit=float(largest),
            used=float(request.items),
        )
    if work > pool.largest_work:
        return Refusal(
            code=RefusalCode.INVALID_REQUEST,
            message=f"{work:.0f} tokens: a batch of {pool.model} holds {pool.largest_work:.0f}",
            limit_name="max_batch_tokens",
            limit=pool.largest_work,
            used=work,
            details={"field": "input"},
        )
    if pool.trusts_its_costs(now_ms):
        alone_ms = pool.alone_ms(work, now_ms)
        if now_ms + alone_ms > deadline_ms:
            return Refusal(
                code=RefusalCode.DEADLINE_UNREACHABLE,
                message=(
                    f"this request takes {alone_ms:.0f} ms alone on the fastest replica, "
                    f"its deadline leaves {deadline_ms - now_ms:.0f} ms"
                ),
                limit_name="deadline_ms",
                limit=deadline_ms - now_ms,
                used=alone_ms,
                details={"earliestDeadlineMs": math.ceil(alone_ms)},
            )
    first_ms = request.first_token_deadline_ms
    if first_ms is not None:
        quickest_ms = pool.first_token_ms()
        if quickest_ms is not None and now_ms + quickest_ms > first_ms:
            return Refusal(
                code=RefusalCode.DEADLINE_UNREACHABLE,
                message=(
                    f"the first token takes {quickest_ms:.0f} ms on the quickest replica, "
                    f"the deadline leaves {first_ms - now_ms:.0f} ms"
                ),
                limit_name="first_token_ms",
                limit=first_ms - now_ms,
                used=quickest_ms,
                details={"earliestFirstTokenMs": math.ceil(quickest_ms)},
            )
    queued = len(pool.former)
    if queued >= state.config.max_queue:
        return Refusal(
            code=RefusalCode.QUEUE_FULL,
            message=f"{queued} requests wait for {pool.model} {pool.version}",
            limit_name="max_queue",
            limit=float(state.config.max_queue),
            used=float(queued),
            retry_after_ms=max(pool.alone_ms(work, now_ms), 10.0),
        )
    return None


def examine(state: State, request: Request) -> None:
    if not request.prompt_tokens > 0:
        raise InvalidInput("prompt_tokens", request.prompt_tokens, "must be >= 1")
    if not request.deadline_ms >= 0 or request.deadline_ms == math.inf:
        raise InvalidInput("deadline_ms", request.deadline_ms, "must be a finite time >= 0 ms")
    if request.max_output_tokens < 0:
        raise InvalidInput("max_output_tokens", request.max_output_tokens, "must be >= 0")
    if request.items < 1:
        raise InvalidInput("items", request.items, "must be >= 1")
    if request.request_id in state.live:
        raise InvalidInput("request_id", request.request_id, "is in flight already")


def place(
    state: State, spec: ModelSpec, request: Request
) -> tuple[Pool, Arm, float | None] | Refusal:
    """The version this request goes to, by override or by the salted hash of its session."""
    split = spec.split
    version = request.version
    arm = Arm.BASELINE
    position: float | None = None
    if version is not None:
        if version not in spec.versions:
            return Refusal(
                code=RefusalCode.INVALID_REQUEST,
                message=f"model {spec.model} has no version {version}",
                limit_name="version",
                details={"field": "version", "known": sorted(spec.versions)},
            )
        if split is not None and version == split.canary:
            arm = Arm.CANARY
    elif split is None:
        return Refusal(
            code=RefusalCode.NO_CAPACITY,
            message=f"model {spec.model} has no traffic split: set its first version",
            limit_name="traffic_split",
            retry_after_ms=_WHEN_NOBODY_KNOWS_MS,
        )
    else:
        version = split.baseline
        if split.canary is not None:
            arm, position = assign(split, request.session_key or request.request_id)
            if arm is Arm.CANARY and not split.shadow:
                version = split.canary
            else:
                arm = Arm.BASELINE
    return state.pools[(spec.model, version)], arm, position


def _enqueue(
    state: State,
    request: Request,
    pool: Pool,
    arm: Arm,
    position: float | None,
    permit: Permit | None,
    work: float,
    now_ms: float,
) -> Ticket:
    tenant = state.snapshot.tenants.get(request.tenant)
    weight = 1.0 if tenant is None else tenant.weight
    ticket = Ticket(request, pool, arm, position, permit, work, weight, shadow=permit is None)
    if pool.streams:
        ticket.items = 1
    first_ms = request.first_token_deadline_ms
    if first_ms is not None:  # in the queue, the end must be near enough for the beginning
        rest_ms = pool.alone_ms(work, now_ms) - (pool.first_token_ms() or 0.0)
        ticket.deadline_ms = min(ticket.deadline_ms, first_ms + max(rest_ms, 0.0))
    former = pool.former
    ticket.met_queue = len(former)
    limit = state.gate.limit(request.model)
    ticket.admitted_limit = None if limit is None else limit.value
    ticket.queued = True
    former.offer(ticket, now_ms)
    state.dirty[pool] = None
    return ticket


def _shadow(
    state: State, request: Request, version: str, position: float, work: float, now_ms: float
) -> None:
    """Send the canary a copy whose answer is dropped, counted as evidence and never billed."""
    request = copy(request)  # the original's payload is let go when its client is answered
    pool = state.pools[(request.model, version)]
    if len(pool.former) < state.config.max_queue:
        _enqueue(state, request, pool, Arm.CANARY, position, None, work, now_ms)


def _refuse(
    state: State,
    request: Request,
    refusal: Refusal,
    placed: tuple[Pool, Arm] | None,
    now_ms: float,
) -> Refusal:
    state.ledger.refuse(refusal.code)
    state.remember(request.request_id, Refused(request, refusal, now_ms))
    request.payload = None
    if placed is not None and request.version is None:
        pool, arm = placed
        state.evidence.shed(request.model, pool.version, arm, refusal.code, now_ms)
    return refusal


def unknown_model(state: State, request: Request) -> Refusal:
    known = sorted(state.snapshot.models)[:8]
    return Refusal(
        code=RefusalCode.MODEL_NOT_FOUND,
        message=f"no model named {request.model!r}",
        limit_name="model",
        details={"field": "model", "known": known},
    )


def _draining() -> Refusal:
    return Refusal(
        code=RefusalCode.NO_CAPACITY,
        message="this gateway is shutting down: send the request again, another one answers",
        limit_name="draining",
        retry_after_ms=_WHEN_NOBODY_KNOWS_MS,
    )
