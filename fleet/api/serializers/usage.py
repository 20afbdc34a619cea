"""What tenants used."""

from rest_framework import serializers

from fleet.api.fields import LocalInstant, StrictInteger, StrictSerializer, StrictText


class UsagePointSerializer(StrictSerializer):
    start = LocalInstant()
    tenant = StrictText()
    model = StrictText()
    requests = StrictInteger()
    served = StrictInteger()
    refused = serializers.DictField(child=StrictInteger())
    promptTokens = StrictInteger(source="prompt_tokens")
    completionTokens = StrictInteger(source="completion_tokens")


class UsageTotalsSerializer(StrictSerializer):
    requests = StrictInteger()
    served = StrictInteger()
    refused = serializers.DictField(child=StrictInteger())
    promptTokens = StrictInteger(source="prompt_tokens")
    completionTokens = StrictInteger(source="completion_tokens")


class UsagePageSerializer(StrictSerializer):
    count = StrictInteger()
    next = StrictText(allow_null=True)
    previous = StrictText(allow_null=True)
    totals = UsageTotalsSerializer()
    results = UsagePointSerializer(many=True)
