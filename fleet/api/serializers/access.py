"""Tokens, and who the caller is."""

from rest_framework import serializers

from fleet.api.fields import ReasonField, StrictSerializer, StrictText


class TokenSerializer(StrictSerializer):
    prefix = StrictText(read_only=True)
    kind = serializers.ChoiceField(["user", "fleet"])
    name = StrictText()
    user = StrictText(source="user.username", allow_null=True, default=None)
    createdAt = serializers.DateTimeField(source="created_at")
    expiresAt = serializers.DateTimeField(source="expires_at", allow_null=True)
    revokedAt = serializers.DateTimeField(source="revoked_at", allow_null=True)
    lastUsedAt = serializers.DateTimeField(source="last_used_at", allow_null=True)


class IssuedTokenSerializer(TokenSerializer):
    token = StrictText(help_text="Shown this once.")


class TokenCreateSerializer(StrictSerializer):
    kind = serializers.ChoiceField(["user", "fleet"])
    name = StrictText(max_length=64)
    expiresAt = serializers.DateTimeField(
        source="expires_at", required=False, allow_null=True, default=None
    )
    reason = ReasonField()


class WhoSerializer(StrictSerializer):
    user = StrictText(allow_null=True)
    role = serializers.ChoiceField(["none", "viewer", "operator", "admin"])
    token = StrictText(allow_null=True)
