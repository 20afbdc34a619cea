"""Tokens for the control API: a user's (with that user's role) or the fleet's (registers)."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from engine.errors import InvalidInput
from fleet.events import Change, announce
from fleet.models import AccessToken
from fleet.secret import FLEET_TOKEN, USER_TOKEN, Secret, matches, new_secret, prefix_of
from fleet.services.writing import check

USER_TOKEN_LIFE = timedelta(days=30)
NOTE_USE_EVERY = timedelta(minutes=1)


@dataclass(slots=True, frozen=True)
class IssuedToken:
    """A new token and, this once, its text."""

    token: AccessToken
    secret: str


@transaction.atomic
def issue_token(
    name: str,
    *,
    actor: str,
    user: User | None = None,
    expires_at: datetime | None = None,
    reason: str = "",
    secret: Secret | None = None,
) -> IssuedToken:
    """With `user` a user token (30 days unless said otherwise), without a fleet token."""
    now = timezone.now()
    if expires_at is not None and expires_at <= now:
        raise InvalidInput("expiresAt", expires_at.isoformat(), "lies in the past")
    if user is not None and expires_at is None:
        expires_at = now + USER_TOKEN_LIFE
    secret = secret or new_secret(FLEET_TOKEN if user is None else USER_TOKEN)
    token = AccessToken(
        kind=AccessToken.Kind.FLEET if user is None else AccessToken.Kind.USER,
        name=name,
        user=user,
        prefix=secret.prefix,
        digest=secret.digest,
        expires_at=expires_at,
    )
    check(token)
    token.save()
    announce(
        Change(
            action="token.issued",
            kind="token",
            subject=token.prefix,
            actor=actor,
            reason=reason,
            after={
                "kind": token.kind,
                "name": name,
                "user": None if user is None else user.get_username(),
                "expires_at": None if expires_at is None else expires_at.isoformat(),
            },
        )
    )
    return IssuedToken(token, secret.text)


@transaction.atomic
def revoke_token(token: AccessToken, *, actor: str, reason: str = "") -> AccessToken:
    token = AccessToken.objects.select_for_update().get(pk=token.pk)
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        announce(
            Change(
                action="token.revoked",
                kind="token",
                subject=token.prefix,
                actor=actor,
                reason=reason,
                before={"revoked_at": None},
                after={"revoked_at": token.revoked_at.isoformat()},
            )
        )
    return token


def verify_token(text: str) -> AccessToken | None:
    """The valid token that this text is, or None. Digests are compared in constant time."""
    prefix = prefix_of(text)
    if prefix is None:
        return None
    now = timezone.now()
    for token in AccessToken.objects.select_related("user").filter(prefix=prefix):
        if matches(text, token.digest) and token.is_valid(now):
            if token.last_used_at is None or now - token.last_used_at > NOTE_USE_EVERY:
                AccessToken.objects.filter(pk=token.pk).update(last_used_at=now)
            return token
    return None
