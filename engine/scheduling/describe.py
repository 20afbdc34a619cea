"""Telling what is happening: the live view that dashboards and APIs show."""

from __future__ import annotations

from engine.routing import hard_gate
from engine.routing.replica_state import ReplicaState
from engine.scheduling.pool import Pool
from engine.scheduling.state import State
from engine.stats.histogram import LogHistogram
from engine.types import Arm, ModelSpec
from engine.view import (
    AdmissionView,
    CostView,
    EventView,
    ModelView,
    QueueView,
    ReplicaView,
    SchedulerView,
    SplitView,
    VersionView,
)


def view(state: State) -> SchedulerView:
    """Everything this scheduler can say of itself, as JSON-ready dictionaries."""
    now_ms = state.clock.now_ms()
    return {
        "revision": state.snapshot.revision,
        "conservation": state.ledger.conservation(),
        "traffic": state.ledger.traffic(_latency(state, now_ms), now_ms),
        "admission": _admission(state, now_ms),
        "queues": [_queue(pool, now_ms) for pool in state.pools.values()],
        "models": [_model(state, spec, now_ms) for spec in state.snapshot.models.values()],
        "replicas": [_replica(replica, now_ms) for replica in state.replicas.values()],
        "tenants": state.gate.tenant_views(now_ms),
        "events": [_event(at_ms, event, now_ms) for at_ms, event in _events(state)],
    }


def _latency(state: State, now_ms: float) -> LogHistogram:
    """End-to-end latency of everything served in the last minute."""
    merged = LogHistogram()
    for pool in state.pools.values():
        merged.merge(pool.latency.merged(now_ms))
    return merged


def _admission(state: State, now_ms: float) -> AdmissionView:
    """The tightest limit of all models: the one an operator should look at first."""
    return state.gate.view(now_ms)


def _queue(pool: Pool, now_ms: float) -> QueueView:
    numbers = pool.former.numbers()
    mode = numbers.get("mode")
    return {
        "model": pool.model,
        "version": pool.version,
        "queued": len(pool.former),
        "queuedWork": _number(numbers.get("queued_work")) or 0.0,
        "oldestMs": _number(numbers.get("oldest_ms")),
        "meanBatch": pool.batch_sizes / pool.batches if pool.batches else None,
        "flushReasons": {str(reason): n for reason, n in pool.flush_reasons.items()},
        "mode": mode if isinstance(mode, str) else "idle",
        "slotMs": _number(numbers.get("slot_ms")),
        "theta": _number(numbers.get("theta")),
    }


def _model(state: State, spec: ModelSpec, now_ms: float) -> ModelView:
    split = spec.split
    shown: SplitView | None = None
    if split is not None:
        shown = {
            "baseline": split.baseline,
            "canary": split.canary,
            "percent": 100.0 * split.canary_ratio,
            "shadow": split.shadow,
        }
    return {
        "model": spec.model,
        "strategy": str(spec.strategy),
        "sloMs": spec.slo_ms,
        "split": shown,
        "versions": [_version(state, spec, version, now_ms) for version in sorted(spec.versions)],
    }


def _version(state: State, spec: ModelSpec, version: str, now_ms: float) -> VersionView:
    pool = state.pools[(spec.model, version)]
    split = spec.split
    arm: Arm | None = None
    share = 0.0
    if split is not None and version == split.baseline:
        arm = Arm.BASELINE
        share = 1.0 if split.shadow else 1.0 - split.canary_ratio
    elif split is not None and version == split.canary:
        arm = Arm.CANARY
        share = 0.0 if split.shadow else split.canary_ratio
    replicas = list(pool.router.roster.by_id.values())
    latency = pool.latency.merged(now_ms)
    ratios = [r for each in replicas if (r := each.breaker.fault_ratio(now_ms)) is not None]
    return {
        "version": version,
        "arm": None if arm is None else str(arm),
        "share": share,
        "readyReplicas": sum(1 for replica in replicas if hard_gate.is_ready(replica, now_ms)),
        "ratePerS": pool.rates.sample([pool.served], now_ms)[0],
        "errorRatio": sum(ratios) / len(ratios) if ratios else None,
        "p50Ms": latency.quantile(0.50),
        "p95Ms": latency.quantile(0.95),
        "p99Ms": latency.quantile(0.99),
        "cost": [_cost(pool, replica) for replica in replicas],
    }


def _cost(pool: Pool, replica: ReplicaState) -> CostView:
    spec = replica.spec
    cost = pool.costs[spec.replica_id]
    timing = pool.timings.get(spec.replica_id)
    return {
        "replicaId": spec.replica_id,
        "accelerator": spec.accelerator,
        "unit": str(spec.work_unit),
        "fixedMs": cost.fixed_ms,
        "perWorkMs": cost.per_work_ms,
        "quadraticMs": cost.quadratic_ms,
        "deviationMs": cost.deviation_ms,
        "samples": cost.samples,
        "firstTokenMs": None if timing is None else timing.first_token_ms,
        "perTokenMs": None if timing is None else timing.per_token_ms,
        "last": {"work": cost.last_work, "ms": cost.last_ms} if cost.samples else None,
    }


def _replica(replica: ReplicaState, now_ms: float) -> ReplicaView:
    return replica.view(now_ms)


def _events(state: State) -> list[tuple[float, EventView]]:
    """The latest lines of the feed, oldest first. Hedges have a list of their own, so that a
    second of many hedges does not wash a breaker out of the feed."""
    size = state.config.event_size
    half = size - min(len(state.events), size // 2)
    hedges = list(state.hedge_events)[-half:]
    others = list(state.events)[-(size - len(hedges)) :]
    return sorted(hedges + others, key=lambda line: line[1]["seq"])


def _event(at_ms: float, event: EventView, now_ms: float) -> EventView:
    shown = event.copy()
    shown["atMs"] = now_ms - at_ms
    return shown


def _number(value: float | str | None) -> float | None:
    return value if isinstance(value, float | int) else None
