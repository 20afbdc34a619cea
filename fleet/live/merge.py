"""Many gateways' views become one state. Pure: ages come in, no clock is read.

A gateway that has been silent for `STALE_AFTER_S` is *down*: it stays listed with its age,
and its rates leave the sums, because nobody knows whether they still hold. When every
gateway is silent, the last known numbers are kept and the state says *stale*. Without any
gateway the state is *empty*: no zeros are invented.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.view import AdmissionView, Conservation, TrafficView
from fleet.live.combine import Row, largest, total, totals_by_key
from fleet.live.merge_fleet import merge_models, merge_queues, merge_replicas, merge_tenants
from fleet.live.state import FeedEvent, GatewayStatus, LiveState

STALE_AFTER_S = 3.0  # three times the period of the feed
FEED_LENGTH = 60


@dataclass(slots=True, frozen=True, kw_only=True)
class AgedView:
    """One gateway's latest view and how long ago it arrived."""

    gateway: str
    seq: int
    age_s: float
    view: dict[str, Any]

    @property
    def silent(self) -> bool:
        return self.age_s > STALE_AFTER_S


def merge(views: Sequence[AgedView]) -> LiveState:
    """One state from every gateway's latest view."""
    ordered = sorted(views, key=lambda aged: aged.gateway)
    speaking = [aged for aged in ordered if not aged.silent]
    status: Literal["live", "stale", "empty"] = (
        "live" if speaking else "stale" if ordered else "empty"
    )
    counted = speaking or ordered
    bodies = [aged.view for aged in counted]
    revisions = [int(body["revision"]) for body in bodies if body.get("revision") is not None]
    return {
        "status": status,
        "ageS": min((aged.age_s for aged in ordered), default=None),
        "gateways": [_gateway(aged) for aged in ordered],
        "revision": min(revisions, default=None),
        "converged": len(set(revisions)) == 1 if revisions else None,
        "conservation": _conservation(_sections(bodies, "conservation")),
        "traffic": _traffic(_sections(bodies, "traffic")),
        "admission": _admission(_sections(bodies, "admission")),
        "queues": merge_queues(_rows(bodies, "queues")),
        "models": merge_models(bodies),
        "replicas": merge_replicas(_rows(bodies, "replicas")),
        "tenants": merge_tenants(_rows(bodies, "tenants")),
        "events": _events(ordered),
    }


def join(states: Sequence[LiveState]) -> LiveState:
    """One state from what several gateways answered, each already merged over its processes."""
    if len(states) == 1:
        return states[0]
    bodies: list[dict[str, Any]] = [{**state, "events": ()} for state in states]
    joined = merge(
        [AgedView(gateway=str(n), seq=0, age_s=0.0, view=body) for n, body in enumerate(bodies)]
    )
    joined["gateways"] = [gateway for state in states for gateway in state["gateways"]]
    joined["events"] = _newest(event for state in states for event in state["events"])
    return joined


def _sections(bodies: Sequence[Row], key: str) -> list[Row]:
    return [body[key] for body in bodies if body.get(key) is not None]


def _rows(bodies: Sequence[Row], key: str) -> list[Row]:
    return [row for body in bodies for row in body.get(key) or ()]


def _gateway(aged: AgedView) -> GatewayStatus:
    own = aged.view.get("gateway") or {}
    degraded = list(own.get("degraded") or ())
    traffic, books = aged.view.get("traffic") or {}, aged.view.get("conservation") or {}
    return {
        "id": aged.gateway,
        "status": "down" if aged.silent else "degraded" if degraded else "healthy",
        "ageS": aged.age_s,
        "seq": aged.seq,
        "process": None if own.get("process") is None else str(own["process"]),
        "startedAt": own.get("startedAt"),
        "uptimeS": own.get("uptimeS"),
        "eventLoopLagMs": own.get("eventLoopLagMs"),
        "snapshotRevision": own.get("snapshotRevision", aged.view.get("revision")),
        "snapshotAgeS": own.get("snapshotAgeS"),
        "degraded": degraded,
        "offeredPerS": traffic.get("offeredPerS") or 0.0,
        "inFlight": (books.get("queued") or 0) + (books.get("running") or 0),
    }


def _conservation(parts: list[Row]) -> Conservation | None:
    if not parts:
        return None
    return {
        "arrived": int(total(parts, "arrived")),
        "served": int(total(parts, "served")),
        "refused": int(total(parts, "refused")),
        "failed": int(total(parts, "failed")),
        "cancelled": int(total(parts, "cancelled")),
        "queued": int(total(parts, "queued")),
        "running": int(total(parts, "running")),
        "balanced": all(part["balanced"] for part in parts),
    }


def _traffic(parts: list[Row]) -> TrafficView | None:
    if not parts:
        return None
    goodput, late, failed = (total(parts, k) for k in ("goodputPerS", "latePerS", "failedPerS"))
    refused = totals_by_key(parts, "refusedPerS")
    ended = goodput + late + failed + sum(refused.values())
    only = parts[0].get("goodputRatio")
    return {
        "offeredPerS": total(parts, "offeredPerS"),
        "goodputPerS": goodput,
        "latePerS": late,
        "failedPerS": failed,
        "cancelledPerS": total(parts, "cancelledPerS"),
        "refusedPerS": refused,
        "goodputRatio": only if len(parts) == 1 else goodput / ended if ended > 0 else None,
        "p50Ms": largest(parts, "p50Ms"),
        "p95Ms": largest(parts, "p95Ms"),
        "p99Ms": largest(parts, "p99Ms"),
    }


def _admission(parts: list[Row]) -> AdmissionView | None:
    if not parts:
        return None
    tightest = max(parts, key=lambda part: part["inFlight"] / max(part["limit"], 1.0))
    return {
        "policy": tightest["policy"],
        "limit": total(parts, "limit"),
        "inFlight": int(total(parts, "inFlight")),
        "sloMs": tightest["sloMs"],
        "p95Ms": largest(parts, "p95Ms"),
        "reason": tightest["reason"],
    }


def _events(views: Sequence[AgedView]) -> list[FeedEvent]:
    return _newest(
        {
            "id": f"{aged.gateway}:{event['seq']}",
            "gateway": aged.gateway,
            "ageMs": event["atMs"] + aged.age_s * 1000.0,
            "kind": event["kind"],
            "subject": event["subject"],
            "text": event["text"],
            "numbers": event.get("numbers") or {},
        }
        for aged in views
        for event in aged.view.get("events") or ()
    )


def _newest(events: Iterable[FeedEvent]) -> list[FeedEvent]:
    return sorted(events, key=lambda event: (event["ageMs"], event["id"]))[:FEED_LENGTH]
