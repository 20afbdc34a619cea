"""What a verdict does: the decision's row, the split, the rollout and the audit, together."""

from datetime import datetime
from typing import Any

from django.db import transaction

from engine.rollout.calibration import Calibration
from engine.rollout.capacity import CapacityFacts
from engine.rollout.counts import WindowCounts
from engine.rollout.state import JudgeState
from engine.rollout.verdict import Act, Phase, Verdict
from fleet.services import set_split
from rollouts.audit import DECISION_CONTENT, content_of, record
from rollouts.digest import link, stored
from rollouts.models import Decision, Rollout
from rollouts.timing import due_at, first_window, window_end

JUDGE = "judge"


def apply_verdict(
    rollout: Rollout,
    state: JudgeState,
    verdict: Verdict,
    *,
    counts: WindowCounts,
    facts: CapacityFacts,
    calibration: Calibration | None,
    now: datetime,
) -> Decision:
    """Write down what was decided about the window at `rollout.window_start`, and do it.

    `calibration` is the one that came into force with this window, if any.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("a decision and what follows from it need one transaction")
    end = window_end(rollout.window_start, rollout.interval_s)
    decision = _write_decision(rollout, verdict, counts, facts, calibration, end, now)
    before = {"phase": rollout.phase, "percent": rollout.percent}
    rollout.state = state.to_json()
    rollout.resumed = False
    rollout.judged_at = now
    rollout.step = state.step
    rollout.window_start = end
    if verdict.act is Act.ADVANCE:
        rollout.percent = decision.percent
        _move_split(rollout, verdict.text)
        rollout.window_start = first_window(now)
    elif verdict.act is Act.PROMOTE and rollout.shadow:
        # its answers were never served: an operator decides whether they should be
        rollout.phase = Phase.INCONCLUSIVE.value
    elif verdict.act is Act.PROMOTE:
        finish(rollout, Phase.PROMOTED, actor=JUDGE, reason=verdict.text, now=now)
    elif verdict.act is Act.ROLLBACK:
        finish(rollout, Phase.ROLLED_BACK, actor=JUDGE, reason=verdict.text, now=now)
    elif rollout.phase == Phase.PROGRESSING.value:
        rollout.phase = verdict.phase.value
    rollout.due_at = _next_due(rollout, verdict)
    rollout.save()
    after = {"phase": rollout.phase, "percent": rollout.percent}
    if after != before:
        record(
            f"rollout.{_verb(verdict, rollout)}",
            kind="rollout",
            subject=str(rollout.pk),
            model=rollout.model,
            actor=JUDGE,
            reason=verdict.text,
            before=before,
            after=after,
            details={"decision": decision.seq, "digest": decision.digest, "verdict": verdict.name},
        )
    return decision


def finish(rollout: Rollout, phase: Phase, *, actor: str, reason: str, now: datetime) -> None:
    """End it: all traffic to the canary if promoted, else back to the stable version."""
    promoted = phase is Phase.PROMOTED
    rollout.phase = phase.value
    rollout.percent = 100.0 if promoted else 0.0
    rollout.ended_at = now
    rollout.due_at = None
    set_split(
        rollout.model,
        baseline=rollout.canary if promoted else rollout.baseline,
        actor=actor,
        reason=reason,
        details={"rollout": rollout.pk},
    )


def supersede(rollout: Rollout, *, actor: str, reason: str, now: datetime) -> None:
    """End it because something else took the model over. The split is the successor's."""
    before = {"phase": rollout.phase, "percent": rollout.percent}
    rollout.phase = Phase.SUPERSEDED.value
    rollout.percent = 0.0
    rollout.ended_at = now
    rollout.due_at = None
    rollout.save()
    record(
        "rollout.superseded",
        kind="rollout",
        subject=str(rollout.pk),
        model=rollout.model,
        actor=actor,
        reason=reason,
        before=before,
        after={"phase": rollout.phase, "percent": 0.0},
    )


def _write_decision(
    rollout: Rollout,
    verdict: Verdict,
    counts: WindowCounts,
    facts: CapacityFacts,
    calibration: Calibration | None,
    end: datetime,
    now: datetime,
) -> Decision:
    last = rollout.decisions.order_by("-seq").only("digest").first()
    decision = Decision(
        rollout=rollout,
        seq=counts.seq,
        at=now,
        window_start=rollout.window_start,
        window_end=end,
        act=verdict.act.value,
        reason=verdict.reason.value,
        step=verdict.step,
        percent_before=rollout.percent,
        percent=_percent(rollout, verdict),
        text=verdict.text,
        counts=stored(counts.to_json()),
        facts=stored(facts.to_json()),
        calibration=None if calibration is None else stored(calibration.to_json()),
        resumed=rollout.resumed,
        verdict=stored(verdict.to_json()),
        previous_digest="" if last is None else last.digest,
    )
    decision.digest = link(decision.previous_digest, content_of(decision, DECISION_CONTENT))
    decision.save(force_insert=True)
    return decision


def _percent(rollout: Rollout, verdict: Verdict) -> float:
    """The canary's share that follows, from the policy's own steps (5, not 5.000000000000001)."""
    if verdict.act is Act.ROLLBACK:
        return 0.0
    if verdict.act is Act.PROMOTE:
        return 100.0
    steps: list[float] = rollout.policy["steps"]
    return steps[verdict.step]


def _move_split(rollout: Rollout, reason: str) -> None:
    set_split(
        rollout.model,
        baseline=rollout.baseline,
        canary=rollout.canary,
        canary_percent=rollout.percent,
        salt=rollout.salt,
        shadow=rollout.shadow,
        actor=JUDGE,
        reason=reason,
        details={"rollout": rollout.pk},
    )


def _next_due(rollout: Rollout, verdict: Verdict) -> datetime | None:
    if not rollout.is_active or verdict.act is Act.PROMOTE:
        return None
    return due_at(rollout.window_start, rollout.interval_s)


def _verb(verdict: Verdict, rollout: Rollout) -> str:
    if rollout.phase == Phase.INCONCLUSIVE.value:
        return "inconclusive"
    verbs: dict[Any, str] = {
        Act.ADVANCE: "advanced",
        Act.PROMOTE: "promoted",
        Act.ROLLBACK: "rolled_back",
    }
    return verbs.get(verdict.act, "held")
