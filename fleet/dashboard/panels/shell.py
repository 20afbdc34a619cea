"""What stands on every page: is the feed alive, and how is the fleet, in one line.

The word is from the one status vocabulary. The worst news wins the line.
"""

from typing import Any

from fleet.dashboard.format import percent, plural, rate, seconds
from fleet.live.merge import STALE_AFTER_S
from fleet.live.scene import Scene
from fleet.live.state import LiveState

GOODPUT_HEALTHY = 0.99  # of the requests that ended in the last 10 s
GOODPUT_DEGRADED = 0.80  # below it, the fleet does not do its work

COMMAND_WITHOUT_GATEWAY = "manage.py gateway"
COMMAND_WITHOUT_TRAFFIC = "manage.py loadtest --rate 20"


def shell(scene: Scene) -> dict[str, Any]:
    """The page's head: word, line, and what is amiss with the feed itself."""
    state = scene.state
    word, line = fleet_verdict(state)
    return {
        "word": word,
        "line": line,
        "feed": state["status"],
        "feed_line": _feed_line(scene),
        "database_line": _database_line(scene),
        "lost": [g["id"] for g in state["gateways"] if g["status"] == "down"],
    }


def fleet_verdict(state: LiveState) -> tuple[str, str]:
    """One word and one sentence for the whole fleet."""
    if state["status"] == "empty":
        return "unknown", "No gateway has spoken yet"
    if state["status"] == "stale":
        return "down", f"No gateway speaks; last word {seconds(state['ageS'])} ago"
    lost = [gateway["id"] for gateway in state["gateways"] if gateway["status"] == "down"]
    if lost:
        return "degraded", f"{plural(len(lost), 'gateway')} lost: {', '.join(lost)}"
    unready = [replica for replica in state["replicas"] if replica["status"] == "down"]
    traffic = state["traffic"]
    ratio = traffic["goodputRatio"] if traffic else None
    if state["replicas"] and len(unready) == len(state["replicas"]):
        return "down", "Every replica is down"
    if ratio is not None and traffic is not None:
        text = f"{percent(ratio)} % served in time, {rate(traffic['goodputPerS'])}/s"
        if ratio < GOODPUT_DEGRADED:
            return "down", text
        if ratio < GOODPUT_HEALTHY or unready:
            extra = f"; {plural(len(unready), 'replica')} down" if unready else ""
            return "degraded", text + extra
        return "healthy", text
    if unready:
        return "degraded", f"Idle; {plural(len(unready), 'replica')} down"
    return "healthy", "Idle: no request ended in the last 10 s"


def _feed_line(scene: Scene) -> str:
    state = scene.state
    if scene.broker_failing_since_ms is not None:
        since_s = (scene.at_ms - scene.broker_failing_since_ms) / 1000
        return (
            f"The live feed is interrupted since {seconds(since_s)}: this web process cannot "
            f"reach the broker. Inference is not affected. Check VALKEY_URL."
        )
    if state["status"] == "empty":
        return f"Waiting for data: start a gateway with {COMMAND_WITHOUT_GATEWAY}"
    if state["status"] == "stale":
        return f"Every gateway fell silent {seconds(state['ageS'])} ago: what you see is the past."
    lost = [g for g in state["gateways"] if g["ageS"] > STALE_AFTER_S]
    if lost:
        names = ", ".join(f"{g['id']} ({seconds(g['ageS'])} ago)" for g in lost)
        return f"Lost: {names}. Its part is left out of the sums."
    return ""


def _database_line(scene: Scene) -> str:
    fact = scene.facts.get("database")
    if fact is None or fact.failing_since_ms is None:
        return ""
    since_s = (scene.at_ms - fact.failing_since_ms) / 1000
    return (
        f"PostgreSQL has not answered for {seconds(since_s)}. Live numbers go on; history, "
        "rollout decisions and every change wait for it."
    )
