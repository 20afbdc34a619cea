"""Swapping the configuration whole, while requests are queued and running.

What survives: queues, leases, breakers, learned costs, bucket levels. What changes at once:
splits, limits, weights, drains. A version that left the split hands its queued requests to
the baseline, so that an abort reaches even those who were waiting for the canary.
"""

from __future__ import annotations

import random

from engine.batching.former import BatchFormer
from engine.batching.planner import GoodputPlanner, PlannerConfig
from engine.errors import Refusal, RefusalCode
from engine.routing.hedge import HedgePolicy
from engine.routing.replica_state import ReplicaState
from engine.routing.router import Router
from engine.scheduling.foresee import fleets, foresee
from engine.scheduling.notices import Notices
from engine.scheduling.pool import Pool
from engine.scheduling.seats import Seats, take_seats, warm
from engine.scheduling.settle import refuse_ticket
from engine.scheduling.state import PoolKey, State
from engine.scheduling.ticket import Ticket
from engine.types import Arm, FleetSnapshot, ModelSpec, SplitSpec


def apply(state: State, snapshot: FleetSnapshot) -> None:
    """Make `snapshot` the configuration. O(models + replicas + tenants seen), or the last alone
    where nothing else changed: taking over 300 replicas anew would hold up requests for 3 ms."""
    now_ms = state.clock.now_ms()
    before = state.snapshot
    state.snapshot = snapshot
    state.gate.set_tenants(snapshot.tenants, now_ms)
    if snapshot.replicas == before.replicas and snapshot.models == before.models:
        return
    state.gate.set_models(snapshot.models, now_ms)
    by_pool: dict[PoolKey, list[ReplicaState]] = {}
    replicas: dict[str, ReplicaState] = {}
    all_seats: dict[str, Seats] = {}
    for replica_id, spec in snapshot.replicas.items():
        known = state.replicas.get(replica_id)
        if known is None:
            known = ReplicaState(spec, now_ms, random.Random(state.rng.getrandbits(64)))
        elif known.spec is not spec:
            known.update(spec, now_ms)
        replicas[replica_id] = known
        by_pool.setdefault((spec.model, spec.version), []).append(known)
        before_seats = state.seats.get(replica_id, {})
        seats = take_seats(known, before_seats, snapshot.models, state.rng, now_ms)
        if seats:
            all_seats[replica_id] = seats
            for key, seat in seats.items():
                by_pool.setdefault(key, []).append(seat)
    state.replicas = replicas
    state.seats = all_seats
    for model in snapshot.models.values():
        for version in model.versions:
            key = (model.model, version)
            pool = state.pools.get(key)
            if pool is None:
                pool = state.pools[key] = _new_pool(state, key, now_ms)
            pool.configure(by_pool.get(key, []), model.strategy, now_ms)
            state.dirty[pool] = None
    was, now = fleets(before), fleets(snapshot)
    for name in [name for name in snapshot.models if now.get(name) != was.get(name)]:
        foresee(state, snapshot.models[name], now_ms)
    for model in snapshot.models.values():
        _follow_split(state, model, before.models.get(model.model), now_ms)
    for key in [key for key in state.pools if not _known(snapshot, key)]:
        _close_pool(state, state.pools.pop(key), now_ms)


def replica_reported(
    state: State,
    replica_id: str,
    *,
    ready: bool | None,
    max_concurrency: int | None,
    max_batch_size: int | None,
    queued: int | None,
    gpu_memory_ratio: float | None,
    loaded_models: frozenset[str] | None,
) -> None:
    """A probe's findings: readiness, the ceilings a self-regulating replica sets, its load."""
    replica = state.replicas.get(replica_id)
    if replica is None:
        return
    now_ms = state.clock.now_ms()
    loaded = None if loaded_models is None else warm(loaded_models)
    for seat in (replica, *state.seats.get(replica_id, {}).values()):
        seat.report(
            now_ms,
            ready=ready,
            max_concurrency=max_concurrency,
            queued=queued,
            gpu_memory_ratio=gpu_memory_ratio,
            loaded_models=loaded,
        )
        pool = state.pools.get((seat.spec.model, seat.spec.version))
        if pool is None:
            continue
        if max_batch_size is not None:
            pool.limit_batch(seat.spec, max_batch_size, now_ms)
        state.dirty[pool] = None


def _new_pool(state: State, key: PoolKey, now_ms: float) -> Pool:
    config = state.config
    router = Router(config.router, random.Random(state.rng.getrandbits(64)))
    router.roster.watcher = Notices(state, *key)
    return Pool(
        *key,
        _new_former(state, key),
        router,
        HedgePolicy(config.hedge),
        config.pool,
        now_ms,
    )


def _new_former(state: State, key: PoolKey) -> BatchFormer:
    factory = state.config.former_factory
    if factory is not None:
        return factory(key)
    return GoodputPlanner(PlannerConfig(), state.config.secret)


def _known(snapshot: FleetSnapshot, key: PoolKey) -> bool:
    model = snapshot.models.get(key[0])
    return model is not None and key[1] in model.versions


def _follow_split(state: State, model: ModelSpec, before: ModelSpec | None, now_ms: float) -> None:
    """Note a changed split in the feed, and bring home what waits for a version that left."""
    split = model.split
    old = None if before is None else before.split
    if split == old or split is None:
        return
    if old is not None:
        state.event(
            "split",
            model.model,
            f"{_words(old)} -> {_words(split)}",
            {"canary": split.canary, "ratio": split.canary_ratio, "before": old.canary_ratio},
        )
    if old is None or old.canary in (None, split.canary, split.baseline):
        return
    left = state.pools.get((model.model, old.canary or ""))
    home = state.pools.get((model.model, split.baseline))
    if left is not None and home is not None:
        for ticket in _waiting(state, left):
            if ticket.request.version is None and not ticket.shadow:
                left.former.remove(ticket)
                ticket.pool = home
                ticket.arm = Arm.BASELINE
                home.former.offer(ticket, now_ms)
                ticket.queued = True
        state.dirty[home] = None


def _close_pool(state: State, pool: Pool, now_ms: float) -> None:
    """A version was deleted: answer what waited for it."""
    for ticket in _waiting(state, pool):
        pool.former.remove(ticket)
        refuse_ticket(
            state,
            ticket,
            Refusal(
                code=RefusalCode.NO_CAPACITY,
                message=f"version {pool.version} of {pool.model} was removed",
                limit_name="version",
                retry_after_ms=1.0,
            ),
            now_ms,
        )
    state.dirty.pop(pool, None)
    pool.wake_ms = None


def _waiting(state: State, pool: Pool) -> list[Ticket]:
    return [t for t in state.live.values() if t.pool is pool and t.queued]


def _words(split: SplitSpec) -> str:
    if split.canary is None:
        return split.baseline
    return f"{split.baseline} + {split.canary_ratio:.0%} {split.canary}"
