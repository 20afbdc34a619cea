"""One replica: what it carries, how each gateway judges it, why it was or was not chosen."""

from typing import Any

from engine.view import CostView, ReplicaView
from fleet.dashboard.format import (
    NO_DATA,
    count,
    ms,
    number,
    percent,
    plural,
    rate,
    seconds,
    spoken,
    words,
)
from fleet.dashboard.panels.feed import feed_lines
from fleet.dashboard.panels.fleet import replica_row, why_not
from fleet.dashboard.panels.overview import tile
from fleet.dashboard.panels.shell import shell
from fleet.dashboard.tables import body
from fleet.live.scene import Scene
from fleet.live.topics import Params, register

BREAKER_LEVELS = {"closed": 0, "half_open": 1, "open": 2}
TIMELINE_MS = 300_000
HEALTH_WEIGHTS = {"errors": 0.4, "latency": 0.3, "gpuMemory": 0.2, "connections": 0.1}


def find(scene: Scene, replica_id: str) -> ReplicaView | None:
    return next((r for r in scene.state["replicas"] if r["replicaId"] == replica_id), None)


def peers(scene: Scene, replica: ReplicaView) -> list[ReplicaView]:
    """The other replicas of its model version."""
    return [
        other
        for other in scene.state["replicas"]
        if (other["model"], other["version"]) == (replica["model"], replica["version"])
        and other["replicaId"] != replica["replicaId"]
    ]


def cost_of(scene: Scene, replica: ReplicaView) -> CostView | None:
    for model in scene.state["models"]:
        for version in model["versions"]:
            for cost in version["cost"]:
                if cost["replicaId"] == replica["replicaId"]:
                    return cost
    return None


def chances(scene: Scene, replica: ReplicaView) -> list[dict[str, Any]]:
    """Its rivals with the comparison that routing makes: two are drawn, the lower score wins."""
    rivals = [replica, *peers(scene, replica)]
    eligible = [r for r in rivals if not why_not(r) and r["inFlight"] < r["ceiling"]]
    scored = sorted(rivals, key=lambda r: (r["score"] is None, r["score"] or 0.0, r["replicaId"]))
    n = len(eligible)
    drawn = {r["replicaId"] for r in eligible}
    rows = []
    for rival in scored:
        if rival["replicaId"] in drawn:
            beaten = sum((r["score"] or 0.0) > (rival["score"] or 0.0) for r in eligible)
            chance = 1.0 if n == 1 else 2.0 * beaten / (n * (n - 1)) if n else 0.0
            why = "may be drawn" if chance > 0 else "loses every draw: the highest score"
        else:
            chance = 0.0
            why = why_not(rival) or f"at its ceiling of {rival['ceiling']}"
        rows.append(
            {
                "id": rival["replicaId"],
                "score": number(rival["score"]),
                "in_flight": f"{count(rival['inFlight'])} / {count(rival['ceiling'])}",
                "latency": ms(rival["latencyMs"]),
                "chance": round(chance, 3),
                "why": why,
            }
        )
    return rows


def consequence(scene: Scene, replica: ReplicaView) -> str:
    """What draining it means, in numbers."""
    others = [r for r in peers(scene, replica) if r["status"] in ("healthy", "degraded")]
    share, served = 0.0, 0.0
    for model in scene.state["models"]:
        for version in model["versions"]:
            if (model["model"], version["version"]) == (replica["model"], replica["version"]):
                share, served = version["share"], version["ratePerS"]
    running = plural(replica["inFlight"], "batch", "batches")
    name = f"{replica['model']} {replica['version']}"
    if not others:
        return (
            f"It is the last replica of {name} that serves: {percent(share, digits=0)} % of that "
            f"model's traffic ({rate(served)}/s) will be refused as no capacity."
        )
    return (
        f"{running} in flight will finish; no new work comes. The other "
        f"{plural(len(others), 'replica')} of {name} must carry all of its {rate(served)}/s."
    )


def live(scene: Scene, params: Params) -> dict[str, Any]:
    replica = find(scene, params.get("id", ""))
    document: dict[str, Any] = {"shell": shell(scene), "present": replica is not None}
    if replica is None:
        return document
    breaker = replica["breaker"]
    cost = cost_of(scene, replica)
    row = replica_row(replica)
    document |= {
        "replica": {key: row[key] for key in ("status", "why", "breaker", "in_flight", "batches")},
        "tiles": {
            "in_flight": tile(
                count(replica["inFlight"]),
                f"of {count(replica['ceiling'])}",
                "degraded" if replica["inFlight"] >= replica["ceiling"] else "healthy",
                "at its ceiling" if replica["inFlight"] >= replica["ceiling"] else "room left",
                replica["inFlight"],
            ),
            "p95": tile(
                ms(replica["p95Ms"]),
                "ms",
                "unknown" if replica["p95Ms"] is None else "healthy",
                f"peak EWMA {ms(replica['latencyMs'])} ms",
                replica["p95Ms"],
            ),
            "errors": tile(
                percent(replica["errorRatio"]),
                "%",
                "unknown"
                if replica["errorRatio"] is None
                else "down"
                if replica["errorRatio"] > 0.2
                else "degraded"
                if replica["errorRatio"] > 0.01
                else "healthy",
                f"{plural(replica['backpressure'], 'busy answer')}, which are no faults",
                replica["errorRatio"],
            ),
            "score": tile(
                number(replica["score"]),
                "",
                "unknown" if replica["score"] is None else "healthy",
                "the lower draws more work",
                replica["score"],
            ),
            "breaker": tile(
                words(breaker["state"]),
                "",
                {"open": "down", "half_open": "degraded"}.get(breaker["state"], "healthy"),
                f"probed in {seconds(breaker['reopensInMs'] / 1000)}"
                if breaker["reopensInMs"] is not None
                else f"{plural(breaker['trips'], 'trip')} so far",
            ),
        },
        "facts": {
            "fault_ratio": NO_DATA
            if breaker["faultRatio"] is None
            else f"{percent(breaker['faultRatio'])} % over the breaker's window",
            "cost": cost_text(cost),
            "consequence": consequence(scene, replica),
        },
        "tables": {
            "health": body(health_rows(replica)),
            "chances": body(chances(scene, replica)),
        },
        "feed": feed_lines(scene, subject=replica["replicaId"]),
    }
    return document


def chart_series(scene: Scene, replica_id: str) -> dict[str, Any]:
    """Its batches by work with what was predicted for each, and its breaker's turns."""
    replica = find(scene, replica_id)
    cost = None if replica is None else cost_of(scene, replica)
    ended = sorted(scene.rings.tracks.batches(replica_id))
    batches: dict[str, Any] = {"x": [batch.work for batch in ended]}
    batches["took"] = [round(batch.ms, 2) for batch in ended]
    if cost is not None:
        fixed, each = cost["fixedMs"], cost["perWorkMs"]
        batches["predicted"] = [round(fixed + each * batch.work, 2) for batch in ended]
    return {"batches": batches, "breaker": _turns(scene, replica_id)}


def _turns(scene: Scene, replica_id: str) -> dict[str, Any]:
    """Each state from its first second to the present, over the last five minutes."""
    turns = scene.rings.tracks.turns(replica_id)
    if not turns:
        return {"t": []}
    since = scene.at_ms - TIMELINE_MS
    before = [turn for turn in turns if turn.at_ms < since]
    shown = [turn for turn in turns if turn.at_ms >= since]
    if before:
        shown.insert(0, before[-1]._replace(at_ms=since))
    return {
        "t": [*(turn.at_ms for turn in shown), scene.at_ms],
        "state": [BREAKER_LEVELS[turn.state] for turn in (*shown, shown[-1])],
    }


def cost_text(cost: CostView | None) -> str:
    """The fitted cost model in a line."""
    if cost is None or not cost["samples"]:
        return "not fitted yet: no batch has ended"
    terms = [f"{number(cost['fixedMs'])} ms", f"{number(cost['perWorkMs'])} ms × {cost['unit']}"]
    if cost["quadraticMs"]:
        terms.append(f"{number(cost['quadraticMs'])} ms × length²")
    line = " + ".join(terms)
    seen = plural(cost["samples"], "batch", "batches")
    return f"{line}, ± {number(cost['deviationMs'])} ms over {seen}"


def health_rows(replica: ReplicaView) -> list[dict[str, Any]]:
    """The parts of the health score with their weights."""
    return [
        {
            "id": part,
            "part": spoken(part),
            "value": round(value, 3),
            "weight": number(HEALTH_WEIGHTS.get(part)),
        }
        for part, value in replica["health"].items()
    ]


def once(scene: Scene, params: Params) -> dict[str, Any]:
    replica_id = params.get("id", "")
    return {"sparks": {"tiles/p95": scene.rings.row("replica", replica_id)}}


register("replica", live, once)
