"""What is served: models and their versions."""

from django.db import models

from engine.types import Strategy
from fleet.models.names import valid_name
from fleet.models.notify import configuration_triggers


class Model(models.Model):
    """A model as its users name it. Its SLO steers admission and is drawn on every chart."""

    STRATEGIES = [(strategy.value, strategy.value.replace("_", " ")) for strategy in Strategy]

    name = models.CharField(max_length=128, unique=True, validators=[valid_name])
    strategy = models.CharField(
        max_length=32,
        choices=STRATEGIES,
        default=Strategy.PEAK_EWMA.value,
        help_text="How one of its replicas is chosen for a batch.",
    )
    slo_ms = models.FloatField(
        "SLO (ms)",
        default=1000.0,
        help_text="The p95 that admission defends: end to end; of a stream, to its first token;"
        " of a written answer, for each hundred tokens.",
    )
    description = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                name="model_slo_positive",
                condition=models.Q(slo_ms__gt=0, slo_ms__lte=600_000),
                violation_error_message="The SLO must be above 0 and at most 600000 ms.",
            ),
            models.CheckConstraint(
                name="model_strategy_known",
                condition=models.Q(strategy__in=[strategy.value for strategy in Strategy]),
            ),
            models.CheckConstraint(name="model_name_given", condition=~models.Q(name="")),
        ]
        triggers = configuration_triggers(ignoring=("description",))

    def __str__(self) -> str:
        return self.name


class ModelVersion(models.Model):
    """One version of a model. Registering one never gives it traffic: the split does."""

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="versions")
    name = models.CharField(max_length=128, validators=[valid_name])
    notes = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["model__name", "created_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["model", "name"], name="version_unique_in_model"),
            models.CheckConstraint(name="version_name_given", condition=~models.Q(name="")),
        ]
        triggers = configuration_triggers(ignoring=("notes",))

    def __str__(self) -> str:
        return f"{self.model.name} {self.name}"
