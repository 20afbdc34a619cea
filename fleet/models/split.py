"""How a model's traffic is divided between its baseline and, perhaps, a canary.

The split is *fleet* state; a rollout is a policy that changes it. So gateways need to know
nothing of rollouts. Two things that a check constraint cannot say, since they look at
another table, are said by a trigger: both versions belong to the model.
"""

import pgtrigger
from django.db import models

from fleet.models.catalog import Model, ModelVersion
from fleet.models.notify import configuration_triggers


class TrafficSplit(models.Model):
    """One row a model: `canary_percent` of its sessions go to the canary."""

    model = models.OneToOneField(Model, on_delete=models.CASCADE, related_name="split")
    baseline = models.ForeignKey(ModelVersion, on_delete=models.PROTECT, related_name="+")
    canary = models.ForeignKey(
        ModelVersion, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    canary_percent = models.FloatField(default=0.0)
    salt = models.CharField(max_length=64, blank=True, default="")
    shadow = models.BooleanField(
        default=False, help_text="Copy the canary's share to it and throw its answers away."
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["model__name"]
        constraints = [
            models.CheckConstraint(
                name="split_percent_in_range",
                condition=models.Q(canary_percent__gte=0, canary_percent__lte=100),
                violation_error_message="The canary's share must be from 0 to 100 percent.",
            ),
            models.CheckConstraint(
                name="split_share_needs_canary",
                condition=models.Q(canary__isnull=False) | models.Q(canary_percent=0),
                violation_error_message="A share above 0 needs a canary version.",
            ),
            models.CheckConstraint(
                name="split_versions_differ",
                condition=models.Q(canary__isnull=True) | ~models.Q(canary=models.F("baseline")),
                violation_error_message="The canary must differ from the baseline.",
            ),
        ]
        triggers = [
            *configuration_triggers(ignoring=("updated_at",)),
            pgtrigger.Trigger(
                name="versions_belong_to_model",
                operation=pgtrigger.Insert | pgtrigger.Update,
                when=pgtrigger.Before,
                func="""
                    IF EXISTS (
                        SELECT 1 FROM fleet_modelversion
                        WHERE id IN (NEW.baseline_id, NEW.canary_id) AND model_id <> NEW.model_id
                    ) THEN
                        RAISE EXCEPTION 'a split may only name versions of its own model'
                            USING ERRCODE = 'check_violation',
                                  CONSTRAINT = 'split_versions_belong_to_model';
                    END IF;
                    RETURN NEW;
                """,
            ),
        ]

    def __str__(self) -> str:
        if self.canary is None:
            return f"{self.model}: all to {self.baseline.name}"
        return f"{self.model}: {self.canary_percent:g} % to {self.canary.name}"
