"""The last five minutes, second by second, as this web process saw them.

Charts of the live range and every sparkline start from these rings, so that a first paint
shows movement at once. They are a view, not a record: after a restart they begin empty, and
longer ranges come from PostgreSQL. A second in which no gateway spoke leaves no point: a
gap is drawn as a gap.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

from fleet.live.objectives import busiest_slo_ms
from fleet.live.state import LiveState
from fleet.live.tracks import Tracks

SECONDS = 300
ROW_POINTS = 60  # of the sparkline in a table row

Point = dict[str, float | None]


class Rings:
    """One ring of fleet-wide points, a short one for each replica, version and tenant, and what
    each replica did."""

    def __init__(self) -> None:
        self.times_ms: deque[int] = deque(maxlen=SECONDS)
        self._points: deque[Point] = deque(maxlen=SECONDS)
        self._rows: dict[str, deque[float | None]] = {}
        self.tracks = Tracks()

    def __len__(self) -> int:
        return len(self._points)

    def add(self, at_ms: int, state: LiveState) -> None:
        """Remember one second. Stale and empty states are not data."""
        if state["status"] != "live":
            return
        self.times_ms.append(at_ms)
        self._points.append(point_of(state))
        self.tracks.add(at_ms, state)
        seen: set[str] = set()
        for key, value in _row_values(state):
            seen.add(key)
            ring = self._rows.get(key)
            if ring is None:
                ring = self._rows[key] = deque(maxlen=ROW_POINTS)
            ring.append(value)
        for key in self._rows.keys() - seen:
            del self._rows[key]

    def series(self, name: str, last: int = SECONDS) -> list[float | None]:
        """One number over time, oldest first."""
        points = list(self._points)[-last:]
        return [point.get(name) for point in points]

    def row(self, kind: str, name: str) -> list[float | None]:
        """The sparkline of one table row: kind is replica, version, queue or tenant."""
        return list(self._rows.get(f"{kind}/{name}", ()))


def point_of(state: LiveState) -> Point:
    """The numbers of one second that are worth a line."""
    point: Point = {}
    traffic, admission = state["traffic"], state["admission"]
    if traffic is not None:
        refused = traffic["refusedPerS"]
        point |= {
            "offered": traffic["offeredPerS"],
            "goodput": traffic["goodputPerS"],
            "late": traffic["latePerS"],
            "failed": traffic["failedPerS"],
            "cancelled": traffic["cancelledPerS"],
            "refused": sum(refused.values()),
            "goodput_ratio": traffic["goodputRatio"],
            "p50": traffic["p50Ms"],
            "p95": traffic["p95Ms"],
            "p99": traffic["p99Ms"],
        }
        point |= {f"refused.{code}": value for code, value in refused.items()}
    if admission is not None:
        point |= {
            "limit": admission["limit"],
            "in_flight": admission["inFlight"],
        }
    point["slo"] = busiest_slo_ms(state)
    point["open_breakers"] = sum(r["breaker"]["state"] == "open" for r in state["replicas"])
    point["queued"] = sum(queue["queued"] for queue in state["queues"])
    return point


def _row_values(state: LiveState) -> Iterator[tuple[str, Any]]:
    for replica in state["replicas"]:
        yield f"replica/{replica['replicaId']}", replica["p95Ms"]
    for model in state["models"]:
        for version in model["versions"]:
            yield f"version/{model['model']}/{version['version']}", version["ratePerS"]
    for queue in state["queues"]:
        yield f"queue/{queue['model']}/{queue['version']}", queue["queued"]
    for tenant in state["tenants"]:
        yield f"tenant/{tenant['tenant']}", tenant["ratePerS"]
