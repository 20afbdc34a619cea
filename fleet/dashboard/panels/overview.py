"""The first screen: three answers, seven numbers, then the charts behind them.

Are users served in time? Is work refused, and why? Is a rollout in flight, and what did it
decide last? Each answer is a sentence that carries its comparison.
"""

from typing import Any

from fleet.dashboard.format import count, ms, percent, rate, words
from fleet.dashboard.meanings import REFUSALS
from fleet.dashboard.panels.batching import flush_bars, queue_rows
from fleet.dashboard.panels.feed import feed_lines
from fleet.dashboard.panels.fleet import attention_rows
from fleet.dashboard.panels.models import version_rows
from fleet.dashboard.panels.rollouts import rollout_answer, rollout_tile
from fleet.dashboard.panels.shell import (
    COMMAND_WITHOUT_TRAFFIC,
    GOODPUT_DEGRADED,
    GOODPUT_HEALTHY,
    shell,
)
from fleet.dashboard.panels.traffic import chart_point, chart_series
from fleet.dashboard.tables import body
from fleet.live.objectives import nearest
from fleet.live.scene import Scene
from fleet.live.state import LiveState
from fleet.live.topics import Params, register

Tile = dict[str, Any]


def live(scene: Scene, _params: Params) -> dict[str, Any]:
    state = scene.state
    return {
        "shell": shell(scene),
        "answers": {
            "served": _served_answer(state),
            "refused": _refused_answer(state),
            "rollout": rollout_answer(scene),
        },
        "tiles": _tiles(scene),
        "point": chart_point(scene),
        "tables": {
            "refusals": body(_refusal_rows(state)),
            "queues": body(queue_rows(state, limit=8), total=len(state["queues"])),
            "flushes": body(flush_bars(state)),
            "versions": body(version_rows(state, limit=10)),
            "attention": body(attention_rows(state, limit=8), total=len(state["replicas"])),
        },
        "feed": feed_lines(scene),
    }


def once(scene: Scene, _params: Params) -> dict[str, Any]:
    rings = scene.rings
    sparks = {
        "goodput": "goodput_ratio",
        "offered": "offered",
        "refused": "refused",
        "p95": "p95",
        "in_flight": "in_flight",
        "breakers": "open_breakers",
    }
    rows = {
        f"versions/{row['id']}": rings.row("version", row["id"])
        for row in version_rows(scene.state, limit=10)
    }
    replicas = {
        f"attention/{row['id']}": rings.row("replica", row["id"])
        for row in attention_rows(scene.state, limit=8)
    }
    queues = {
        f"queues/{row['id']}": rings.row("queue", row["id"])
        for row in queue_rows(scene.state, limit=8)
    }
    return {
        "sparks": {f"tiles/{tile}": rings.series(name) for tile, name in sparks.items()}
        | rows
        | replicas
        | queues,
        "series": chart_series(scene),
    }


def _tiles(scene: Scene) -> dict[str, Tile]:
    state = scene.state
    return {
        "goodput": _goodput_tile(state),
        "offered": _offered_tile(state),
        "refused": _refused_tile(state),
        "p95": _p95_tile(state),
        "in_flight": _in_flight_tile(state),
        "breakers": _breaker_tile(state),
        "rollouts": rollout_tile(scene),
    }


def tile(
    value: str, unit: str, tone: str, verdict: str, spark: float | None = None
) -> dict[str, Any]:
    """One number with its unit, its tone in status words, and a line that reads it."""
    made: Tile = {"value": value, "unit": unit, "tone": tone, "verdict": verdict}
    if spark is not None:
        made["spark"] = round(spark, 4)
    return made


def _goodput_tile(state: LiveState) -> Tile:
    traffic = state["traffic"]
    ratio = traffic["goodputRatio"] if traffic else None
    if ratio is None:
        return tile(percent(None), "%", "unknown", "no request ended in the last 10 s")
    tone = (
        "healthy"
        if ratio >= GOODPUT_HEALTHY
        else "degraded"
        if ratio >= GOODPUT_DEGRADED
        else "down"
    )
    target = f"{GOODPUT_HEALTHY:.0%}".replace("%", " %")
    verdict = f"at or above {target}" if tone == "healthy" else f"below {target}"
    return tile(percent(ratio), "%", tone, verdict, ratio)


def _offered_tile(state: LiveState) -> Tile:
    traffic = state["traffic"]
    if traffic is None:
        return tile(rate(None), "/s", "unknown", "no gateway has spoken")
    return tile(
        rate(traffic["offeredPerS"]),
        "/s",
        "healthy",
        f"{rate(traffic['goodputPerS'])}/s served in time",
        traffic["offeredPerS"],
    )


def _refused_tile(state: LiveState) -> Tile:
    traffic = state["traffic"]
    if traffic is None:
        return tile(rate(None), "/s", "unknown", "no gateway has spoken")
    refused = {code: value for code, value in traffic["refusedPerS"].items() if value > 0}
    total = sum(refused.values())
    if not refused:
        return tile(rate(0.0), "/s", "healthy", "nothing is refused", 0.0)
    first = max(refused, key=lambda code: refused[code])
    return tile(rate(total), "/s", "degraded", f"mostly {words(first)}", total)


def _p95_tile(state: LiveState) -> Tile:
    traffic, held = state["traffic"], nearest(state)
    p95 = traffic["p95Ms"] if traffic else None
    if p95 is None:
        return tile(ms(None), "ms", "unknown", "no completed request in the last 60 s")
    if held is None:
        return tile(ms(p95), "ms", "unknown", "no objective is set", p95)
    tone = "healthy" if held.kept else "down"
    sign = "≤" if held.kept else ">"
    whose = f"{held.model} {ms(held.p95_ms)} " if len(state["models"]) > 1 else ""
    return tile(ms(p95), "ms", tone, f"{whose}{sign} SLO {ms(held.slo_ms)} ms", p95)


def _in_flight_tile(state: LiveState) -> Tile:
    admission = state["admission"]
    if admission is None:
        return tile(count(None), "", "unknown", "no gateway has spoken")
    limit, in_flight = admission["limit"], admission["inFlight"]
    full = in_flight >= limit
    return tile(
        count(in_flight),
        f"of {count(limit)}",
        "degraded" if full else "healthy",
        "at the adaptive limit" if full else admission["reason"] or "room left",
        in_flight,
    )


def _breaker_tile(state: LiveState) -> Tile:
    replicas = state["replicas"]
    if not replicas:
        return tile(count(None), "", "unknown", "no replica is registered")
    opened = [r["replicaId"] for r in replicas if r["breaker"]["state"] == "open"]
    halves = sum(r["breaker"]["state"] == "half_open" for r in replicas)
    if opened:
        tone = "down" if len(opened) * 2 > len(replicas) else "degraded"
        shown = ", ".join(opened[:2]) + ("…" if len(opened) > 2 else "")
        return tile(count(len(opened)), f"of {len(replicas)}", tone, shown, len(opened))
    verdict = f"{halves} half open" if halves else "all closed"
    return tile("0", f"of {len(replicas)}", "healthy", verdict, 0)


def _served_answer(state: LiveState) -> dict[str, str]:
    traffic, held = state["traffic"], nearest(state)
    ratio = traffic["goodputRatio"] if traffic else None
    if traffic is None or ratio is None:
        return {
            "word": "unknown",
            "text": "Waiting for data: no request ended in the last 10 s.",
            "command": COMMAND_WITHOUT_TRAFFIC,
        }
    word = _goodput_tile(state)["tone"]
    text = f"{percent(ratio)} % of requests are served in time ({rate(traffic['goodputPerS'])}/s)"
    if held is not None:
        sign = "within" if held.kept else "over"
        whose = f" of {held.model}" if len(state["models"]) > 1 else ""
        text += f"; p95{whose} {ms(held.p95_ms)} ms, {sign} the objective of {ms(held.slo_ms)} ms"
    lost = traffic["failedPerS"]
    text += f"; {rate(lost)}/s fail." if lost >= 0.05 else "."
    return {"word": str(word), "text": text, "command": ""}


def _refused_answer(state: LiveState) -> dict[str, str]:
    traffic = state["traffic"]
    if traffic is None:
        return {"word": "unknown", "text": "Waiting for a gateway to speak.", "command": ""}
    refused = {code: value for code, value in traffic["refusedPerS"].items() if value > 0}
    if not refused:
        return {"word": "healthy", "text": "Nothing is refused.", "command": ""}
    first = max(refused, key=lambda code: refused[code])
    text = (
        f"{rate(sum(refused.values()))}/s are refused, {rate(refused[first])}/s as "
        f"{words(first)}: {REFUSALS.get(first, 'see the codes below')}."
    )
    tenants = [t for t in state["tenants"] if t["refused"].get(first)]
    if tenants and first == "quota_exceeded":
        worst = max(tenants, key=lambda t: t["refused"][first])
        text += f" Most of them: tenant {worst['tenant']}."
    return {"word": "degraded", "text": text, "command": ""}


def _refusal_rows(state: LiveState) -> list[dict[str, Any]]:
    traffic = state["traffic"]
    refused = (traffic["refusedPerS"] if traffic else {}) or {}
    total = sum(refused.values())
    ranked = sorted(refused.items(), key=lambda pair: (-pair[1], pair[0]))
    return [
        {
            "id": code,
            "code": words(code),
            "rate": rate(value),
            "share": round(value / total, 3) if total else 0,
            "meaning": REFUSALS.get(code, ""),
        }
        for code, value in ranked
        if value > 0
    ]


register("overview", live, once)
