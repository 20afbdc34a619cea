"""Can this be served in time now, how surely, and if not, what would let it pass?

The answer comes from the code that admits and schedules: the same feasibility, the same
buckets, the same cost models. It takes nothing: no token, no permit, no place in a queue.
"""

from __future__ import annotations

from engine.admission.quote import Quote, make_quote
from engine.errors import Refusal
from engine.scheduling import admit
from engine.scheduling.state import State
from engine.types import Request


def quote(state: State, request: Request) -> Quote:
    """Judge `request` as `submit` would, without letting it in."""
    now_ms = state.clock.now_ms()
    admit.examine(state, request)
    spec = state.snapshot.models.get(request.model)
    if spec is None:
        return make_quote(refusal=admit.unknown_model(state, request))
    refusal = state.gate.would_refuse(
        request.tenant,
        request.prompt_tokens + request.max_output_tokens,
        request.model,
        request.priority,
        now_ms,
    )
    placed = admit.place(state, spec, request)
    if isinstance(placed, Refusal):
        return make_quote(refusal=placed)
    pool, _, _ = placed
    work = pool.work_of(request)
    refusal = refusal or admit.infeasible(state, pool, request, work, now_ms)
    alone_ms = pool.alone_ms(work, now_ms)
    wait_ms, deviation_ms = pool.expected_wait_ms(now_ms)
    return make_quote(
        refusal=refusal,
        expected_ms=wait_ms + alone_ms,
        deviation_ms=deviation_ms,
        remaining_ms=request.deadline_ms - now_ms,
    )
