"""What a changed fleet should manage, before any latency can tell: for the adaptive limit.

A limit that has to find its way from one replica's worth to forty refuses good work while it
grows. How many requests a fleet runs at once is configuration, and how fast a version runs
them is known from the batches it has run so far:

    places = sum over replicas of (batch size x batches at a time)
    rate   = sum over versions of (batches at a time x mean batch / mean execution time)

A version that has run nothing yet adds places and no rate.
"""

from __future__ import annotations

from engine.scheduling.seats import served_by
from engine.scheduling.state import State
from engine.types import FleetSnapshot, ModelSpec, Protocol, ReplicaSpec

_STREAMS_A_BATCH = 32  # what counts as one batch of a server that batches continuously

Fleet = dict[str, tuple[str, int, int, str]]


def fleets(snapshot: FleetSnapshot) -> dict[str, Fleet]:
    """What serves each model, as far as its capacity is concerned."""
    found: dict[str, Fleet] = {}
    for spec in snapshot.replicas.values():
        if not spec.draining:
            for model, version in ((spec.model, spec.version), *served_by(spec, snapshot.models)):
                shape = (version, spec.max_batch_size, spec.max_concurrency, spec.accelerator)
                found.setdefault(model, {})[spec.replica_id] = shape
    return found


def foresee(state: State, model: ModelSpec, now_ms: float) -> None:
    """Tell the limit of `model` what its replicas should manage now."""
    places = 0
    largest = 0
    requests_per_s: float | None = None
    for version in model.versions:
        pool = state.pools[(model.model, version)]
        at_once = 0
        for seat in pool.router.roster.by_id.values():
            spec = seat.spec
            if not spec.draining:
                at_once += spec.max_concurrency
                places += spec.max_concurrency * _places(spec)
                largest = max(largest, min(_STREAMS_A_BATCH, spec.max_concurrency), _places(spec))
        execution_ms = pool.execution.merged(now_ms).mean()
        if at_once and pool.batches and execution_ms:
            mean_batch = pool.batch_sizes / pool.batches
            added = 1000.0 * at_once * mean_batch / execution_ms
            requests_per_s = added + (requests_per_s or 0.0)
    if places:
        state.gate.expect(model.model, requests_per_s, places, largest, now_ms)


def _places(spec: ReplicaSpec) -> int:
    return 1 if spec.protocol is Protocol.OPENAI else spec.max_batch_size
