"""Rollouts as ready text: the ladder, the guards, the decisions, and what would change them."""

from datetime import datetime
from typing import Any

from engine.rollout.verdict import Act, Phase, Reason
from fleet.dashboard.format import count, number, percent, plural, words
from fleet.dashboard.history import milliseconds
from fleet.dashboard.panels.overview import tile
from fleet.dashboard.panels.shell import shell
from fleet.dashboard.tables import body
from fleet.live.scene import Scene
from fleet.live.topics import Params, register
from rollouts.dashboard.guards import guards, next_step
from rollouts.dashboard.reading import Dossier
from rollouts.models import Decision, Rollout

Row = dict[str, Any]

DECISIONS_IN_TABLE = 40

PHASE_WORDS = {
    Phase.PENDING: "unknown",
    Phase.PROGRESSING: "healthy",
    Phase.PAUSED: "degraded",
    Phase.INCONCLUSIVE: "degraded",
    Phase.PROMOTED: "healthy",
    Phase.ROLLED_BACK: "down",
    Phase.ABORTED: "draining",
    Phase.SUPERSEDED: "draining",
}

REASONS = {
    Reason.HEALTHY: "enough healthy windows, nothing suspicious",
    Reason.NON_INFERIOR: "the evidence excludes that it is slower by the margin",
    Reason.CONFIRMED: "held at full traffic",
    Reason.COLLECTING: "needs more windows or requests at this step",
    Reason.CALIBRATING: "what slow means is not known yet: too few baseline timings",
    Reason.WATCHING: "something looks worse, not surely so",
    Reason.NO_DATA: "the canary saw no traffic, which is neither success nor failure",
    Reason.WARMING_UP: "every timing came from a replica that is still warming up",
    Reason.CAPACITY_LIMITED: "the canary's replicas cannot carry the step; add replicas",
    Reason.INVALID_SRM: "the realised split is not the one configured",
    Reason.INVALID_AA: "the baseline differs from itself: the evidence is not to be trusted",
    Reason.SLO_MISSED: "95 % of the canary's requests must meet the objective",
    Reason.ERRORS_ABOVE_TOLERANCE: "the observed failures exceed the policy's factor",
    Reason.DUPLICATE: "this window was judged before",
    Reason.INCONCLUSIVE: "out of patience: an operator must promote or abort",
    Reason.LATENCY: "slower than tolerated, beyond chance",
    Reason.FAILURES: "fails more often, beyond chance",
    Reason.MISSES: "misses more deadlines, beyond chance",
}


def phase_word(phase: str) -> str:
    """The phase in the one status vocabulary."""
    return PHASE_WORDS.get(Phase(phase), "unknown")


def meaning(decision: Decision) -> str:
    """Its reason in words."""
    return REASONS.get(Reason(decision.reason), "")


def at_ms(moment: datetime | None) -> int | None:
    return None if moment is None else milliseconds(moment)


def summary_row(dossier: Dossier) -> Row:
    """A rollout in the list."""
    rollout, last = dossier.rollout, dossier.last
    return {
        "id": str(rollout.pk),
        "status": phase_word(rollout.phase),
        "phase": words(rollout.phase),
        "model": rollout.model,
        "change": f"{rollout.baseline} → {rollout.canary}",
        "share": round(rollout.percent / 100, 4),
        "step": f"{rollout.step + 1} of {len(dossier.steps)}",
        "verdict": last.name if last else "not judged yet",
        "text": last.text if last else "",
        "judged": at_ms(rollout.judged_at),
        "started": at_ms(rollout.started_at),
        "by": rollout.started_by,
    }


def ladder(dossier: Dossier) -> list[Row]:
    """The steps with where the rollout stands and what the canary's replicas can carry."""
    rollout = dossier.rollout
    carried = dossier.numbers.get("largestRatio")
    rungs = []
    for index, step in enumerate(dossier.steps):
        if rollout.phase == Phase.PROMOTED or index < rollout.step:
            state = "done"
        elif index == rollout.step:
            state = "now" if rollout.is_active else "left"
        else:
            state = "ahead"
        short = carried is not None and step / 100.0 > carried + 1e-9 and state != "done"
        rungs.append({"percent": f"{step:g}", "state": state, "short": "yes" if short else "no"})
    return rungs


def would_change(dossier: Dossier) -> list[str]:
    """What would change the verdict, in numbers."""
    rollout, last, numbers = dossier.rollout, dossier.last, dossier.numbers
    if not rollout.is_active:
        return [f"Nothing: it is {words(rollout.phase)}."]
    if rollout.phase == Phase.PAUSED:
        return ["It is paused: nothing is judged until somebody resumes it."]
    if last is None:
        return ["The first window is not judged yet."]
    lines = []
    reason, verdict_numbers = last.reason, last.verdict.get("numbers") or {}
    if reason == Reason.CAPACITY_LIMITED:
        needed, ready = verdict_numbers.get("replicasNeeded"), verdict_numbers.get("canaryReady")
        if needed is not None:
            lines.append(
                f"To advance: {plural(needed, 'ready replica')} of {rollout.canary} "
                f"instead of {ready}."
            )
    elif reason == Reason.NO_DATA:
        lines.append(
            f"To judge at all: one request that ends on {rollout.canary}. It has "
            f"{plural(verdict_numbers.get('canaryReady') or 0, 'ready replica')}."
        )
    elif reason == Reason.COLLECTING:
        lines.append(f"To advance: {last.text}.")
    elif reason == Reason.CALIBRATING:
        lines.append("To judge latency: 100 timings of the baseline before the canary's first.")
    elif reason == Reason.INCONCLUSIVE:
        lines.append("Only you: promote it, or abort it.")
    elif reason in (Reason.WATCHING, Reason.SLO_MISSED, Reason.ERRORS_ABOVE_TOLERANCE):
        lines.append(f"To advance, this must end: {last.text}.")
    for key, name in (("latency", "latency"), ("failures", "failures"), ("misses", "misses")):
        shown, limit = numbers.get(f"{key}LogE"), numbers.get(f"{key}Limit")
        if shown is not None and limit is not None and shown > 0.05:
            lines.append(
                f"To roll back for {name}: log E from {shown:.2f} to {limit:.2f} "
                f"(×{number(2.718281828 ** max(limit - shown, 0.0))} more evidence)."
            )
    shown, limit = numbers.get("promotionLogE"), numbers.get("promotionLimit")
    if shown is not None and limit is not None and shown < limit:
        lines.append(f"To promote: log E′ from {shown:.2f} to {limit:.2f}.")
    return lines or ["Another healthy window takes the next step."]


def decision_row(decision: Decision) -> Row:
    """A judged window in the table."""
    counts = decision.counts
    numbers = decision.verdict.get("numbers") or {}
    moved = decision.percent != decision.percent_before
    return {
        "id": f"{decision.rollout_id}/{decision.seq}",
        "rollout": str(decision.rollout_id),
        "seq": str(decision.seq),
        "at": at_ms(decision.at),
        "act": decision.act,
        "reason": words(decision.reason),
        "text": decision.text,
        "weight": f"{decision.percent_before:g} → {decision.percent:g}"
        if moved
        else f"{decision.percent:g}",
        "canary": count(counts.get("canary_ended")),
        "baseline": count(counts.get("baseline_ended")),
        "slow": _pair(counts, "slow_canary", "canary_timed"),
        "slow_baseline": _pair(counts, "slow_baseline", "baseline_timed"),
        "latency": _against(numbers, "latency"),
        "failures": _against(numbers, "failures"),
    }


def _pair(counts: Row, part: str, whole: str) -> str:
    if counts.get(part) is None:
        return count(None)
    return f"{count(counts[part])} / {count(counts.get(whole))}"


def _against(numbers: Row, key: str) -> str:
    shown, limit = numbers.get(f"{key}LogE"), numbers.get(f"{key}Limit")
    return count(None) if shown is None or limit is None else f"{shown:.2f} of {limit:.2f}"


def dossier_of(scene: Scene, params: Params) -> Dossier | None:
    """The watched rollout, as the fact `rollout_pages` knows it."""
    asked = params.get("id", "")
    known = scene.facts.value("rollout_pages") or {}
    found: Dossier | None = known.get(int(asked)) if asked.isdecimal() else None
    return found


def document(dossier: Dossier) -> dict[str, Any]:
    """The changing part of a rollout's page."""
    rollout, last = dossier.rollout, dossier.last
    due = at_ms(rollout.due_at) if rollout.is_active else None
    return {
        "stamp": "/".join(
            str(part) for part in (rollout.judged_at, rollout.phase, rollout.percent)
        ),
        "phase": {"word": phase_word(rollout.phase), "text": words(rollout.phase)},
        "ladder": {str(index): rung for index, rung in enumerate(ladder(dossier))},
        "due": "" if due is None else str(due),
        "last": {
            "act": last.act if last else "",
            "reason": words(last.reason) if last else "",
            "text": last.text if last else "The first window is not judged yet.",
            "meaning": meaning(last) if last else "",
        },
        "change": "\n".join(would_change(dossier)),
        "tiles": _tiles(dossier),
        "tables": {
            "guards": body(guards(dossier)),
            "decisions": body(
                [decision_row(d) for d in reversed(dossier.decisions[-DECISIONS_IN_TABLE:])],
                total=dossier.total,
            ),
        },
    }


def _tiles(dossier: Dossier) -> dict[str, Any]:
    rollout, last, numbers = dossier.rollout, dossier.last, dossier.numbers
    strongest, limit = _strongest(numbers)
    carried = numbers.get("largestRatio")
    short = carried is not None and carried * 100 < next_step(dossier) and rollout.is_active
    held = last is not None and last.act == Act.HOLD
    return {
        "weight": tile(
            f"{rollout.percent:g}",
            "%",
            "healthy" if rollout.is_active else phase_word(rollout.phase),
            f"of sessions on {rollout.canary}",
        ),
        "step": tile(
            f"{min(rollout.step + 1, len(dossier.steps))}",
            f"of {len(dossier.steps)}",
            "healthy",
            f"{_step_windows(rollout)} at this step",
        ),
        "verdict": tile(
            last.act if last else "–",
            "",
            "unknown" if last is None else "down" if last.act == Act.ROLLBACK else
            "degraded" if held and last.reason != Reason.COLLECTING else "healthy",
            words(last.reason) if last else "not judged yet",
        ),
        "evidence": tile(
            "–" if strongest is None else f"{strongest:.2f}",
            "" if limit is None else f"of {limit:.2f}",
            "unknown"
            if strongest is None or limit is None
            else "down"
            if strongest >= limit
            else "degraded"
            if strongest >= limit / 2
            else "healthy",
            "strongest log E against it",
        ),
        "capacity": tile(
            "–" if carried is None else percent(carried, digits=0),
            "" if carried is None else "%",
            "unknown" if carried is None else "degraded" if short else "healthy",
            "not known yet" if carried is None else "its replicas can carry",
        ),
    }  # fmt: skip


def _step_windows(rollout: Rollout) -> str:
    return plural(int(rollout.state.get("step_windows") or 0), "window")


def _strongest(numbers: Row) -> tuple[float | None, float | None]:
    """The guard that is nearest to its limit."""
    known = [
        (numbers[f"{key}LogE"], numbers[f"{key}Limit"])
        for key in ("latency", "failures", "misses")
        if numbers.get(f"{key}LogE") is not None and numbers.get(f"{key}Limit")
    ]
    return max(known, key=lambda pair: pair[0] / pair[1]) if known else (None, None)


def live(scene: Scene, params: Params) -> dict[str, Any]:
    dossier = dossier_of(scene, params)
    made: dict[str, Any] = {"shell": shell(scene)}
    return made if dossier is None else made | document(dossier)


def live_list(scene: Scene, _params: Params) -> dict[str, Any]:
    known: dict[int, Dossier] = scene.facts.value("rollout_pages") or {}
    active = [dossier for dossier in known.values() if dossier.rollout.is_active]
    rows = [summary_row(d) for d in sorted(active, key=lambda d: -d.rollout.pk)]
    return {"shell": shell(scene), "tables": {"rollouts": body(rows)}}


register("rollout", live)
register("rollouts", live_list)
register("history", lambda scene, _params: {"shell": shell(scene)})
