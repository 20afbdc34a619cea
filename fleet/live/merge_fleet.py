"""Merging what gateways say of the same model, version, replica, queue or tenant.

Every gateway sees every replica and judges it alone: two gateways may disagree about a
breaker. The merged row shows the worst judgement, and loads add up, because each gateway
counts only what it sent itself.
"""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from engine.view import ModelView, QueueView, ReplicaView, TenantView, VersionView
from fleet.live.combine import (
    STATUS_RANK,
    Row,
    grouped,
    largest,
    total,
    totals_by_key,
    weighted_mean,
)

MODE_RANK = {"goodput": 0, "edf": 1, "idle": 2}
BREAKER_RANK = {"open": 0, "half_open": 1, "closed": 2}


def merge_replicas(rows: Iterable[Row]) -> list[ReplicaView]:
    """One row a replica, ordered by id so that tables hold still."""
    merged: dict[str, dict[str, Any]] = {}
    copied: set[str] = set()
    for row in rows:
        replica_id = row["replicaId"]
        known = merged.get(replica_id)
        if known is None:
            merged[replica_id] = cast("dict[str, Any]", row)
            continue
        if replica_id not in copied:  # never write into a gateway's own view
            copied.add(replica_id)
            known = merged[replica_id] = dict(known)
        _join_replica(known, row)
    return [cast("ReplicaView", merged[replica_id]) for replica_id in sorted(merged)]


def _join_replica(known: dict[str, Any], other: Row) -> None:
    """Fold another gateway's view of the same replica in. One pass: there may be thousands."""
    here, there = known["batches"], other["batches"]
    for key in ("score", "latencyMs", "errorRatio"):
        known[key] = _blend(known[key], here, other[key], there)
    if known["p95Ms"] is None or (other["p95Ms"] or 0.0) > known["p95Ms"]:
        known["p95Ms"] = other["p95Ms"]
    known["inFlight"] += other["inFlight"]
    known["batches"] = here + there
    known["backpressure"] += other["backpressure"]
    if STATUS_RANK.get(other["status"], 3) < STATUS_RANK.get(known["status"], 3):
        known["status"] = other["status"]
        known["why"] = other["why"]
    ours, theirs = known["breaker"], other["breaker"]
    if BREAKER_RANK.get(theirs["state"], 1) < BREAKER_RANK.get(ours["state"], 1):
        known["breaker"], known["health"], known["why"] = theirs, other["health"], other["why"]


def _blend(
    ours: float | None, our_weight: float, theirs: float | None, their_weight: float
) -> float | None:
    if ours is None or theirs is None:
        return theirs if ours is None else ours
    mass = our_weight + their_weight
    if mass <= 0:
        return (ours + theirs) / 2
    return (ours * our_weight + theirs * their_weight) / mass


def merge_queues(rows: Iterable[Row]) -> list[QueueView]:
    """One row a model version. The slot and theta are those of the fullest queue."""
    groups = grouped(rows, lambda row: (row["model"], row["version"]))
    return [_queue(groups[key]) for key in sorted(groups)]


def _queue(views: list[Row]) -> QueueView:
    if len(views) == 1:
        return cast("QueueView", views[0])
    fullest = max(views, key=lambda view: view["queued"])
    flushed = [{**view, "flushes": sum(view["flushReasons"].values())} for view in views]
    merged: dict[str, Any] = dict(fullest)
    merged["queued"] = int(total(views, "queued"))
    merged["queuedWork"] = total(views, "queuedWork")
    merged["oldestMs"] = largest(views, "oldestMs")
    merged["meanBatch"] = weighted_mean(flushed, "meanBatch", "flushes")
    merged["flushReasons"] = {k: int(n) for k, n in totals_by_key(views, "flushReasons").items()}
    merged["mode"] = min((view["mode"] for view in views), key=lambda mode: MODE_RANK.get(mode, 3))
    return cast("QueueView", merged)


def merge_models(bodies: Sequence[Row]) -> list[ModelView]:
    """One entry a model. The split is the one of the newest snapshot."""
    newest_last = sorted(bodies, key=lambda body: body.get("revision") or 0)
    groups = grouped((m for b in newest_last for m in b.get("models") or ()), lambda m: m["model"])
    merged: list[ModelView] = []
    for name in sorted(groups):
        views = groups[name]
        versions = grouped((v for view in views for v in view["versions"]), lambda v: v["version"])
        entry: dict[str, Any] = dict(views[-1])
        entry["versions"] = [_version(versions[key]) for key in sorted(versions)]
        merged.append(cast("ModelView", entry))
    return merged


def _version(views: list[Row]) -> VersionView:
    if len(views) == 1:
        return cast("VersionView", views[0])
    merged: dict[str, Any] = dict(views[-1])
    merged["share"] = weighted_mean(views, "share", "ratePerS")
    merged["readyReplicas"] = max(view["readyReplicas"] for view in views)
    merged["ratePerS"] = total(views, "ratePerS")
    merged["errorRatio"] = weighted_mean(views, "errorRatio", "ratePerS")
    for quantile in ("p50Ms", "p95Ms", "p99Ms"):
        merged[quantile] = largest(views, quantile)
    costs = grouped((c for view in views for c in view["cost"]), lambda c: c["replicaId"])
    merged["cost"] = [max(costs[key], key=lambda c: c["samples"]) for key in sorted(costs)]
    return cast("VersionView", merged)


def merge_tenants(rows: Iterable[Row]) -> list[TenantView]:
    """One row a tenant. Each gateway holds its own part of a bucket, so levels add up."""
    groups = grouped(rows, lambda row: row["tenant"])
    return [_tenant(groups[name]) for name in sorted(groups)]


def _tenant(views: list[Row]) -> TenantView:
    if len(views) == 1:
        return cast("TenantView", views[0])
    bounded = [view for view in views if view.get("bucketLevel") is not None]
    return {
        "tenant": views[0]["tenant"],
        "inFlight": int(total(views, "inFlight")),
        "ratePerS": total(views, "ratePerS"),
        "tokensPerS": total(views, "tokensPerS"),
        "bucketLevel": total(bounded, "bucketLevel") if bounded else None,
        "bucketBurst": total(bounded, "bucketBurst") if bounded else None,
        "refused": {k: int(n) for k, n in totals_by_key(views, "refused").items()},
    }
