"""What the gateways recorded, summed over gateways and time by the database.

Counts add up, histograms add up bucket by bucket, and quantiles are computed from the sum:
never from other quantiles. A sum over nothing is a row that is not there, not a zero.

`window_totals` sums a range into one row a (model, version, arm); `window_points` the same
by steps of time, for charts; `window_rows` are the raw rows, oldest first, for the judge.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from engine.stats.histogram import LogHistogram
from fleet.models import WindowStat

COUNTS = (
    "served",
    "faults",
    "sheds",
    "misses",
    "cancelled",
    "client_errors",
    "batches",
    "items",
    "prompt_tokens",
    "completion_tokens",
)


@dataclass(slots=True, frozen=True, kw_only=True)
class WindowTotals:
    """A sum of windows. `start` is that of the step, or of the range."""

    start: datetime
    model: str
    version: str
    arm: str
    served: int
    faults: int
    sheds: int
    misses: int
    cancelled: int
    client_errors: int
    batches: int
    items: int
    prompt_tokens: int
    completion_tokens: int
    busy_ms: float
    assigned: int | None
    sessions: float | None
    windows: int
    refused: Mapping[str, int] = field(default_factory=dict)
    execution: Mapping[int, int] = field(default_factory=dict)
    latency: Mapping[int, int] = field(default_factory=dict)

    @property
    def offered(self) -> int:
        """Everything that arrived for this arm."""
        return (
            self.served + self.faults + self.sheds + self.misses + self.cancelled
        ) + self.client_errors

    def latency_ms(self, quantile: float) -> float | None:
        return LogHistogram.from_sparse(self.latency).quantile(quantile)

    def execution_ratio(self, quantile: float) -> float | None:
        return LogHistogram.from_sparse(self.execution).quantile(quantile)


_SUMS = """
    SELECT {step} AS step, model, version, arm,
           {counts}, sum(busy_ms)::float8 AS busy_ms, sum(assigned)::bigint AS assigned,
           sum(sessions)::float8 AS sessions, count(*) AS windows
    FROM fleet_windowstat WHERE {where} GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
"""

_BUCKETS = """
    SELECT {step} AS step, model, version, arm, entry.key, sum(entry.value::bigint)::bigint
    FROM fleet_windowstat, jsonb_each_text({column}) AS entry
    WHERE {where} GROUP BY 1, 2, 3, 4, 5
"""


def window_totals(
    start: datetime,
    end: datetime,
    *,
    model: str | None = None,
    version: str | None = None,
    histograms: bool = True,
) -> list[WindowTotals]:
    """One sum a (model, version, arm) that has any window in [start, end)."""
    return _sum(start, end, None, model, version, histograms)


def window_points(
    start: datetime,
    end: datetime,
    step: timedelta,
    *,
    model: str | None = None,
    version: str | None = None,
    histograms: bool = True,
) -> list[WindowTotals]:
    """The same by steps counted from `start`. Steps without windows are not there."""
    return _sum(start, end, step, model, version, histograms)


def window_rows(
    model: str, *, start: datetime, end: datetime | None = None, versions: list[str] | None = None
) -> Iterator[WindowStat]:
    """The rows of one model as the gateways wrote them, oldest first."""
    rows = WindowStat.objects.filter(model=model, window_start__gte=start)
    if end is not None:
        rows = rows.filter(window_start__lt=end)
    if versions is not None:
        rows = rows.filter(version__in=versions)
    return rows.order_by("window_start", "gateway", "version", "arm").iterator(chunk_size=2000)


def _sum(
    start: datetime,
    end: datetime,
    step: timedelta | None,
    model: str | None,
    version: str | None,
    histograms: bool,
) -> list[WindowTotals]:
    where = ["window_start >= %(start)s", "window_start < %(end)s"]
    given: dict[str, Any] = {"start": start, "end": end, "step": step}
    for name, value in (("model", model), ("version", version)):
        if value is not None:
            where.append(f"{name} = %({name})s")
            given[name] = value
    parts = {
        "where": " AND ".join(where),
        "step": (
            "%(start)s::timestamptz"
            if step is None
            else "date_bin(%(step)s, window_start, %(start)s)"
        ),
    }
    counts = ", ".join(f"sum({name})::bigint AS {name}" for name in COUNTS)
    with connection.cursor() as cursor:
        cursor.execute(_SUMS.format(counts=counts, **parts), given)
        names = [column.name for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        buckets: dict[str, dict[tuple[Any, ...], dict[str, int]]] = {}
        for column in ("refused", *(("execution", "latency") if histograms else ())):
            cursor.execute(_BUCKETS.format(column=column, **parts), given)
            found = buckets.setdefault(column, {})
            for *key, bucket, count in cursor.fetchall():
                found.setdefault(tuple(key), {})[bucket] = count
    totals = []
    for row in rows:
        key = (row["step"], row["model"], row["version"], row["arm"])
        totals.append(
            WindowTotals(
                start=row.pop("step"),
                refused=buckets["refused"].get(key, {}),
                execution=_by_number(buckets.get("execution", {}).get(key, {})),
                latency=_by_number(buckets.get("latency", {}).get(key, {})),
                **row,
            )
        )
    return totals


def _by_number(buckets: Mapping[str, int]) -> dict[int, int]:
    return {int(bucket): count for bucket, count in buckets.items()}
