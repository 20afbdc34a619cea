"""Replicas and a router on the table, for tests that move time by hand."""

import random
from collections import Counter

from engine.outcomes import Outcome
from engine.routing.breaker import BreakerConfig
from engine.routing.lease import Lease
from engine.routing.replica_config import DEFAULT_CONFIG, ReplicaConfig
from engine.routing.replica_state import ReplicaState
from engine.routing.router import Router, RouterConfig
from engine.types import ReplicaSpec

SEED = 20_250_117


def spec(name: str, **changes: object) -> ReplicaSpec:
    fields: dict[str, object] = {
        "replica_id": name,
        "model": "m",
        "version": "v1",
        "address": f"http://{name}",
        "max_concurrency": 8,
        "age_s": 3600.0,
    }
    return ReplicaSpec(**{**fields, **changes})  # type: ignore[arg-type]


def replica(
    name: str = "a",
    *,
    now_ms: float = 0.0,
    breaker: BreakerConfig | None = None,
    **changes: object,
) -> ReplicaState:
    config = DEFAULT_CONFIG if breaker is None else ReplicaConfig(breaker=breaker)
    return ReplicaState(spec(name, **changes), now_ms, random.Random(SEED), config)


def router(states: list[ReplicaState], config: RouterConfig | None = None) -> Router:
    made = Router(config, random.Random(SEED))
    made.set_replicas(states, 0.0)
    return made


def end(
    state: ReplicaState, outcome: Outcome, now_ms: float, latency_ms: float | None = 50.0
) -> Lease:
    """One whole attempt that ends at `now_ms`."""
    lease = state.acquire(now_ms if latency_ms is None else now_ms - latency_ms)
    lease.release(outcome, latency_ms, now_ms)
    return lease


def trip(state: ReplicaState, now_ms: float) -> None:
    """Five faults in a row."""
    for _ in range(5):
        end(state, Outcome.FAULT, now_ms, 2.0)


def shares(made: Router, n: int, now_ms: float, **options: object) -> Counter[str]:
    """Whom `n` picks in a row choose, each served in no time before the next."""
    chosen: Counter[str] = Counter()
    for _ in range(n):
        decision = made.pick(now_ms, **options)  # type: ignore[arg-type]
        assert decision is not None
        chosen[decision.replica.replica_id] += 1
        decision.replica.acquire(now_ms).release(Outcome.CANCELLED, None, now_ms)
    return chosen
