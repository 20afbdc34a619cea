"""Tenants and their limits. A change is in force in every gateway within a second."""

from typing import Any

from django.db import transaction

from engine.errors import InvalidInput
from fleet.events import Change, announce
from fleet.models import Tenant
from fleet.services.writing import check, difference, facts

TENANT_FIELDS = frozenset(
    {
        "priority",
        "weight",
        "requests_per_minute",
        "requests_burst",
        "tokens_per_minute",
        "tokens_burst",
        "max_in_flight",
        "enabled",
    }
)


@transaction.atomic
def create_tenant(name: str, *, actor: str, reason: str = "", **limits: Any) -> Tenant:
    """Create a tenant. A limit that is None, or not given, does not apply."""
    _require_known(limits)
    tenant = Tenant(name=name, **limits)
    _require_rates(tenant)
    check(tenant)
    tenant.save()
    announce(
        Change(
            action="tenant.created",
            kind="tenant",
            subject=name,
            actor=actor,
            reason=reason,
            after=facts(tenant),
        )
    )
    return tenant


@transaction.atomic
def update_tenant(tenant: Tenant, *, actor: str, reason: str = "", **limits: Any) -> Tenant:
    _require_known(limits)
    tenant = Tenant.objects.select_for_update().get(pk=tenant.pk)
    before = facts(tenant)
    for name, value in limits.items():
        setattr(tenant, name, value)
    _require_rates(tenant)
    check(tenant)
    was, became = difference(before, facts(tenant))
    if became:
        tenant.save()
        announce(
            Change(
                action="tenant.changed",
                kind="tenant",
                subject=tenant.name,
                actor=actor,
                reason=reason,
                before=was,
                after=became,
            )
        )
    return tenant


@transaction.atomic
def remove_tenant(tenant: Tenant, *, actor: str, reason: str = "") -> None:
    """Remove a tenant with its keys. Its usage stays: history outlives what it speaks of."""
    before, name = facts(tenant), tenant.name
    keys = list(tenant.keys.values_list("prefix", flat=True))
    tenant.delete()
    announce(
        Change(
            action="tenant.removed",
            kind="tenant",
            subject=name,
            actor=actor,
            reason=reason,
            before=before,
            details={"keys": keys},
        )
    )


def _require_rates(tenant: Tenant) -> None:
    """The table has the same rule; here the fault is told with the field's name."""
    for what in ("requests", "tokens"):
        burst = getattr(tenant, f"{what}_burst")
        if burst is not None and getattr(tenant, f"{what}_per_minute") is None:
            raise InvalidInput(f"{what}_burst", burst, f"needs {what} per minute")


def _require_known(limits: dict[str, Any]) -> None:
    for name in limits:
        if name not in TENANT_FIELDS:
            known = ", ".join(sorted(TENANT_FIELDS))
            raise InvalidInput(name, limits[name], f"a tenant has {known}")
