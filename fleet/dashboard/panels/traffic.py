"""The points of the live charts: one a second, and the last five minutes to begin with.

Series that are all zero (a refusal code that never occurs) are left out: a stack of ten
empty areas costs the browser as much as ten full ones.
"""

from typing import Any

from engine.errors import RefusalCode
from fleet.live.rings import point_of
from fleet.live.scene import Scene

REFUSED = tuple(f"refused.{code}" for code in RefusalCode)
SERIES = (
    "offered",
    "goodput",
    "late",
    "failed",
    *REFUSED,
    "p50",
    "p95",
    "p99",
    "slo",
    "limit",
    "in_flight",
    "queued",
)


def chart_point(scene: Scene) -> dict[str, Any]:
    """This second's values. Empty while nobody speaks, which draws a gap."""
    if scene.state["status"] != "live":
        return {}
    point = point_of(scene.state)
    known = {key: round(point[key] or 0.0, 3) for key in SERIES if point.get(key) is not None}
    return {"t": scene.at_ms} | {
        key: value for key, value in known.items() if value or key not in REFUSED
    }


def chart_series(scene: Scene) -> dict[str, Any]:
    """The rings as arrays, oldest first."""
    series: dict[str, Any] = {"t": list(scene.rings.times_ms)}
    for key in SERIES:
        values = scene.rings.series(key)
        if key in REFUSED and not any(values):
            continue
        series[key] = [None if value is None else round(value, 3) for value in values]
    return series
