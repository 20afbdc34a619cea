"""Who asks: tenants with their limits, and the keys they show."""

from datetime import datetime

from django.db import models
from django.utils import timezone

from engine.types import Priority
from fleet.models.names import valid_slug
from fleet.models.notify import configuration_triggers


class Tenant(models.Model):
    """A customer of the fleet. An empty limit does not apply; an empty burst is one minute's."""

    PRIORITIES = [(priority.value, priority.name.lower()) for priority in Priority]

    name = models.CharField(max_length=64, unique=True, validators=[valid_slug])
    priority = models.PositiveSmallIntegerField(
        choices=PRIORITIES,
        default=Priority.NORMAL.value,
        help_text="Under contention the highest is refused last.",
    )
    weight = models.FloatField(default=1.0, help_text="Share of contended work within a priority.")
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    requests_burst = models.PositiveIntegerField(null=True, blank=True)
    tokens_per_minute = models.PositiveIntegerField(null=True, blank=True)
    tokens_burst = models.PositiveIntegerField(null=True, blank=True)
    max_in_flight = models.PositiveIntegerField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                name="tenant_priority_in_range",
                condition=models.Q(priority__gte=0, priority__lte=3),
                violation_error_message="The priority must be from 0 to 3.",
            ),
            models.CheckConstraint(
                name="tenant_weight_positive",
                condition=models.Q(weight__gt=0, weight__lte=1000),
                violation_error_message="The weight must be above 0 and at most 1000.",
            ),
            *(
                models.CheckConstraint(
                    name=f"tenant_{field}_positive",
                    condition=models.Q(**{f"{field}__isnull": True})
                    | models.Q(**{f"{field}__gte": 1}),
                    violation_error_message=f"{field}: empty for no limit, else 1 or more.",
                )
                for field in (
                    "requests_per_minute",
                    "requests_burst",
                    "tokens_per_minute",
                    "tokens_burst",
                    "max_in_flight",
                )
            ),
            models.CheckConstraint(
                name="tenant_requests_burst_needs_rate",
                condition=models.Q(requests_burst__isnull=True)
                | models.Q(requests_per_minute__isnull=False),
                violation_error_message="A burst of requests needs requests per minute.",
            ),
            models.CheckConstraint(
                name="tenant_tokens_burst_needs_rate",
                condition=models.Q(tokens_burst__isnull=True)
                | models.Q(tokens_per_minute__isnull=False),
                violation_error_message="A burst of tokens needs tokens per minute.",
            ),
        ]
        triggers = configuration_triggers()

    def __str__(self) -> str:
        return self.name


class ApiKey(models.Model):
    """A tenant's key. Only its SHA-256 is kept: a lost key is replaced, never recovered."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="keys")
    name = models.CharField(max_length=64)
    prefix = models.CharField(max_length=16, db_index=True, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    may_choose_version = models.BooleanField(
        default=False,
        help_text="May send x-halcyon-version. Such requests stay out of canary evidence.",
    )

    class Meta:
        ordering = ["tenant__name", "-created_at"]
        verbose_name = "API key"
        constraints = [
            models.CheckConstraint(
                name="api_key_digest_is_sha256",
                condition=models.Q(digest__regex=r"^[0-9a-f]{64}$"),
            ),
            models.UniqueConstraint(
                fields=["tenant", "name"],
                condition=models.Q(revoked_at__isnull=True),
                name="api_key_name_in_tenant",
                violation_error_message="The tenant has an unrevoked key of this name.",
            ),
        ]
        triggers = configuration_triggers(ignoring=("last_used_at",))

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"

    def status(self, now: datetime | None = None) -> str:
        """active | expired | revoked."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= (now or timezone.now()):
            return "expired"
        return "active"
