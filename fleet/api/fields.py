"""Serializers that take nothing they do not know, and text without the bytes nobody can store."""

from typing import Any

from rest_framework import serializers

from fleet.models.names import NAME_PATTERN, SLUG_PATTERN

INTEGER_MAX = 2**31 - 1


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses unknown fields by name: a misspelt quota must not be silently no quota."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            unknown = sorted(set(data) - {str(name) for name in self.fields})
            if unknown:
                known = ", ".join(name for name, f in self.fields.items() if not f.read_only)
                raise serializers.ValidationError({unknown[0]: [f"unknown field; known: {known}"]})
        return super().to_internal_value(data)


class ReasonField(serializers.CharField):
    """Why somebody did it: kept in the history."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **{"required": False, "allow_blank": True, "default": "", "max_length": 500, **options}
        )


class FiniteFloat(serializers.FloatField):
    """JSON has no NaN and no infinity, though Python's parser takes them."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool):
            self.fail("invalid")
        value = super().to_internal_value(data)
        if value != value or value in (float("inf"), float("-inf")):
            self.fail("invalid")
        return value


class StrictInteger(serializers.IntegerField):
    """Whole numbers only: no booleans, no text."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, (bool, str)):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictBoolean(serializers.BooleanField):
    """true or false, not "yes", 1 or "on"."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class LocalInstant(serializers.DateTimeField):
    """An instant in the zone it already has, rather than in the server's."""

    def to_representation(self, value: Any) -> str:
        return str(value.isoformat())


class StrictText(serializers.CharField):
    """Text, not a number that could be written as text."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


def name_field(**options: Any) -> serializers.RegexField:
    return serializers.RegexField(NAME_PATTERN.replace(r"\Z", "$"), max_length=128, **options)


def slug_field(**options: Any) -> serializers.RegexField:
    return serializers.RegexField(SLUG_PATTERN.replace(r"\Z", "$"), max_length=64, **options)


def count_field(**options: Any) -> StrictInteger:
    return StrictInteger(**{"min_value": 1, "max_value": INTEGER_MAX, **options})


class ReasonSerializer(StrictSerializer):
    reason = ReasonField()
