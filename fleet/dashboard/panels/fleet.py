"""Replicas as rows: what each carries, how it answers, and why it gets no traffic."""

from heapq import nsmallest
from typing import Any

from engine.view import ReplicaView
from fleet.dashboard.format import count, ms, number, percent, seconds, words
from fleet.dashboard.paging import Page, cut, matches, ordered
from fleet.dashboard.panels.shell import shell
from fleet.dashboard.tables import body
from fleet.live.combine import STATUS_RANK
from fleet.live.scene import Scene
from fleet.live.state import LiveState
from fleet.live.topics import Params, register

Row = dict[str, Any]

SORTS = {
    "id": lambda r: r["replicaId"],
    "status": lambda r: (STATUS_RANK.get(r["status"], 3), r["replicaId"]),
    "model": lambda r: (r["model"], r["version"], r["replicaId"]),
    "in_flight": lambda r: r["inFlight"],
    "score": lambda r: r["score"],
    "p95": lambda r: r["p95Ms"],
    "errors": lambda r: r["errorRatio"],
    "batches": lambda r: r["batches"],
}


def replica_row(replica: ReplicaView) -> Row:
    """One replica as ready text."""
    breaker = replica["breaker"]
    return {
        "id": replica["replicaId"],
        "status": replica["status"],
        "model": replica["model"],
        "version": replica["version"],
        "accelerator": replica["accelerator"] or None,
        "in_flight": f"{count(replica['inFlight'])} / {count(replica['ceiling'])}",
        "score": number(replica["score"]),
        "p95": ms(replica["p95Ms"]),
        "errors": percent(replica["errorRatio"]),
        "batches": count(replica["batches"]),
        "busy": count(replica["backpressure"]),
        "breaker": words(breaker["state"]),
        "why": why_not(replica),
        "spark": replica["p95Ms"] if replica["p95Ms"] is None else round(replica["p95Ms"], 2),
    }


def why_not(replica: ReplicaView) -> str:
    """Why it gets no traffic now; empty where it does."""
    reopens = replica["breaker"]["reopensInMs"]
    if replica["breaker"]["state"] == "open" and reopens is not None:
        return f"breaker open, probed in {seconds(reopens / 1000)}"
    return words(replica["why"] or "")


def filtered(state: LiveState, params: Params) -> list[ReplicaView]:
    """The replicas that the query string asks for, in its order."""
    status, model, version = (params.get(k, "") for k in ("status", "model", "version"))
    text = params.get("q", "")
    kept = [
        replica
        for replica in state["replicas"]
        if (not status or replica["status"] == status)
        and (not model or replica["model"] == model)
        and (not version or replica["version"] == version)
        and (
            not text
            or matches(text, replica["replicaId"], replica["model"], replica["accelerator"])
        )
    ]
    return ordered(kept, params, SORTS, "status")


def page_of(state: LiveState, params: Params) -> Page[ReplicaView]:
    return cut(filtered(state, params), params)


def attention_rows(state: LiveState, *, limit: int) -> list[Row]:
    """The least healthy first, then the busiest."""
    ranked = nsmallest(
        limit,
        state["replicas"],
        key=lambda r: (STATUS_RANK.get(r["status"], 3), r["model"], r["replicaId"]),
    )
    return [replica_row(replica) for replica in ranked]


def status_counts(state: LiveState) -> dict[str, str]:
    """How many replicas are in each of the five states."""
    counts = dict.fromkeys(("healthy", "degraded", "down", "draining", "unknown"), 0)
    for replica in state["replicas"]:
        counts[replica["status"]] = counts.get(replica["status"], 0) + 1
    return {word: count(n) for word, n in counts.items()}


def live(scene: Scene, params: Params) -> dict[str, Any]:
    page = page_of(scene.state, params)
    return {
        "shell": shell(scene),
        "counts": status_counts(scene.state),
        "tables": {"replicas": body(map(replica_row, page.items), total=page.total)},
    }


def once(scene: Scene, params: Params) -> dict[str, Any]:
    page = page_of(scene.state, params)
    return {
        "sparks": {
            f"replicas/{replica['replicaId']}": scene.rings.row("replica", replica["replicaId"])
            for replica in page.items
        }
    }


register("fleet", live, once)
