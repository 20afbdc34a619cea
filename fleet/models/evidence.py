"""What happened: additive rows that the gateways' recorders write, idempotently.

Names instead of foreign keys: history outlives what it speaks of. Histograms are stored as
sparse buckets, so that rows of several gateways and hours add up exactly; quantiles are
computed where they are shown.
"""

from django.db import models

from engine.types import Arm

LIVE_RESOLUTION_S = 1
ROLLED_UP_RESOLUTION_S = 60


class WindowStat(models.Model):
    """One version's arm at one gateway in one window."""

    gateway = models.CharField(max_length=64)
    window_start = models.DateTimeField()
    resolution_s = models.PositiveSmallIntegerField(default=LIVE_RESOLUTION_S)
    model = models.CharField(max_length=128)
    version = models.CharField(max_length=128)
    arm = models.CharField(max_length=16, choices=[(arm.value, arm.value) for arm in Arm])
    served = models.PositiveBigIntegerField(default=0)
    faults = models.PositiveBigIntegerField(default=0)
    sheds = models.PositiveBigIntegerField(default=0)
    misses = models.PositiveBigIntegerField(default=0)
    cancelled = models.PositiveBigIntegerField(default=0)
    client_errors = models.PositiveBigIntegerField(default=0)
    refused = models.JSONField(default=dict, help_text="count by refusal code")
    execution = models.JSONField(
        default=dict, help_text="sparse histogram of execution time / predicted time"
    )
    latency = models.JSONField(default=dict, help_text="sparse histogram of end-to-end ms")
    batches = models.PositiveBigIntegerField(default=0)
    items = models.PositiveBigIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    busy_ms = models.FloatField(default=0.0, help_text="device time of the batches")
    assigned = models.PositiveBigIntegerField(
        null=True, help_text="requests that the splitter sent to this arm; null: not counted"
    )
    sessions = models.FloatField(null=True, help_text="estimate of distinct sessions among them")

    class Meta:
        ordering = ["window_start", "gateway"]
        constraints = [
            models.UniqueConstraint(
                fields=["gateway", "window_start", "resolution_s", "model", "version", "arm"],
                name="window_once",
            ),
        ]
        indexes = [
            models.Index(fields=["model", "window_start"], name="window_by_model"),
            models.Index(fields=["resolution_s", "window_start"], name="window_by_age"),
        ]

    def __str__(self) -> str:
        return f"{self.model} {self.version} {self.arm} at {self.window_start:%F %T}"


class UsageMinute(models.Model):
    """One tenant's use of one model through one gateway in one minute."""

    gateway = models.CharField(max_length=64)
    tenant = models.CharField(max_length=64)
    model = models.CharField(max_length=128)
    minute = models.DateTimeField()
    requests = models.PositiveBigIntegerField(default=0)
    served = models.PositiveBigIntegerField(default=0)
    refused = models.JSONField(default=dict, help_text="count by refusal code")
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ["minute", "tenant", "model", "gateway"]
        verbose_name_plural = "usage minutes"
        constraints = [
            models.UniqueConstraint(
                fields=["gateway", "tenant", "model", "minute"], name="usage_once"
            ),
        ]
        indexes = [
            models.Index(fields=["tenant", "minute"], name="usage_by_tenant"),
            models.Index(fields=["minute"], name="usage_by_minute"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant} {self.model} at {self.minute:%F %H:%M}"


class RecorderBatch(models.Model):
    """Which batches a gateway has written: what makes a repeated write count once."""

    gateway = models.CharField(max_length=64)
    sequence = models.BigIntegerField()
    written_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["gateway", "sequence"], name="batch_once"),
        ]
        indexes = [models.Index(fields=["written_at"], name="batch_by_age")]
        verbose_name_plural = "recorder batches"

    def __str__(self) -> str:
        return f"{self.gateway} #{self.sequence}"
