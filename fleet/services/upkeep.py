"""What time does to rows: windows are rolled up, old rows are forgotten, dead replicas swept.

After an hour the one-second windows of a minute become one row of a minute: the same sums,
bucket by bucket, a sixtieth of the rows. The minute's rows are removed in the transaction
that adds them up, so a reader sees either, never both, and a run that is cut off or that
two workers start at once changes nothing. Rows that arrive late are added to their minute.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone

from engine.errors import UnknownName
from fleet.models import Heartbeat, RecorderBatch, Replica, UsageMinute, WindowStat
from fleet.models.evidence import ROLLED_UP_RESOLUTION_S
from fleet.services.replicas import remove_replica

LIVE_FOR = timedelta(hours=1)
MINUTES_A_TRANSACTION = 30
RECORDER_BATCHES_FOR = timedelta(days=7)
HEARTBEATS_FOR = timedelta(days=1)

ADDED = (
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
    "busy_ms",
)
ADDED_WHERE_KNOWN = ("assigned", "sessions")
MERGED = ("refused", "execution", "latency")


def roll_up_windows(now: datetime | None = None) -> int:
    """Roll up every full minute older than an hour. Returns how many rows became fewer."""
    newest = ((now or timezone.now()) - LIVE_FOR).replace(second=0, microsecond=0)
    gone = 0
    while done := _roll_up_some(newest):
        gone += done
    return gone


@transaction.atomic
def _roll_up_some(newest: datetime) -> int:
    live = WindowStat.objects.filter(
        resolution_s__lt=ROLLED_UP_RESOLUTION_S, window_start__lt=newest
    )
    first = live.order_by("window_start").values_list("window_start", flat=True).first()
    if first is None:
        return 0
    start = _minute(first)
    end = min(newest, start + timedelta(minutes=MINUTES_A_TRANSACTION))
    rows = list(
        live.filter(window_start__gte=start, window_start__lt=end)
        .select_for_update(skip_locked=True)
        .order_by("gateway", "model", "version", "arm", "window_start")
    )
    if not rows:  # another worker holds them
        return 0
    WindowStat.objects.filter(pk__in=[row.pk for row in rows]).delete()
    made = 0
    for key, members in groupby(rows, key=_key):
        made += _add(key, members)
    return len(rows) - made


def _minute(instant: datetime) -> datetime:
    return instant.replace(second=0, microsecond=0)


def _key(row: WindowStat) -> tuple[str, str, str, str, datetime]:
    return row.gateway, row.model, row.version, row.arm, _minute(row.window_start)


def _add(key: tuple[str, str, str, str, datetime], members: Iterable[WindowStat]) -> int:
    """Add the windows to their minute's row. Returns 1 where the row is new."""
    gateway, model, version, arm, minute = key
    row, is_new = WindowStat.objects.select_for_update().get_or_create(
        gateway=gateway,
        model=model,
        version=version,
        arm=arm,
        window_start=minute,
        resolution_s=ROLLED_UP_RESOLUTION_S,
    )
    merged = {name: Counter[str](getattr(row, name)) for name in MERGED}
    for member in members:
        for name in ADDED:
            setattr(row, name, getattr(row, name) + getattr(member, name))
        for name in ADDED_WHERE_KNOWN:
            setattr(row, name, _sum_where_known(getattr(row, name), getattr(member, name)))
        for name in MERGED:
            merged[name].update(getattr(member, name))
    for name, counts in merged.items():
        setattr(row, name, dict(counts))
    row.save()
    return int(is_new)


def _sum_where_known(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return left + right


def sweep_replicas(now: datetime | None = None) -> list[str]:
    """Forget replicas that reported once and have been silent for HALCYON_REPLICA_FORGET_S.

    Silence for seconds is the gateways' business, who probe; this is about processes that
    will not come back. One that does registers again.
    """
    forget_s = settings.HALCYON_REPLICA_FORGET_S
    oldest = (now or timezone.now()) - timedelta(seconds=forget_s)
    swept = []
    for replica_id in Replica.objects.filter(heartbeat_at__lt=oldest).values_list("pk", flat=True):
        try:
            remove_replica(
                replica_id, actor="upkeep", reason=f"no heartbeat for {forget_s / 3600:g} h"
            )
        except UnknownName:
            continue
        swept.append(replica_id)
    return swept


def forget_old_rows(now: datetime | None = None) -> dict[str, int]:
    """Delete what is older than its keeping time. Returns the counts by table."""
    now = now or timezone.now()
    old = {
        "windows": WindowStat.objects.filter(
            window_start__lt=now - timedelta(days=settings.HALCYON_KEEP_WINDOWS_DAYS)
        ),
        "usage": UsageMinute.objects.filter(
            minute__lt=now - timedelta(days=settings.HALCYON_KEEP_USAGE_DAYS)
        ),
        "recorder batches": RecorderBatch.objects.filter(written_at__lt=now - RECORDER_BATCHES_FOR),
        "heartbeats": Heartbeat.objects.filter(seen_at__lt=now - HEARTBEATS_FOR),
        "sessions": Session.objects.filter(expire_date__lt=now),
    }
    return {name: rows.delete()[0] for name, rows in old.items()}
