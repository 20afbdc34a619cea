"""API keys: shown once, stored as a digest, revoked for good."""

from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from engine.errors import InvalidInput
from fleet.events import Change, announce
from fleet.models import ApiKey, Tenant
from fleet.secret import API_KEY, Secret, new_secret
from fleet.services.writing import check, facts


@dataclass(slots=True, frozen=True)
class IssuedKey:
    """A new key and, this once, its text."""

    key: ApiKey
    secret: str


@transaction.atomic
def issue_key(
    tenant: Tenant,
    name: str,
    *,
    actor: str,
    expires_at: datetime | None = None,
    may_choose_version: bool = False,
    reason: str = "",
    secret: Secret | None = None,
) -> IssuedKey:
    """Make a key. `secret` is for those derived from the installation (see `fleet.secret`)."""
    if expires_at is not None and expires_at <= timezone.now():
        raise InvalidInput("expiresAt", expires_at.isoformat(), "lies in the past")
    secret = secret or new_secret(API_KEY)
    key = ApiKey(
        tenant=tenant,
        name=name,
        prefix=secret.prefix,
        digest=secret.digest,
        expires_at=expires_at,
        may_choose_version=may_choose_version,
    )
    check(key)
    key.save()
    announce(
        Change(
            action="key.issued",
            kind="key",
            subject=key.prefix,
            actor=actor,
            reason=reason,
            after=facts(key),
            details={"tenant": tenant.name},
        )
    )
    return IssuedKey(key, secret.text)


@transaction.atomic
def revoke_key(key: ApiKey, *, actor: str, reason: str = "") -> ApiKey:
    """Revoke for good; every gateway refuses it within two seconds. Idempotent."""
    key = ApiKey.objects.select_for_update(of=("self",)).select_related("tenant").get(pk=key.pk)
    if key.revoked_at is None:
        key.revoked_at = timezone.now()
        key.save(update_fields=["revoked_at"])
        announce(
            Change(
                action="key.revoked",
                kind="key",
                subject=key.prefix,
                actor=actor,
                reason=reason,
                before={"revoked_at": None},
                after={"revoked_at": key.revoked_at.isoformat()},
                details={"tenant": key.tenant.name},
            )
        )
    return key
