"""What every service does around a write: check the whole row, save, and tell what changed."""

import ipaddress
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models
from django.db.models.fields.files import FieldFile

from engine.errors import InvalidInput

SECRET_FIELDS = frozenset({"digest"})


def plain(value: object) -> Any:
    """A field's value as JSON can hold it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, models.Model):
        return str(value)
    if isinstance(value, (FieldFile, ipaddress.IPv4Address, ipaddress.IPv6Address)):
        return str(value)
    return value


def facts(row: models.Model, fields: Iterable[str] | None = None) -> dict[str, Any]:
    """The row's own fields, foreign keys by their text, secrets left out."""
    names = fields or [field.name for field in row._meta.concrete_fields]
    return {
        name: plain(getattr(row, name))
        for name in names
        if name not in SECRET_FIELDS and name != "id"
    }


def difference(
    before: dict[str, Any], after: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Only what differs, on both sides."""
    changed = [name for name in after if before.get(name) != after[name]]
    return {name: before.get(name) for name in changed}, {name: after[name] for name in changed}


def check(row: models.Model) -> None:
    """Validate fields, uniqueness and constraints; raise `InvalidInput` for the first fault."""
    try:
        row.full_clean()
    except ValidationError as error:
        for name, messages in error.message_dict.items():
            shown = type(row).__name__.lower() if name == NON_FIELD_ERRORS else name
            value = None if name == NON_FIELD_ERRORS else plain(getattr(row, name, None))
            raise InvalidInput(shown, value, " ".join(messages)) from None
        raise
