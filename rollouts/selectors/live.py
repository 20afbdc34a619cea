"""What the dashboard asks every second: one line a rollout under way, and chart markers."""

from datetime import datetime

from django.db.models import F, Window
from django.db.models.functions import RowNumber

from engine.rollout.verdict import Act
from fleet.dashboard.markers import Marker
from fleet.dashboard.panels.rollouts import RolloutSummary
from rollouts.models import ACTIVE_VALUES, Decision, Rollout


def summaries() -> list[RolloutSummary]:
    """Every rollout under way with its last verdict: two queries, however many there are."""
    rows = list(Rollout.objects.filter(phase__in=ACTIVE_VALUES).order_by("model"))
    newest = Window(RowNumber(), partition_by=F("rollout"), order_by=F("seq").desc())
    last = {
        decision.rollout_id: decision
        for decision in Decision.objects.filter(rollout__in=rows)
        .annotate(age=newest)
        .filter(age=1)
        .only("rollout", "act", "reason", "at")
    }
    return [_summary(row, last.get(row.pk)) for row in rows]


def markers(start: datetime, end: datetime, model: str | None) -> list[Marker]:
    """Where the split moved: steps, promotions, rollbacks. Holds are not marked."""
    rows = Decision.objects.filter(at__gte=start, at__lt=end).exclude(act=Act.HOLD.value)
    if model is not None:
        rows = rows.filter(rollout__model=model)
    return [
        {
            "t": round(row.at.timestamp() * 1000),
            "text": f"{row.rollout.canary}: {row.act} to {row.percent:g} %",
        }
        for row in rows.select_related("rollout").order_by("-at")[:40]
    ]


def _summary(row: Rollout, last: Decision | None) -> RolloutSummary:
    return {
        "id": str(row.pk),
        "model": row.model,
        "canary": row.canary,
        "phase": row.phase,
        "percent": row.percent,
        "verdict": "" if last is None else last.act,
        "reason": "" if last is None else last.reason,
        "decided_ms": None if last is None else round(last.at.timestamp() * 1000),
    }
