"""Decision markers on time charts: when something was decided, drawn where it shows.

Apps register sources in `ready()`. A source answers (start, end, model or None) with markers.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TypedDict

LONGEST = 40


class Marker(TypedDict):
    t: int  # Unix milliseconds
    text: str


Source = Callable[[datetime, datetime, str | None], list[Marker]]
_sources: list[Source] = []


def register(source: Source) -> None:
    _sources.append(source)


def between(start: datetime, end: datetime, model: str | None = None) -> list[Marker]:
    """The markers of a span, the newest where there are too many to read."""
    found = [marker for source in _sources for marker in source(start, end, model)]
    return sorted(found, key=lambda marker: marker["t"])[-LONGEST:]
