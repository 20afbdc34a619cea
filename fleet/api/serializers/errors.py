"""The one envelope of every refusal."""

from rest_framework import serializers

from fleet.api.fields import StrictSerializer, StrictText


class ErrorBodySerializer(StrictSerializer):
    code = StrictText()
    message = StrictText()
    details = serializers.DictField(required=False)


class ErrorSerializer(StrictSerializer):
    error = ErrorBodySerializer()
