"""Start a rollout: refuse what cannot work, plainly and at once."""

import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from engine.errors import InvalidInput
from engine.rollout.state import JudgeState
from fleet.models import TrafficSplit
from fleet.services import Conflict, set_split
from fleet.services.splits import find_model, find_version
from rollouts.audit import record
from rollouts.capacity import ready_replicas
from rollouts.evidence import calibration_before
from rollouts.models import Rollout
from rollouts.policy import read_policy
from rollouts.services.apply import supersede
from rollouts.services.locking import active_rollout, require_reason
from rollouts.timing import due_at, first_window


@transaction.atomic
def start(
    model: str,
    canary: str,
    *,
    actor: str,
    reason: str,
    policy: Mapping[str, Any] | None = None,
    shadow: bool = False,
    supersede_active: bool = False,
    now: datetime | None = None,
) -> Rollout:
    """Start replacing the model's stable version by `canary`, at the policy's first step.

    A rollout that is under way, or a canary that has traffic by hand, is superseded only
    if `supersede_active`; the new one is then measured against the *stable* version.
    """
    reason = require_reason(reason)
    row = find_model(model)
    read = read_policy(policy, slo_ms=row.slo_ms)
    version = find_version(row, canary)
    split = TrafficSplit.objects.select_for_update(of=("self",)).filter(model=row).first()
    if split is None:
        raise Conflict(f"{model} has no stable version yet: set its traffic split first")
    baseline = split.baseline.name
    if baseline == canary:
        raise InvalidInput("version", canary, "is the stable version already")
    if not ready_replicas(model, canary).exists():
        raise InvalidInput("version", canary, "has no ready replica: start and register one first")
    now = now or timezone.now()
    running = active_rollout(model, lock=True)
    if running is not None and not supersede_active:
        raise Conflict(
            f"{model} has a rollout to {running.canary} under way ({running.phase} at "
            f"{running.percent:g} %): abort it, or supersede it"
        )
    if running is None and split.canary_percent > 0 and not supersede_active:
        raise Conflict(
            f"{split.canary} has {split.canary_percent:g} % of {model} by hand: "
            "set the split to the stable version first, or supersede it"
        )
    if running is not None:
        supersede(running, actor=actor, reason=f"superseded by {canary}: {reason}", now=now)
    percent = read.written["steps"][0]
    window_start = first_window(now)
    rollout = Rollout(
        model=model,
        baseline=baseline,
        canary=canary,
        salt=secrets.token_hex(8),
        shadow=shadow,
        policy=read.written,
        interval_s=read.interval_s,
        started_at=now,
        started_by=actor,
        reason=reason,
        percent=percent,
        window_start=window_start,
        due_at=due_at(window_start, read.interval_s),
    )
    calibration = calibration_before(rollout, now)
    rollout.state = JudgeState().to_json()
    rollout.save(force_insert=True)
    if running is not None:
        Rollout.objects.filter(pk=running.pk).update(superseded_by=rollout)
    set_split(
        row,
        baseline=split.baseline,
        canary=version,
        canary_percent=percent,
        salt=rollout.salt,
        shadow=shadow,
        actor=actor,
        reason=reason,
        details={"rollout": rollout.pk},
    )
    record(
        "rollout.started",
        kind="rollout",
        subject=str(rollout.pk),
        model=model,
        actor=actor,
        reason=reason,
        after={
            "baseline": baseline,
            "canary": canary,
            "percent": percent,
            "shadow": shadow,
            "policy": read.written,
        },
        details={"calibrated": calibration is not None},
    )
    return rollout
