"""The one range control: how far back charts look, and how wide a point is.

A range names itself in the query string (`?range=1h`), so a link shows what its sender saw.
The width of a bin keeps every trace under 600 points.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Range:
    key: str
    title: str
    seconds: int
    bin_s: int
    refresh_s: int  # how often a page asks again; the live range is streamed instead

    @property
    def live(self) -> bool:
        return self.key == LIVE

    @property
    def points(self) -> int:
        return self.seconds // self.bin_s


LIVE = "5m"
RANGES = {
    choice.key: choice
    for choice in (
        Range("5m", "Live 5 min", 300, 1, 0),
        Range("15m", "15 min", 900, 5, 10),
        Range("1h", "1 h", 3600, 10, 20),
        Range("6h", "6 h", 21_600, 60, 60),
        Range("24h", "24 h", 86_400, 180, 120),
    )
}


def chosen(params: Mapping[str, str]) -> Range:
    """The range that the query string asks for; the live one where it asks for none known."""
    return RANGES.get(params.get("range", LIVE), RANGES[LIVE])
