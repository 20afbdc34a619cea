"""What tenants used: sums of the recorded minutes, by tenant, by model, by local period.

Minutes are stored in UTC and selected by [start, end); a *period* (hour, day) is cut in the
reader's time zone, so that "Tuesday" means their Tuesday, of 23 or 25 hours where clocks
change. However a range is cut, the periods add up to its total.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

from django.db import connection

Period = Literal["minute", "hour", "day", "month"]
PERIODS: tuple[Period, ...] = ("minute", "hour", "day", "month")
COUNTS = ("requests", "served", "prompt_tokens", "completion_tokens")


@dataclass(slots=True, frozen=True, kw_only=True)
class UsageTotals:
    """The sum of a range."""

    requests: int = 0
    served: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, frozen=True, kw_only=True)
class UsagePoint(UsageTotals):
    """One period of one tenant and model. `start` is in the time zone that was asked for."""

    start: datetime
    tenant: str
    model: str


def usage_totals(
    start: datetime, end: datetime, *, tenant: str | None = None, model: str | None = None
) -> UsageTotals:
    where, given = _where(start, end, tenant, model)
    sums = ", ".join(f"coalesce(sum({name}), 0)::bigint" for name in COUNTS)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sums} FROM fleet_usageminute WHERE {where}", given)
        counts = dict(zip(COUNTS, cursor.fetchone(), strict=True))
        cursor.execute(
            "SELECT entry.key, sum(entry.value::bigint)::bigint"
            " FROM fleet_usageminute, jsonb_each_text(refused) AS entry"
            f" WHERE {where} GROUP BY 1 ORDER BY 1",
            given,
        )
        return UsageTotals(**counts, refused=dict(cursor.fetchall()))


def usage_by_period(
    start: datetime,
    end: datetime,
    period: Period,
    zone: ZoneInfo,
    *,
    tenant: str | None = None,
    model: str | None = None,
) -> list[UsagePoint]:
    """One row a (local period, tenant, model) that has any use, oldest first."""
    where, given = _where(start, end, tenant, model)
    given |= {"period": period, "zone": zone.key}
    # The one place that may name a zone: what the reader's zone makes of a UTC minute.
    cut = "date_trunc(%(period)s, minute, %(zone)s)"
    sums = ", ".join(f"sum({name})::bigint" for name in COUNTS)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {cut}, tenant, model, {sums} FROM fleet_usageminute"
            f" WHERE {where} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
            given,
        )
        rows = cursor.fetchall()
        cursor.execute(
            f"SELECT {cut}, tenant, model, entry.key, sum(entry.value::bigint)::bigint"
            " FROM fleet_usageminute, jsonb_each_text(refused) AS entry"
            f" WHERE {where} GROUP BY 1, 2, 3, 4 ORDER BY 4",
            given,
        )
        refused: dict[tuple[Any, ...], dict[str, int]] = {}
        for *key, code, count in cursor.fetchall():
            refused.setdefault(tuple(key), {})[code] = count
    return [
        UsagePoint(
            start=at.astimezone(zone),
            tenant=who,
            model=what,
            refused=refused.get((at, who, what), {}),
            **dict(zip(COUNTS, counts, strict=True)),
        )
        for at, who, what, *counts in rows
    ]


def _where(
    start: datetime, end: datetime, tenant: str | None, model: str | None
) -> tuple[str, dict[str, Any]]:
    clauses = ["minute >= %(start)s", "minute < %(end)s"]
    given: dict[str, Any] = {"start": start, "end": end}
    for name, value in (("tenant", tenant), ("model", model)):
        if value is not None:
            clauses.append(f"{name} = %({name})s")
            given[name] = value
    return " AND ".join(clauses), given
