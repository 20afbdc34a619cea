"""What can the canary's replicas carry? From what replicas of the model were seen to do.

Device time is near affine in the work, so over many seconds `busy_ms = a batches + b tokens`
is fitted for the version (non-negative least squares in two unknowns). With batches of B
requests of the usual size t, one slot then serves 1000 B / (a + b B t) requests a second; B
is what the replica allows, and what lets two consecutive batches fit into the SLO. Dividing
the rate by the busy share instead would understate it wildly: at low load batches are of
one, and a device that looks busy could serve ten times as much.

Where the seconds are too alike to tell a from b, the plain division is used: it errs low, and
binds only when the load is high, where batches fill and the spread is there. A canary with
too little history of its own is taken to cost what the baseline costs.

What is offered is the higher of this window's rate and that of the last `STEADY`: in a window
of one second a lull is chance, and a step that it lets through meets the usual load.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils import timezone

from engine.rollout.capacity import CapacityFacts
from fleet.models import Replica
from fleet.selectors.evidence import ArmSums, Second, offered, seconds_of

LOOK_BACK = timedelta(seconds=180)
STEADY = timedelta(seconds=10)
ENOUGH_SECONDS = 20
ENOUGH_ITEMS = 100
_ENOUGH_SPREAD = 0.10  # least relative deviation of the mean batch's tokens that tells a from b


@dataclass(slots=True, frozen=True, kw_only=True)
class Cost:
    """`busy_ms = fixed_ms x batches + per_token_ms x tokens`, and the usual request's tokens."""

    fixed_ms: float
    per_token_ms: float
    tokens: float


def ready_replicas(model: str, version: str) -> QuerySet[Replica]:
    """The replicas that could take work: not draining, and heard of lately (or written down)."""
    heard = timezone.now() - timedelta(seconds=settings.HALCYON_REPLICA_SILENT_S)
    return Replica.objects.filter(
        Q(heartbeat_at__isnull=True) | Q(heartbeat_at__gte=heard),
        version__model__name=model,
        version__name=version,
        draining=False,
    )


def capacity_facts(
    model: str,
    baseline: str,
    canary: str,
    sums: Sequence[ArmSums],
    span_s: float,
    end: datetime,
    slo_ms: float | None,
) -> CapacityFacts:
    """What the judge is told of capacity for the window that ended at `end`."""
    replicas = list(ready_replicas(model, canary))
    per_s: float | None = None
    if replicas:
        since = end - LOOK_BACK
        seconds = seconds_of(model, canary, since, end)
        if len(seconds) < ENOUGH_SECONDS or sum(s.items for s in seconds) < ENOUGH_ITEMS:
            seconds = seconds_of(model, baseline, since, end)
        cost = fit(seconds)
        if cost is not None:
            per_s = sum(slot_per_s(cost, replica, slo_ms) for replica in replicas)
        else:
            per_s = _by_division(seconds, replicas)
    return CapacityFacts(
        canary_ready=len(replicas),
        canary_per_s=per_s,
        offered_per_s=_offered_per_s(model, sums, span_s, end),
    )


def _offered_per_s(
    model: str, sums: Sequence[ArmSums], span_s: float, end: datetime
) -> float | None:
    now = sum(max(s.assigned or 0, s.served + s.faults + s.sheds + s.misses) for s in sums)
    rate = now / span_s
    if span_s < STEADY.total_seconds():
        rate = max(rate, offered(model, end - STEADY, end) / STEADY.total_seconds())
    return rate or None


def fit(seconds: Sequence[Second]) -> Cost | None:
    """The affine cost of these seconds, or None where they cannot tell."""
    seconds = [s for s in seconds if s.busy_ms > 0 and s.items > 0 and s.tokens > 0]
    if len(seconds) < ENOUGH_SECONDS:
        return None
    batches = np.array([float(s.batches) for s in seconds])
    tokens = np.array([float(s.tokens) for s in seconds])
    busy = np.array([s.busy_ms for s in seconds])
    mean = tokens / batches
    if mean.std() < _ENOUGH_SPREAD * mean.mean():
        return None
    weight = 1.0 / busy  # on relative error, or the busiest second decides alone
    design = np.stack([batches * weight, tokens * weight], axis=1)
    solved, *_ = np.linalg.lstsq(design, np.ones(len(busy)), rcond=None)
    fixed, per_token = (float(value) for value in solved)
    if fixed < 0.0 or per_token < 0.0:  # solve again with the constraint active
        column = 1 if fixed < 0.0 else 0
        kept = design[:, column]
        alone = float(kept.sum() / (kept @ kept))
        fixed, per_token = (0.0, alone) if column == 1 else (alone, 0.0)
    items = sum(s.items for s in seconds)
    return Cost(fixed_ms=fixed, per_token_ms=per_token, tokens=float(tokens.sum()) / items)


def slot_per_s(cost: Cost, replica: Replica, slo_ms: float | None) -> float:
    """Requests a second that this replica serves, all its slots, in its best batches."""
    each_ms = max(cost.per_token_ms * cost.tokens, 1e-6)
    size = min(float(replica.max_batch_size), replica.max_batch_tokens / max(cost.tokens, 1.0))
    if slo_ms is not None:
        size = min(size, (slo_ms / 2.0 - cost.fixed_ms) / each_ms)
    size = max(size, 1.0)
    return replica.max_concurrency * 1000.0 * size / (cost.fixed_ms + each_ms * size)


def _by_division(seconds: Sequence[Second], replicas: Sequence[Replica]) -> float | None:
    busy_ms = sum(s.busy_ms for s in seconds)
    items = sum(s.items for s in seconds)
    if len(seconds) < ENOUGH_SECONDS or busy_ms <= 0.0 or not items:
        return None  # nobody knows, and what nobody knows limits nothing
    slots = sum(replica.max_concurrency for replica in replicas)
    return slots * 1000.0 * items / busy_ms
