"""Models and their versions: who serves what share, how fast, how well."""

from typing import Any

from engine.view import ModelView, VersionView
from fleet.dashboard.format import count, ms, percent, rate
from fleet.dashboard.paging import cut, matches
from fleet.dashboard.panels.shell import shell
from fleet.dashboard.tables import body
from fleet.live.scene import Scene
from fleet.live.state import LiveState
from fleet.live.topics import Params, register

Row = dict[str, Any]


def version_rows(state: LiveState, *, limit: int | None = None) -> list[Row]:
    """Versions in service first, by traffic; then those that wait."""
    pairs = [(model, version) for model in state["models"] for version in model["versions"]]
    pairs.sort(key=lambda pair: (pair[1]["share"] <= 0, pair[0]["model"], pair[1]["version"]))
    return [version_row(model, version) for model, version in pairs[:limit]]


def version_row(model: ModelView, version: VersionView) -> Row:
    """One version as ready text."""
    ready = version["readyReplicas"]
    p95 = version["p95Ms"]
    late = p95 is not None and p95 > model["sloMs"]
    word = (
        "down"
        if ready == 0 and version["share"] > 0
        else "degraded"
        if late
        else "unknown"
        if ready == 0
        else "healthy"
    )
    return {
        "id": f"{model['model']}/{version['version']}",
        "status": word,
        "model": model["model"],
        "version": version["version"],
        "arm": version["arm"] or None,
        "share": round(version["share"], 4),
        "ready": count(ready),
        "rate": rate(version["ratePerS"]),
        "errors": percent(version["errorRatio"]),
        "p50": ms(version["p50Ms"]),
        "p95": ms(p95),
        "p99": ms(version["p99Ms"]),
        "slo": ms(model["sloMs"]),
        "spark": round(version["ratePerS"], 2),
    }


def filtered(state: LiveState, params: Params) -> list[ModelView]:
    text = params.get("q", "")
    return [model for model in state["models"] if not text or matches(text, model["model"])]


def live(scene: Scene, params: Params) -> dict[str, Any]:
    page = cut(filtered(scene.state, params), params, size=25)
    rows = [version_row(model, version) for model in page.items for version in model["versions"]]
    return {"shell": shell(scene), "tables": {"versions": body(rows, total=page.total)}}


def once(scene: Scene, params: Params) -> dict[str, Any]:
    page = cut(filtered(scene.state, params), params, size=25)
    names = [f"{m['model']}/{v['version']}" for m in page.items for v in m["versions"]]
    return {"sparks": {f"versions/{name}": scene.rings.row("version", name) for name in names}}


register("models", live, once)
