"""Where a rollout is: phase, step, percent, streaks, evidence, next evaluation."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone

from rollouts.models import ACTIVE_VALUES, Decision, Rollout
from rollouts.timing import overdue_s


@dataclass(slots=True, frozen=True, kw_only=True)
class Status:
    """A rollout at a glance. None where there is nothing yet (or no more) to say.

    `evidence` are the numbers of the last decision; `overdue_s` is set where the next verdict
    is late, which means that no worker runs: the split stays as it is until one does.
    """

    id: int
    model: str
    baseline: str
    canary: str
    shadow: bool
    phase: str
    active: bool
    step: int
    steps: list[float]
    percent: float
    interval_s: int
    healthy: int
    unhealthy: int
    step_windows: int
    verdict: str
    act: str
    reason: str
    text: str
    evidence: dict[str, Any] = field(default_factory=dict)
    decided_at: datetime | None
    next_evaluation_at: datetime | None
    overdue_s: float | None
    started_at: datetime
    started_by: str
    start_reason: str
    ended_at: datetime | None
    decisions: int
    superseded_by: int | None


def active_rollouts() -> list[Status]:
    """Every rollout under way, by model."""
    rows = Rollout.objects.filter(phase__in=ACTIVE_VALUES).order_by("model")
    return [status_of(row) for row in rows]


def recent_rollouts(limit: int = 50, *, model: str | None = None) -> list[Status]:
    """Rollouts under way first, then the latest."""
    rows = Rollout.objects.all()
    if model is not None:
        rows = rows.filter(model=model)
    found = list(rows.order_by("-started_at", "-id")[:limit])
    found.sort(key=lambda row: not row.is_active)
    return [status_of(row) for row in found]


def status_of(rollout: Rollout, now: datetime | None = None) -> Status:
    """One rollout at a glance."""
    last = rollout.decisions.order_by("-seq").first()
    state = rollout.state
    return Status(
        id=rollout.pk,
        model=rollout.model,
        baseline=rollout.baseline,
        canary=rollout.canary,
        shadow=rollout.shadow,
        phase=rollout.phase,
        active=rollout.is_active,
        step=rollout.step,
        steps=rollout.policy["steps"],
        percent=rollout.percent,
        interval_s=rollout.interval_s,
        healthy=state.get("healthy", 0),
        unhealthy=state.get("unhealthy", 0),
        step_windows=state.get("step_windows", 0),
        verdict=last.name if last else "",
        act=last.act if last else "",
        reason=last.reason if last else "",
        text=last.text if last else "",
        evidence=last.verdict["numbers"] if last else {},
        decided_at=last.at if last else None,
        next_evaluation_at=rollout.due_at,
        overdue_s=overdue_s(rollout.due_at, rollout.interval_s, now or timezone.now()),
        started_at=rollout.started_at,
        started_by=rollout.started_by,
        start_reason=rollout.reason,
        ended_at=rollout.ended_at,
        decisions=last.seq if last else 0,
        superseded_by=rollout.superseded_by_id,
    )


def stored_decision(decision: Decision) -> dict[str, Any]:
    """A decision as it is stored, for JSON views: everything that replay needs."""
    return {
        "rollout": decision.rollout_id,
        "seq": decision.seq,
        "at": decision.at,
        "windowStart": decision.window_start,
        "windowEnd": decision.window_end,
        "act": decision.act,
        "reason": decision.reason,
        "verdict": decision.name,
        "step": decision.step,
        "percentBefore": decision.percent_before,
        "percent": decision.percent,
        "text": decision.text,
        "counts": decision.counts,
        "facts": decision.facts,
        "calibration": decision.calibration,
        "resumed": decision.resumed,
        "numbers": decision.verdict["numbers"],
        "digest": decision.digest,
        "previousDigest": decision.previous_digest,
    }
