"""The sign of life that background processes leave in the database."""

from typing import Any

from django.utils import timezone

from fleet.models import Heartbeat


def note_alive(name: str, **details: Any) -> None:
    """Say that the process `name` ("beat", "gateway:<id>") lives now."""
    Heartbeat.objects.update_or_create(
        name=name, defaults={"seen_at": timezone.now(), "details": details}
    )
