"""Who may speak to the control API without a session: hashed, expiring tokens."""

from datetime import datetime

from django.conf import settings
from django.db import models
from django.utils import timezone


class AccessToken(models.Model):
    """A *user* token acts with its user's role; a *fleet* token may only register replicas."""

    class Kind(models.TextChoices):
        USER = "user", "a user's"
        FLEET = "fleet", "for replicas to register"

    kind = models.CharField(max_length=8, choices=Kind.choices, default=Kind.USER)
    name = models.CharField(max_length=64)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="access_tokens",
    )
    prefix = models.CharField(max_length=16, db_index=True, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                name="access_token_user_where_needed",
                condition=models.Q(kind="user", user__isnull=False)
                | models.Q(kind="fleet", user__isnull=True),
                violation_error_message="A user token needs a user; a fleet token has none.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"

    def is_valid(self, now: datetime | None = None) -> bool:
        if self.revoked_at is not None:
            return False
        return self.expires_at is None or self.expires_at > (now or timezone.now())
