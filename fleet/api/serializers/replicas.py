"""Replicas, as they register and as they are listed."""

from rest_framework import serializers

from engine.types import Protocol, WorkUnit
from fleet.api.fields import (
    FiniteFloat,
    StrictBoolean,
    StrictInteger,
    StrictSerializer,
    StrictText,
    count_field,
    name_field,
)


class ReplicaSerializer(StrictSerializer):
    replicaId = StrictText(source="replica_id")
    modelId = StrictText(source="version.model.name")
    version = StrictText(source="version.name")
    address = StrictText()
    protocol = serializers.ChoiceField([protocol.value for protocol in Protocol])
    weight = FiniteFloat()
    accelerator = StrictText()
    runtime = StrictText()
    workUnit = StrictText(source="work_unit")
    maxBatchSize = StrictInteger(source="max_batch_size")
    maxBatchTokens = StrictInteger(source="max_batch_tokens")
    maxConcurrency = StrictInteger(source="max_concurrency")
    draining = StrictBoolean()
    loadedModels = serializers.ListField(source="loaded_models", child=StrictText())
    gpuMemoryRatio = FiniteFloat(source="gpu_memory_ratio", allow_null=True)
    startedAt = serializers.DateTimeField(source="started_at", allow_null=True)
    registeredAt = serializers.DateTimeField(source="registered_at")
    heartbeatAt = serializers.DateTimeField(source="heartbeat_at", allow_null=True)


class RegistrationSerializer(StrictSerializer):
    """What a replica says of itself; all of it, each time."""

    replicaId = name_field(source="replica_id")
    modelId = name_field(source="model")
    version = name_field()
    address = StrictText(max_length=255, help_text="http(s)://host:port")
    protocol = serializers.ChoiceField(
        [protocol.value for protocol in Protocol], required=False, default=Protocol.BATCH.value
    )
    weight = FiniteFloat(min_value=0.001, max_value=1000, required=False, default=1.0)
    accelerator = StrictText(max_length=64, required=False, allow_blank=True, default="")
    runtime = StrictText(max_length=64, required=False, allow_blank=True, default="")
    workUnit = serializers.ChoiceField(
        [unit.value for unit in WorkUnit],
        source="work_unit",
        required=False,
        default=WorkUnit.TOKENS.value,
    )
    maxBatchSize = count_field(source="max_batch_size", max_value=4096, required=False, default=32)
    maxBatchTokens = count_field(source="max_batch_tokens", required=False, default=16_384)
    maxConcurrency = count_field(
        source="max_concurrency",
        max_value=65_536,
        required=False,
        allow_null=True,
        default=None,
        help_text="batches at once (1); of an OpenAI server the most that is learned (256)",
    )
    loadedModels = serializers.ListField(
        source="loaded_models",
        child=StrictText(max_length=128),
        max_length=1000,
        required=False,
        default=list,
    )
    gpuMemoryRatio = FiniteFloat(
        source="gpu_memory_ratio",
        min_value=0,
        max_value=1,
        required=False,
        allow_null=True,
        default=None,
    )
    startedAt = serializers.DateTimeField(
        source="started_at", required=False, allow_null=True, default=None
    )
    draining = serializers.BooleanField(required=False, allow_null=True, default=None)
