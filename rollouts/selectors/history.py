"""The audit, filtered: who did what to which thing, when and why."""

from datetime import datetime

from django.db.models import Q, QuerySet

from rollouts.models import AuditEvent


def audit_events(
    *,
    kind: str | None = None,
    action: str | None = None,
    subject: str | None = None,
    model: str | None = None,
    actor: str | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    text: str | None = None,
    before_seq: int | None = None,
) -> QuerySet[AuditEvent]:
    """Newest first. `before_seq` is the cursor: the events older than that one."""
    rows = AuditEvent.objects.order_by("-seq")
    for name, value in (
        ("kind", kind),
        ("action", action),
        ("subject", subject),
        ("model", model),
        ("at__gte", start),
        ("at__lt", end),
        ("seq__lt", before_seq),
    ):
        if value is not None:
            rows = rows.filter(**{name: value})
    if actor is not None:
        rows = rows.filter(actor__icontains=actor)
    if text is not None:
        rows = rows.filter(
            Q(reason__icontains=text) | Q(subject__icontains=text) | Q(action__icontains=text)
        )
    return rows
