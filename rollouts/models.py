"""Rollouts, their decisions, and the audit: history is append-only, by database triggers.

Models and versions are kept by name: history outlives what it speaks of. What a rollout was
started with (versions, policy, salt) can never change; where it is now can. A `Decision`
carries everything the judge saw, and is linked to the one before by its digest; an
`AuditEvent` is linked likewise to the event before it, whatever that was about.
"""

import pgtrigger
from django.db import models

from engine.rollout.verdict import Act, Phase, Reason
from fleet.models.names import valid_name

ACTIVE = (Phase.PENDING, Phase.PROGRESSING, Phase.PAUSED, Phase.INCONCLUSIVE)
ACTIVE_VALUES = [phase.value for phase in ACTIVE]


def append_only() -> list[pgtrigger.Trigger]:
    """Rows are added and never changed, not even by SQL typed into a console.

    `SET halcyon.may_truncate = on` is how the test suite empties its own database.
    """
    return [
        pgtrigger.Protect(name="append_only", operation=pgtrigger.Update | pgtrigger.Delete),
        pgtrigger.Trigger(
            name="never_truncated",
            operation=pgtrigger.Truncate,
            when=pgtrigger.Before,
            level=pgtrigger.Statement,
            func="""
                IF current_setting('halcyon.may_truncate', true) IS DISTINCT FROM 'on' THEN
                    RAISE EXCEPTION 'pgtrigger: % is append-only', TG_TABLE_NAME;
                END IF;
                RETURN NULL;
            """,
        ),
    ]


class Rollout(models.Model):
    """One attempt to replace a model's version. At most one a model is under way."""

    PHASES = [(phase.value, phase.value.replace("_", " ")) for phase in Phase]

    model = models.CharField(max_length=128, validators=[valid_name])
    baseline = models.CharField(max_length=128, validators=[valid_name])
    canary = models.CharField(max_length=128, validators=[valid_name])
    salt = models.CharField(max_length=64)
    shadow = models.BooleanField(default=False)
    policy = models.JSONField(help_text="as given; see rollouts.policy")
    interval_s = models.PositiveIntegerField(default=30, help_text="length of an evidence window")
    started_at = models.DateTimeField()
    started_by = models.CharField(max_length=150)
    reason = models.TextField(blank=True, default="")

    phase = models.CharField(max_length=16, choices=PHASES, default=Phase.PROGRESSING.value)
    step = models.PositiveSmallIntegerField(default=0)
    percent = models.FloatField(default=0.0)
    state = models.JSONField(default=dict, help_text="what the judge remembers")
    resumed = models.BooleanField(default=False, help_text="since the last judged window")
    window_start = models.DateTimeField(help_text="where the next evidence window begins")
    due_at = models.DateTimeField(null=True, help_text="when that window can be judged")
    judged_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    superseded_by = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="superseded"
    )

    class Meta:
        ordering = ["-started_at", "-id"]
        indexes = [
            models.Index(fields=["phase", "due_at"], name="rollout_due"),
            models.Index(fields=["model", "-started_at"], name="rollout_by_model"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["model"],
                condition=models.Q(phase__in=ACTIVE_VALUES),
                name="one_active_rollout_a_model",
                violation_error_message="This model has a rollout under way.",
            ),
            models.CheckConstraint(
                name="rollout_versions_differ",
                condition=~models.Q(baseline=models.F("canary")),
                violation_error_message="The canary must differ from the baseline.",
            ),
            models.CheckConstraint(
                name="rollout_percent_in_range",
                condition=models.Q(percent__gte=0, percent__lte=100),
            ),
            models.CheckConstraint(
                name="rollout_interval_positive", condition=models.Q(interval_s__gte=1)
            ),
        ]
        triggers = [
            pgtrigger.ReadOnly(
                name="what_was_started_stays",
                fields=[
                    "model",
                    "baseline",
                    "canary",
                    "salt",
                    "shadow",
                    "policy",
                    "interval_s",
                    "started_at",
                    "started_by",
                ],
            ),
            pgtrigger.Protect(name="kept_for_ever", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return f"{self.model}: {self.baseline} to {self.canary} (#{self.pk})"

    @property
    def is_active(self) -> bool:
        return self.phase in ACTIVE_VALUES


class Decision(models.Model):
    """One judged window: what the judge saw, what it said, and what followed."""

    rollout = models.ForeignKey(Rollout, on_delete=models.PROTECT, related_name="decisions")
    seq = models.PositiveIntegerField(help_text="number of the window in its rollout")
    at = models.DateTimeField()
    window_start = models.DateTimeField()
    window_end = models.DateTimeField()
    act = models.CharField(max_length=16, choices=[(act.value, act.value) for act in Act])
    reason = models.CharField(max_length=32, choices=[(r.value, r.value) for r in Reason])
    step = models.PositiveSmallIntegerField()
    percent_before = models.FloatField()
    percent = models.FloatField()
    text = models.TextField()
    counts = models.JSONField(help_text="the window as the judge saw it")
    facts = models.JSONField(help_text="the capacity as the judge saw it")
    calibration = models.JSONField(
        null=True, help_text="the calibration that came into force with this window"
    )
    resumed = models.BooleanField(default=False, help_text="an operator resumed it before")
    verdict = models.JSONField(help_text="the verdict with its arithmetic")
    previous_digest = models.CharField(max_length=64, blank=True, default="")
    digest = models.CharField(max_length=64)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["-at"], name="decision_by_time")]
        constraints = [
            models.UniqueConstraint(fields=["rollout", "seq"], name="window_judged_once"),
            models.UniqueConstraint(fields=["rollout", "window_start"], name="span_judged_once"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.rollout} window {self.seq}: {self.name}"

    @property
    def name(self) -> str:
        """`advance`, `promote`, `hold:no_data`, `rollback:latency`."""
        held = self.act in (Act.HOLD, Act.ROLLBACK)
        return f"{self.act}:{self.reason}" if held else self.act


class AuditEvent(models.Model):
    """Who did what, when, from where and why, with what it was before and after."""

    seq = models.PositiveBigIntegerField(unique=True)
    at = models.DateTimeField()
    actor = models.CharField(max_length=200)
    origin = models.CharField(max_length=64, blank=True, default="", help_text="address or host")
    action = models.CharField(max_length=64)
    kind = models.CharField(max_length=32)
    subject = models.CharField(max_length=255)
    model = models.CharField(max_length=128, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    details = models.JSONField(default=dict)
    previous_hash = models.CharField(max_length=64, blank=True, default="")
    hash = models.CharField(max_length=64)

    class Meta:
        ordering = ["-seq"]
        indexes = [
            models.Index(fields=["-at"], name="audit_by_time"),
            models.Index(fields=["kind", "subject"], name="audit_by_subject"),
            models.Index(fields=["model", "-seq"], name="audit_by_model"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"#{self.seq} {self.action} {self.subject} by {self.actor}"
