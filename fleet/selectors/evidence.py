"""What the judge of a rollout reads: each arm's sums in a span, by even and odd seconds.

Only one-second rows count, so that a span cut at whole seconds is summed exactly; rows are
rolled up after an hour, long after any window was judged. `sessions` is the mean over rows,
not the sum: the same sessions come back in every second and at every gateway, and only as
many as one row saw are known to be independent.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection

from fleet.models.evidence import LIVE_RESOLUTION_S


@dataclass(slots=True, kw_only=True)
class ArmSums:
    """One version's arm in a span, in its even (0) or odd (1) seconds."""

    version: str
    arm: str
    half: int
    served: int
    faults: int
    sheds: int
    misses: int
    batches: int
    items: int
    tokens: int
    busy_ms: float
    assigned: int | None
    sessions: float | None
    execution: dict[int, int] = field(default_factory=dict)
    latency: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, frozen=True, kw_only=True)
class Second:
    """What one version did in one second, over all gateways."""

    at: datetime
    batches: int
    items: int
    tokens: int
    busy_ms: float


_HALF = "(extract(epoch FROM window_start)::bigint %% 2)::int"
_WHERE = """
    model = %(model)s AND resolution_s = %(resolution)s
    AND window_start >= %(start)s AND window_start < %(end)s
"""


def arm_sums(model: str, start: datetime, end: datetime) -> list[ArmSums]:
    """Every (version, arm, half) that has any row in [start, end)."""
    given = _given(model, start, end)
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT version, arm, {_HALF}, sum(served)::bigint, sum(faults)::bigint,
                   sum(sheds)::bigint, sum(misses)::bigint, sum(batches)::bigint,
                   sum(items)::bigint, sum(prompt_tokens + completion_tokens)::bigint,
                   sum(busy_ms)::float8, sum(assigned)::bigint, avg(sessions)::float8
            FROM fleet_windowstat WHERE {_WHERE} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
            """,
            given,
        )
        names = ArmSums.__slots__[:13]
        found = [ArmSums(**dict(zip(names, row, strict=True))) for row in cursor.fetchall()]
        by_key = {(sums.version, sums.arm, sums.half): sums for sums in found}
        cursor.execute(
            f"""
            SELECT version, arm, {_HALF}, 'execution', entry.key, sum(entry.value::bigint)::bigint
            FROM fleet_windowstat, jsonb_each_text(execution) AS entry
            WHERE {_WHERE} GROUP BY 1, 2, 3, 5
            UNION ALL
            SELECT version, arm, {_HALF}, 'latency', entry.key, sum(entry.value::bigint)::bigint
            FROM fleet_windowstat, jsonb_each_text(latency) AS entry
            WHERE {_WHERE} GROUP BY 1, 2, 3, 5
            """,
            given,
        )
        for version, arm, half, kind, bucket, count in cursor.fetchall():
            getattr(by_key[(version, arm, half)], kind)[int(bucket)] = count
    return found


def offered(model: str, start: datetime, end: datetime) -> int:
    """How many requests the model's arms were offered in [start, end), refused ones included."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT coalesce(sum(greatest(coalesce(assigned, 0), served + faults + sheds + misses)),
                            0)::bigint
            FROM fleet_windowstat WHERE {_WHERE}
            """,
            _given(model, start, end),
        )
        return int(cursor.fetchone()[0])


def seconds_of(model: str, version: str, start: datetime, end: datetime) -> list[Second]:
    """What the version's replicas were busy with, second by second."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT window_start, sum(batches)::bigint, sum(items)::bigint,
                   sum(prompt_tokens + completion_tokens)::bigint, sum(busy_ms)::float8
            FROM fleet_windowstat WHERE {_WHERE} AND version = %(version)s
            GROUP BY 1 HAVING sum(batches) > 0 ORDER BY 1
            """,
            _given(model, start, end) | {"version": version},
        )
        return [
            Second(at=at, batches=batches, items=items, tokens=tokens, busy_ms=busy_ms)
            for at, batches, items, tokens, busy_ms in cursor.fetchall()
        ]


def _given(model: str, start: datetime, end: datetime) -> dict[str, Any]:
    return {"model": model, "start": start, "end": end, "resolution": LIVE_RESOLUTION_S}
