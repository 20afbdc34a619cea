"""The past behind the charts: recorded windows, summed into bins by PostgreSQL.

Bins are cut from the epoch by `date_bin`, in UTC, so that no time zone changes a total and two
neighbouring looks cut alike. Counts add up and histograms add up; a quantile is computed from
the summed buckets of its bin. A bin without rows is a gap, not a zero.

`traffic_series` and `by_arm_series` are for charts (rates a second), `version_totals` for tables
(counts): the totals equal the plain SQL sum over the same range, whatever the bins.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from engine.stats.histogram import LogHistogram
from fleet.dashboard.ranges import Range

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
COUNTS = ("served", "faults", "sheds", "misses", "cancelled", "client_errors", "batches", "items")


@dataclass(slots=True)
class Bin:
    """The sum of one bin, over every gateway; `key` is an arm or a version where asked for."""

    start: datetime
    key: str
    served: int = 0
    faults: int = 0
    sheds: int = 0
    misses: int = 0
    cancelled: int = 0
    client_errors: int = 0
    batches: int = 0
    items: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    latency: dict[int, int] = field(default_factory=dict)
    execution: dict[int, int] = field(default_factory=dict)

    @property
    def offered(self) -> int:
        return (
            self.served
            + self.faults
            + self.sheds
            + self.misses
            + self.cancelled
            + self.client_errors
        )

    def quantile_ms(self, q: float) -> float | None:
        return LogHistogram.from_sparse(self.latency).quantile(q)


def bounds(choice: Range, now: datetime | None = None) -> tuple[datetime, datetime]:
    """[start, end) of a range, aligned to its bins. The bin that is still filling is left out."""
    step = timedelta(seconds=choice.bin_s)
    moment = now or timezone.now()
    end = EPOCH + (moment - EPOCH) // step * step
    return end - timedelta(seconds=choice.seconds), end


def bins(
    start: datetime,
    end: datetime,
    step_s: int,
    *,
    by: str = "",
    histograms: tuple[str, ...] = ("latency",),
    **where: str,
) -> list[Bin]:
    """The bins of [start, end), oldest first; `by` splits them by arm, version or model."""
    if by not in ("", "arm", "version", "model"):
        raise ValueError(f"cannot split windows by {by!r}")
    key = by or "''"
    clause = "window_start >= %(start)s AND window_start < %(end)s"
    for name in where:
        clause += f" AND {name} = %({name})s"
    cut = "date_bin(%(step)s, window_start, %(epoch)s)"
    given: dict[str, Any] = {"start": start, "end": end, "step": timedelta(seconds=step_s), **where}
    given["epoch"] = EPOCH
    sums = ", ".join(f"sum({name})::bigint" for name in COUNTS)
    found: dict[tuple[datetime, str], Bin] = {}
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {cut}, {key}, {sums} FROM fleet_windowstat WHERE {clause}"
            " GROUP BY 1, 2 ORDER BY 1, 2",
            given,
        )
        for at, name, *counts in cursor.fetchall():
            found[at, name] = Bin(at, name, **dict(zip(COUNTS, counts, strict=True)))
        for column in ("refused", *histograms):
            cursor.execute(
                f"SELECT {cut}, {key}, entry.key, sum(entry.value::bigint)::bigint"
                f" FROM fleet_windowstat, jsonb_each_text({column}) AS entry WHERE {clause}"
                " GROUP BY 1, 2, 3",
                given,
            )
            for at, name, bucket, count in cursor.fetchall():
                into = getattr(found[at, name], column)
                into[bucket if column == "refused" else int(bucket)] = count
    return list(found.values())


def milliseconds(moment: datetime) -> int:
    """Unix time in milliseconds, as the browser counts."""
    return round(moment.timestamp() * 1000)


def traffic_series(choice: Range, **where: str) -> dict[str, Any]:
    """The overview's series for a range that is not streamed."""
    start, end = bounds(choice)
    found = {row.start: row for row in bins(start, end, choice.bin_s, **where)}  # type: ignore[arg-type]
    series: dict[str, list[float | None]] = {
        name: [] for name in ("offered", "goodput", "late", "failed", "p50", "p95", "p99")
    }
    codes = sorted({code for row in found.values() for code in row.refused})
    for code in codes:
        series[f"refused.{code}"] = []
    times: list[int] = []
    for index in range(choice.points):
        at = start + timedelta(seconds=index * choice.bin_s)
        row = found.get(at)
        times.append(milliseconds(at))
        per_s = _rates(row, choice.bin_s)
        for name in ("offered", "goodput", "late", "failed"):
            series[name].append(per_s.get(name))
        for code in codes:
            series[f"refused.{code}"].append(
                None if row is None else round(row.refused.get(code, 0) / choice.bin_s, 3)
            )
        for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            value = row.quantile_ms(q) if row is not None else None
            series[name].append(None if value is None else round(value, 2))
    return {"t": times, **series}


def _rates(row: Bin | None, seconds: int) -> Mapping[str, float]:
    if row is None:
        return {}
    return {
        "offered": round(row.offered / seconds, 3),
        "goodput": round(row.served / seconds, 3),
        "late": round(row.misses / seconds, 3),
        "failed": round(row.faults / seconds, 3),
    }


def by_arm_series(choice: Range, model: str) -> dict[str, Any]:
    """Both arms of a model over time: p95, rate and errors, baseline beside canary."""
    step = max(choice.bin_s, 5)  # a second of a canary's 1 % holds no quantile
    start, end = bounds(Range(choice.key, "", choice.seconds, step, 0))
    rows = bins(start, end, step, by="arm", model=model)
    found = {(row.start, row.key): row for row in rows}
    times: list[int] = []
    series: dict[str, list[float | None]] = {}
    for arm in ("baseline", "canary"):
        for name in ("p95", "rate", "errors"):
            series[f"{arm}.{name}"] = []
    for index in range(choice.seconds // step):
        at = start + timedelta(seconds=index * step)
        times.append(milliseconds(at))
        for arm in ("baseline", "canary"):
            row = found.get((at, arm))
            p95 = row.quantile_ms(0.95) if row else None
            offered = row.offered if row else 0
            series[f"{arm}.p95"].append(None if p95 is None else round(p95, 2))
            series[f"{arm}.rate"].append(None if row is None else round(offered / step, 3))
            series[f"{arm}.errors"].append(
                round(100.0 * row.faults / offered, 3) if row and offered else None
            )
    return {"t": times, **series}


def version_totals(choice: Range, model: str) -> dict[str, Bin]:
    """The whole range summed by version, for the table beneath the charts."""
    start, end = bounds(choice)
    rows = bins(start, end, choice.seconds * 2, by="version", model=model)
    totals: dict[str, Bin] = {}
    for row in rows:
        known = totals.get(row.key)
        if known is None:
            totals[row.key] = row
            continue
        for name in COUNTS:
            setattr(known, name, getattr(known, name) + getattr(row, name))
        for name in ("refused", "latency"):
            into = getattr(known, name)
            for bucket, count in getattr(row, name).items():
                into[bucket] = into.get(bucket, 0) + count
    return totals
