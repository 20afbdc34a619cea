"""How the audit reads."""

from rest_framework import serializers

from fleet.api.fields import StrictSerializer


class AuditEventSerializer(StrictSerializer):
    seq = serializers.IntegerField()
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    origin = serializers.CharField()
    action = serializers.CharField()
    kind = serializers.CharField()
    subject = serializers.CharField()
    model = serializers.CharField()
    reason = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)
    details = serializers.JSONField()
    previousHash = serializers.CharField(source="previous_hash")
    hash = serializers.CharField()


class VerificationSerializer(StrictSerializer):
    intact = serializers.BooleanField()
    events = serializers.IntegerField()
    decisions = serializers.IntegerField()
    fault = serializers.CharField(allow_null=True, help_text="the first row that does not fit")
