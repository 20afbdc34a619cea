"""Who serves: one process (or one external server) that holds one model version."""

from django.db import models
from django.utils import timezone

from engine.types import Protocol, WorkUnit
from fleet.models.catalog import ModelVersion
from fleet.models.names import valid_name
from fleet.models.notify import configuration_triggers


class Replica(models.Model):
    """A replica as it registered itself, or as an operator wrote it down.

    `heartbeat_at` is None for one that was written down: nobody expects it to report, and
    the sweep leaves it alone. Health is not stored here: each gateway probes for itself.

    `draining` is what gateways heed, whoever asked for it. `drain_ordered` is an operator's
    wish: it outlives the replica's restarts, whose own drain ends with the process.
    """

    replica_id = models.CharField(max_length=128, primary_key=True, validators=[valid_name])
    version = models.ForeignKey(ModelVersion, on_delete=models.PROTECT, related_name="replicas")
    address = models.CharField(max_length=255, help_text="http://host:port, without a path")
    protocol = models.CharField(
        max_length=16,
        choices=[(protocol.value, protocol.value) for protocol in Protocol],
        default=Protocol.BATCH.value,
    )
    weight = models.FloatField(default=1.0)
    accelerator = models.CharField(max_length=64, blank=True, default="")
    runtime = models.CharField(max_length=64, blank=True, default="")
    work_unit = models.CharField(
        max_length=32,
        choices=[(unit.value, unit.value.replace("_", " ")) for unit in WorkUnit],
        default=WorkUnit.TOKENS.value,
    )
    max_batch_size = models.PositiveIntegerField(default=32)
    max_batch_tokens = models.PositiveIntegerField(default=16_384)
    max_concurrency = models.PositiveIntegerField(default=1)
    draining = models.BooleanField(default=False)
    drain_ordered = models.BooleanField(default=False, db_default=False, editable=False)
    loaded_models = models.JSONField(default=list, blank=True)
    gpu_memory_ratio = models.FloatField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    registered_at = models.DateTimeField(default=timezone.now)
    heartbeat_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["replica_id"]
        indexes = [models.Index(fields=["heartbeat_at"], name="replica_heartbeat")]
        constraints = [
            models.CheckConstraint(
                name="replica_weight_positive",
                condition=models.Q(weight__gt=0, weight__lte=1000),
                violation_error_message="The weight must be above 0 and at most 1000.",
            ),
            models.CheckConstraint(
                name="replica_batch_size_in_range",
                condition=models.Q(max_batch_size__gte=1, max_batch_size__lte=4096),
                violation_error_message="The batch size must be from 1 to 4096.",
            ),
            models.CheckConstraint(
                name="replica_batch_tokens_positive",
                condition=models.Q(max_batch_tokens__gte=1),
                violation_error_message="The batch tokens must be at least 1.",
            ),
            models.CheckConstraint(
                name="replica_concurrency_in_range",
                condition=models.Q(max_concurrency__gte=1, max_concurrency__lte=65_536),
                violation_error_message="The concurrency must be from 1 to 65536.",
            ),
            models.CheckConstraint(
                name="replica_gpu_memory_is_a_ratio",
                condition=models.Q(gpu_memory_ratio__isnull=True)
                | models.Q(gpu_memory_ratio__gte=0, gpu_memory_ratio__lte=1),
                violation_error_message="The GPU memory ratio must be from 0 to 1.",
            ),
            models.CheckConstraint(
                name="replica_protocol_known",
                condition=models.Q(protocol__in=[protocol.value for protocol in Protocol]),
            ),
            models.CheckConstraint(
                name="replica_address_http",
                condition=models.Q(address__startswith="http://")
                | models.Q(address__startswith="https://"),
                violation_error_message="The address must begin with http:// or https://.",
            ),
        ]
        triggers = configuration_triggers(ignoring=("heartbeat_at",))

    def __str__(self) -> str:
        return self.replica_id
