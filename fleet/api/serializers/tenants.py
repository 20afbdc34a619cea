"""Tenants, their limits and their keys."""

from typing import Any

from rest_framework import serializers

from fleet.api.fields import (
    FiniteFloat,
    ReasonField,
    StrictBoolean,
    StrictInteger,
    StrictSerializer,
    StrictText,
    count_field,
    slug_field,
)


class QuotaSerializer(StrictSerializer):
    """A tenant's limits. null means that the limit does not apply."""

    requestsPerMinute = count_field(source="requests_per_minute", required=False, allow_null=True)
    requestsBurst = count_field(source="requests_burst", required=False, allow_null=True)
    tokensPerMinute = count_field(source="tokens_per_minute", required=False, allow_null=True)
    tokensBurst = count_field(source="tokens_burst", required=False, allow_null=True)
    maxInFlight = count_field(source="max_in_flight", required=False, allow_null=True)


class TenantSerializer(QuotaSerializer):
    name = StrictText(read_only=True)
    priority = StrictInteger(read_only=True)
    weight = FiniteFloat(read_only=True)
    enabled = StrictBoolean(read_only=True)
    createdAt = serializers.DateTimeField(source="created_at", read_only=True)


class TenantChangeSerializer(QuotaSerializer):
    priority = StrictInteger(min_value=0, max_value=3, required=False)
    weight = FiniteFloat(min_value=0.001, max_value=1000, required=False)
    enabled = StrictBoolean(required=False)
    reason = ReasonField()


class TenantCreateSerializer(TenantChangeSerializer):
    name = slug_field()


class QuotaChangeSerializer(QuotaSerializer):
    reason = ReasonField()


class KeySerializer(StrictSerializer):
    prefix = StrictText(read_only=True)
    name = StrictText()
    status = serializers.SerializerMethodField()
    createdAt = serializers.DateTimeField(source="created_at")
    expiresAt = serializers.DateTimeField(source="expires_at", allow_null=True)
    revokedAt = serializers.DateTimeField(source="revoked_at", allow_null=True)
    lastUsedAt = serializers.DateTimeField(source="last_used_at", allow_null=True)
    mayChooseVersion = StrictBoolean(source="may_choose_version")

    def get_status(self, key: Any) -> str:
        return str(key.status())


class IssuedKeySerializer(KeySerializer):
    key = StrictText(help_text="Shown this once.")


class KeyCreateSerializer(StrictSerializer):
    name = StrictText(max_length=64)
    expiresAt = serializers.DateTimeField(
        source="expires_at", required=False, allow_null=True, default=None
    )
    mayChooseVersion = StrictBoolean(source="may_choose_version", required=False, default=False)
    reason = ReasonField()
