"""Models, their versions and their split."""

from typing import Any

from rest_framework import serializers

from engine.types import Strategy
from fleet.api.fields import (
    FiniteFloat,
    ReasonField,
    StrictBoolean,
    StrictSerializer,
    StrictText,
    name_field,
)


class SplitSerializer(StrictSerializer):
    """Which version serves, and which share of the sessions the canary gets."""

    baseline = StrictText(source="baseline.name", read_only=True)
    canary = StrictText(source="canary.name", read_only=True, allow_null=True, default=None)
    canaryPercent = FiniteFloat(source="canary_percent", read_only=True)
    shadow = StrictBoolean(read_only=True)
    updatedAt = serializers.DateTimeField(source="updated_at", read_only=True)


class SplitWriteSerializer(StrictSerializer):
    baseline = StrictText(max_length=128)
    canary = StrictText(max_length=128, required=False, allow_null=True, default=None)
    canaryPercent = FiniteFloat(
        source="canary_percent", min_value=0, max_value=100, required=False, default=0.0
    )
    shadow = StrictBoolean(required=False, default=False)
    reason = ReasonField()


class VersionSerializer(StrictSerializer):
    name = name_field()
    notes = StrictText(required=False, allow_blank=True, default="", max_length=10_000)
    createdAt = serializers.DateTimeField(source="created_at", read_only=True)
    replicas = serializers.SerializerMethodField()

    def get_replicas(self, version: Any) -> list[str]:
        return [replica.replica_id for replica in version.replicas.all()]


class VersionWriteSerializer(StrictSerializer):
    name = name_field()
    notes = StrictText(required=False, allow_blank=True, default="", max_length=10_000)
    reason = ReasonField()


class ModelSerializer(StrictSerializer):
    name = name_field()
    strategy = serializers.ChoiceField([strategy.value for strategy in Strategy])
    sloMs = FiniteFloat(source="slo_ms")
    description = StrictText()
    createdAt = serializers.DateTimeField(source="created_at", read_only=True)
    split = SplitSerializer(read_only=True, allow_null=True, default=None)
    versions = VersionSerializer(many=True, read_only=True)


class ModelChangeSerializer(StrictSerializer):
    strategy = serializers.ChoiceField([strategy.value for strategy in Strategy], required=False)
    sloMs = FiniteFloat(source="slo_ms", min_value=0.001, max_value=600_000, required=False)
    description = StrictText(required=False, allow_blank=True, max_length=10_000)
    reason = ReasonField()


class ModelCreateSerializer(ModelChangeSerializer):
    name = name_field()
