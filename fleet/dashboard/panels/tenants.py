"""Tenants as rows and in detail: what they use of what they may."""

from typing import Any

from engine.view import TenantView
from fleet.dashboard.format import NO_DATA, count, number, rate, words
from fleet.dashboard.meanings import REFUSALS
from fleet.dashboard.paging import Page, cut, matches, ordered
from fleet.dashboard.panels.overview import tile
from fleet.dashboard.panels.shell import shell
from fleet.dashboard.tables import body
from fleet.live.scene import Scene
from fleet.live.state import LiveState
from fleet.live.topics import Params, register

Row = dict[str, Any]

LOW_LEVEL = 0.1  # of the bucket: the next burst will be refused

SORTS = {
    "tenant": lambda t: t["tenant"],
    "rate": lambda t: t["ratePerS"],
    "tokens": lambda t: t["tokensPerS"],
    "in_flight": lambda t: t["inFlight"],
    "level": lambda t: bucket_ratio(t),
    "refused": lambda t: sum(t["refused"].values()),
}


def bucket_ratio(tenant: TenantView) -> float | None:
    """How full its bucket is; None where nothing limits it."""
    level, burst = tenant["bucketLevel"], tenant["bucketBurst"]
    return None if level is None or not burst else max(level, 0.0) / burst


def tenant_row(tenant: TenantView) -> Row:
    refused = sum(tenant["refused"].values())
    level = bucket_ratio(tenant)
    most = max(tenant["refused"], key=lambda code: tenant["refused"][code], default="")
    return {
        "id": tenant["tenant"],
        "status": "degraded" if level is not None and level < LOW_LEVEL else "healthy",
        "in_flight": count(tenant["inFlight"]),
        "rate": rate(tenant["ratePerS"]),
        "tokens": count(tenant["tokensPerS"]),
        "level": None if level is None else round(level, 3),
        "refused": count(refused),
        "most": words(most) if refused else "",
        "spark": round(tenant["ratePerS"], 2),
    }


def page_of(state: LiveState, params: Params) -> Page[TenantView]:
    text = params.get("q", "")
    kept = [t for t in state["tenants"] if not text or matches(text, t["tenant"])]
    return cut(ordered(kept, params, SORTS, "-rate"), params)


def live(scene: Scene, params: Params) -> dict[str, Any]:
    page = page_of(scene.state, params)
    return {
        "shell": shell(scene),
        "tables": {"tenants": body(map(tenant_row, page.items), total=page.total)},
    }


def once(scene: Scene, params: Params) -> dict[str, Any]:
    names = [tenant["tenant"] for tenant in page_of(scene.state, params).items]
    return {"sparks": {f"tenants/{name}": scene.rings.row("tenant", name) for name in names}}


def find(scene: Scene, name: str) -> TenantView | None:
    return next((tenant for tenant in scene.state["tenants"] if tenant["tenant"] == name), None)


def live_one(scene: Scene, params: Params) -> dict[str, Any]:
    tenant = find(scene, params.get("id", ""))
    document: dict[str, Any] = {"shell": shell(scene), "present": tenant is not None}
    if tenant is None:
        return document
    level = bucket_ratio(tenant)
    refused = sum(tenant["refused"].values())
    low = level is not None and level < LOW_LEVEL
    return document | {
        "tiles": {
            "rate": tile(rate(tenant["ratePerS"]), "/s", "healthy", "requests", tenant["ratePerS"]),
            "tokens": tile(count(tenant["tokensPerS"]), "/s", "healthy", "tokens"),
            "in_flight": tile(count(tenant["inFlight"]), "", "healthy", "requests being served"),
            "level": tile(
                NO_DATA if level is None else f"{level * 100:.0f}",
                "" if level is None else "%",
                "unknown" if level is None else "degraded" if low else "healthy",
                "no token limit applies"
                if level is None
                else f"{number(tenant['bucketLevel'])} of {number(tenant['bucketBurst'])} tokens",
            ),
            "refused": tile(
                count(refused),
                "",
                "degraded" if refused else "healthy",
                "since the gateways started",
            ),
        },
        "tables": {
            "tenant_refusals": body(
                {
                    "id": code,
                    "code": words(code),
                    "count": count(n),
                    "share": round(n / refused, 3),
                    "meaning": REFUSALS.get(code, ""),
                }
                for code, n in sorted(tenant["refused"].items(), key=lambda p: (-p[1], p[0]))
                if n
            )
        },
    }


def once_one(scene: Scene, params: Params) -> dict[str, Any]:
    return {"sparks": {"tiles/rate": scene.rings.row("tenant", params.get("id", ""))}}


register("tenants", live, once)
register("tenant", live_one, once_one)
