"""The engine's own health: event loops, queues, snapshots, and whether its books balance."""

from typing import Any

from fleet.dashboard.format import NO_DATA, count, ms, plural, rate, seconds
from fleet.dashboard.panels.batching import mean_batch, queue_rows
from fleet.dashboard.panels.overview import tile
from fleet.dashboard.panels.shell import shell
from fleet.dashboard.panels.traffic import chart_point, chart_series
from fleet.dashboard.tables import body
from fleet.live.scene import Scene
from fleet.live.state import GatewayStatus, LiveState
from fleet.live.topics import Params, register

LAG_DEGRADED_MS = 20.0  # of the event loop: a tenth of the tightest deadline in the benchmark
SNAPSHOT_OLD_S = 60.0  # four polls missed

BOOKS = ("served", "refused", "failed", "cancelled", "queued", "running")


def gateway_row(gateway: GatewayStatus) -> dict[str, Any]:
    """One gateway as ready text. A lost one keeps its last words, and says how old they are."""
    return {
        "id": gateway["id"],
        "status": gateway["status"],
        "heard": f"{seconds(gateway['ageS'])} ago",
        "uptime": seconds(gateway["uptimeS"]),
        "lag": ms(gateway["eventLoopLagMs"]),
        "offered": rate(gateway["offeredPerS"]),
        "in_flight": count(gateway["inFlight"]),
        "revision": NO_DATA
        if gateway["snapshotRevision"] is None
        else str(gateway["snapshotRevision"]),
        "confirmed": NO_DATA
        if gateway["snapshotAgeS"] is None
        else f"{seconds(gateway['snapshotAgeS'])} ago",
        "degraded": ", ".join(gateway["degraded"]),
    }


def books(state: LiveState) -> dict[str, Any]:
    """The conservation check as an equation with its numbers."""
    kept = state["conservation"]
    if kept is None:
        return {"word": "unknown", "text": "No gateway has shown its books yet.", "terms": ""}
    terms = " + ".join(f"{count(kept[name])} {name}" for name in BOOKS)  # type: ignore[literal-required]
    text = f"{count(kept['arrived'])} arrived = {terms}"
    if kept["balanced"]:
        return {"word": "healthy", "text": text, "terms": "Every request is accounted for."}
    total = sum(kept[name] for name in BOOKS)  # type: ignore[literal-required]
    return {
        "word": "down",
        "text": text.replace(" = ", " ≠ "),
        "terms": f"{plural(abs(kept['arrived'] - total), 'request')} unaccounted for: a bug. "
        "Report it with this line.",
    }


def live(scene: Scene, _params: Params) -> dict[str, Any]:
    state = scene.state
    lags = [g["eventLoopLagMs"] for g in state["gateways"] if g["eventLoopLagMs"] is not None]
    ages = [g["snapshotAgeS"] for g in state["gateways"] if g["snapshotAgeS"] is not None]
    queued = sum(queue["queued"] for queue in state["queues"])
    lag, age = max(lags, default=None), max(ages, default=None)
    batch = mean_batch(state)
    return {
        "shell": shell(scene),
        "tiles": {
            "lag": tile(
                ms(lag),
                "ms",
                "unknown" if lag is None else "healthy" if lag < LAG_DEGRADED_MS else "degraded",
                "the worst gateway's, last second",
                lag,
            ),
            "queued": tile(
                count(queued) if state["queues"] else NO_DATA,
                "",
                "healthy" if state["queues"] else "unknown",
                f"in {plural(len(state['queues']), 'queue')}",
                queued,
            ),
            "batch": tile(
                NO_DATA if batch is None else f"{batch:.1f}",
                "",
                "unknown" if batch is None else "healthy",
                "members of a mean batch",
            ),
            "snapshot": tile(
                seconds(age),
                "",
                "unknown" if age is None else "healthy" if age < SNAPSHOT_OLD_S else "degraded",
                "since Postgres confirmed it",
            ),
            "revision": tile(
                NO_DATA if state["revision"] is None else str(state["revision"]),
                "",
                "unknown"
                if state["converged"] is None
                else "healthy"
                if state["converged"]
                else "degraded",
                "in force at every gateway" if state["converged"] else "gateways differ",
            ),
        },
        "books": books(state),
        "point": chart_point(scene),
        "tables": {
            "gateways": body(gateway_row(gateway) for gateway in state["gateways"]),
            "queues": body(queue_rows(state, limit=40), total=len(state["queues"])),
        },
    }


def once(scene: Scene, _params: Params) -> dict[str, Any]:
    queues = {
        f"queues/{q['model']}/{q['version']}": scene.rings.row(
            "queue", f"{q['model']}/{q['version']}"
        )
        for q in scene.state["queues"]
    }
    return {
        "sparks": queues | {"tiles/queued": scene.rings.series("queued")},
        "series": chart_series(scene),
    }


register("engine", live, once)
