"""What the overview says of rollouts.

Rollouts are a policy in an app above this one, so this module does not know them: it reads
the fact `rollouts`, a list of summaries which that app registers. Where no app has, the split
itself tells: a canary with traffic is a rollout by hand.
"""

from typing import Any, TypedDict

from fleet.dashboard.format import count, plural, words
from fleet.live.scene import Scene


class RolloutSummary(TypedDict):
    """What the rollouts app tells of each rollout in flight."""

    id: str
    model: str
    canary: str
    phase: str
    percent: float
    verdict: str  # of the last decision; empty before the first
    reason: str
    decided_ms: int | None


def in_flight(scene: Scene) -> list[RolloutSummary] | None:
    """The rollouts in flight; None where nobody could say yet."""
    known: list[RolloutSummary] | None = scene.facts.value("rollouts")
    return known


def rollout_tile(scene: Scene) -> dict[str, Any]:
    rollouts = in_flight(scene)
    if rollouts is None:
        canaries = _canaries(scene)
        return {
            "value": count(len(canaries)),
            "unit": "",
            "tone": "healthy" if canaries else "unknown",
            "verdict": canaries[0] if canaries else "no canary has traffic",
        }
    if not rollouts:
        return {"value": "0", "unit": "", "tone": "unknown", "verdict": "none in flight"}
    first = rollouts[0]
    held = any(rollout["verdict"].startswith("hold") for rollout in rollouts)
    return {
        "value": count(len(rollouts)),
        "unit": "",
        "tone": "degraded" if held else "healthy",
        "verdict": f"{first['canary']} at {first['percent']:g} %",
    }


def rollout_answer(scene: Scene) -> dict[str, str]:
    rollouts = in_flight(scene)
    if rollouts is None:
        canaries = _canaries(scene)
        if canaries:
            text = f"A canary has traffic by hand: {'; '.join(canaries)}."
            return {"word": "healthy", "text": text, "command": ""}
    if not rollouts:
        return {
            "word": "unknown",
            "text": "No rollout is in flight.",
            "command": "manage.py rollout start MODEL VERSION",
        }
    first = rollouts[0]
    reason = f", {words(first['reason'])}" if first["reason"] else ""
    decided = f"last decision: {first['verdict']}{reason}" if first["verdict"] else "not judged yet"
    text = f"{first['model']} {first['canary']} at {first['percent']:g} %, {decided}."
    if len(rollouts) > 1:
        text += f" {plural(len(rollouts) - 1, 'more rollout')}."
    held = first["verdict"].startswith(("hold", "rollback"))
    return {"word": "degraded" if held else "healthy", "text": text, "command": ""}


def _canaries(scene: Scene) -> list[str]:
    return [
        f"{model['model']} {split['canary']} at {split['percent']:g} %"
        for model in scene.state["models"]
        if (split := model["split"]) is not None and split["canary"] and split["percent"] > 0
    ]
