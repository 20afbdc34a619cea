"""The audit: one chain of everything that anybody changed.

`record` writes the next link inside the caller's transaction; `record_change` does so for
every change that the fleet's services announce. One transaction at a time may hold the end
of the chain (an advisory lock, released with the transaction), so links never fork and
nothing that rolled back leaves one. `verify` walks the chain and names the first row that
does not fit.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from fleet.events import Change
from rollouts.digest import link, stored
from rollouts.models import AuditEvent, Decision, Rollout

_origin: ContextVar[str] = ContextVar("audit_origin", default="")

CONTENT = (
    "seq",
    "at",
    "actor",
    "origin",
    "action",
    "kind",
    "subject",
    "model",
    "reason",
    "before",
    "after",
    "details",
)
DECISION_CONTENT = (
    "rollout_id",
    "seq",
    "at",
    "window_start",
    "window_end",
    "act",
    "reason",
    "step",
    "percent_before",
    "percent",
    "text",
    "counts",
    "facts",
    "calibration",
    "resumed",
    "verdict",
)


@contextmanager
def origin(where: str) -> Iterator[None]:
    """Say from where the changes made in this context come."""
    token = _origin.set(where)
    try:
        yield
    finally:
        _origin.reset(token)


def record(
    action: str,
    *,
    kind: str,
    subject: str,
    actor: str,
    model: str = "",
    reason: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    details: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """Write the next link of the chain. Must be called inside a transaction."""
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError(f"{action} was to be audited outside a transaction")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('rollouts.audit'))")
    last = AuditEvent.objects.order_by("-seq").only("seq", "hash").first()
    event = AuditEvent(
        seq=1 if last is None else last.seq + 1,
        at=timezone.now(),
        actor=actor,
        origin=_origin.get(),
        action=action,
        kind=kind,
        subject=subject,
        model=model,
        reason=reason,
        before=None if before is None else stored(before),
        after=None if after is None else stored(after),
        details=stored(details or {}),
        previous_hash="" if last is None else last.hash,
    )
    event.hash = link(event.previous_hash, content_of(event, CONTENT))
    event.save(force_insert=True)
    return event


def record_change(change: Change) -> None:
    """Listen to `fleet.events`: what cannot be recorded does not happen."""
    record(
        change.action,
        kind=change.kind,
        subject=change.subject,
        actor=change.actor,
        model=change.model or "",
        reason=change.reason,
        before=change.before,
        after=change.after,
        details=change.details,
    )


def content_of(row: AuditEvent | Decision, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


@dataclass(slots=True, frozen=True, kw_only=True)
class Verification:
    """What a walk along the chains found. `fault` names the first row that does not fit."""

    events: int
    decisions: int
    fault: str | None = None

    @property
    def intact(self) -> bool:
        return self.fault is None


def verify() -> Verification:
    """Walk the audit's chain and every rollout's chain of decisions."""
    events, fault = _walk_events()
    decisions = 0
    if fault is None:
        for rollout in Rollout.objects.order_by("id").only("id", "state"):
            walked, fault = _walk_decisions(rollout.pk)
            decisions += walked
            if fault is None and walked < (rollout.state.get("last_seq") or 0):
                fault = f"decision {walked + 1} of rollout {rollout.pk} is missing"
            if fault is not None:
                break
    return Verification(events=events, decisions=decisions, fault=fault)


def _walk_events() -> tuple[int, str | None]:
    previous, expected = "", 1
    for event in AuditEvent.objects.order_by("seq").iterator(chunk_size=1000):
        if event.seq != expected:
            return expected - 1, f"audit event {expected} is missing"
        if event.previous_hash != previous:
            return expected - 1, f"audit event {event.seq} does not follow the one before it"
        if event.hash != link(previous, content_of(event, CONTENT)):
            return expected - 1, f"audit event {event.seq} ({event.action}) was altered"
        previous, expected = event.hash, expected + 1
    return expected - 1, None


def _walk_decisions(rollout_id: int) -> tuple[int, str | None]:
    previous, walked = "", 0
    rows = Decision.objects.filter(rollout_id=rollout_id).order_by("seq")
    for row in rows.iterator(chunk_size=1000):
        name = f"decision {row.seq} of rollout {rollout_id}"
        if row.seq != walked + 1:
            return walked, f"decision {walked + 1} of rollout {rollout_id} is missing"
        if row.previous_digest != previous:
            return walked, f"{name} does not follow the one before it"
        if row.digest != link(previous, content_of(row, DECISION_CONTENT)):
            return walked, f"{name} was altered"
        previous, walked = row.digest, walked + 1
    return walked, None
