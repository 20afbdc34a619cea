"""Which background processes have been heard of, and how long ago."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from fleet.models import Heartbeat


@dataclass(slots=True, frozen=True)
class Presence:
    """A process and its last sign of life."""

    name: str
    seen_at: datetime
    age_s: float
    details: dict[str, Any]


def presence(prefix: str = "") -> list[Presence]:
    """Every process whose name begins with `prefix` ("beat", "gateway:", ...)."""
    now = timezone.now()
    return [
        Presence(row.name, row.seen_at, (now - row.seen_at).total_seconds(), row.details)
        for row in Heartbeat.objects.filter(name__startswith=prefix)
    ]


def last_seen(name: str) -> Presence | None:
    """One process, or None where it was never heard of."""
    return next((found for found in presence(name) if found.name == name), None)
