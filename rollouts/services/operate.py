"""What operators do to a rollout: each idempotent, each with a reason, none needs Celery."""

from collections.abc import Callable
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from engine.rollout.verdict import Phase
from fleet.services import Conflict
from rollouts.audit import record
from rollouts.models import Rollout
from rollouts.services.apply import finish
from rollouts.services.locking import latest_rollout, require_reason
from rollouts.timing import due_at, first_window


def promote(model: str, *, actor: str, reason: str, now: datetime | None = None) -> Rollout:
    """Give the canary everything now: it becomes the stable version."""
    return _act(model, Phase.PROMOTED, "promoted", _finish, actor=actor, reason=reason, now=now)


def abort(model: str, *, actor: str, reason: str, now: datetime | None = None) -> Rollout:
    """Take the canary's traffic away now: everything goes to the stable version."""
    return _act(model, Phase.ABORTED, "aborted", _finish, actor=actor, reason=reason, now=now)


def pause(model: str, *, actor: str, reason: str, now: datetime | None = None) -> Rollout:
    """Keep the split as it is and judge nothing until resumed."""
    return _act(model, Phase.PAUSED, "paused", _pause, actor=actor, reason=reason, now=now)


def resume(model: str, *, actor: str, reason: str, now: datetime | None = None) -> Rollout:
    """Judge again, from a fresh window. After `inconclusive` patience begins anew as well."""
    return _act(model, Phase.PROGRESSING, "resumed", _resume, actor=actor, reason=reason, now=now)


_Change = Callable[[Rollout, Phase, str, str, datetime], None]


@transaction.atomic
def _act(
    model: str,
    phase: Phase,
    verb: str,
    change: _Change,
    *,
    actor: str,
    reason: str,
    now: datetime | None,
) -> Rollout:
    reason = require_reason(reason)
    now = now or timezone.now()
    rollout = latest_rollout(model, lock=True)
    if rollout.phase == phase.value:
        return rollout
    if not rollout.is_active:
        raise Conflict(
            f"the rollout of {rollout.model} to {rollout.canary} is {rollout.phase}: "
            f"it cannot be {verb}"
        )
    before = {"phase": rollout.phase, "percent": rollout.percent}
    change(rollout, phase, actor, reason, now)
    rollout.save()
    record(
        f"rollout.{verb}",
        kind="rollout",
        subject=str(rollout.pk),
        model=rollout.model,
        actor=actor,
        reason=reason,
        before=before,
        after={"phase": rollout.phase, "percent": rollout.percent},
    )
    return rollout


def _finish(rollout: Rollout, phase: Phase, actor: str, reason: str, now: datetime) -> None:
    finish(rollout, phase, actor=actor, reason=reason, now=now)


def _pause(rollout: Rollout, phase: Phase, actor: str, reason: str, now: datetime) -> None:
    rollout.phase = phase.value
    rollout.due_at = None


def _resume(rollout: Rollout, phase: Phase, actor: str, reason: str, now: datetime) -> None:
    rollout.resumed = True  # the judge learns it with the next window, where replay finds it
    rollout.phase = phase.value
    rollout.window_start = first_window(now)
    rollout.due_at = due_at(rollout.window_start, rollout.interval_s)
