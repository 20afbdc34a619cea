"""The past behind the charts: the same totals as plain SQL, for each range, in any time zone."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.utils import timezone

from engine.stats.histogram import LogHistogram
from fleet.dashboard import history
from fleet.dashboard.pages import tenants
from fleet.dashboard.ranges import RANGES, Range
from fleet.models import UsageMinute, WindowStat
from tests.browser import past

pytestmark = pytest.mark.django_db

ZONES = ("UTC", "Asia/Kathmandu", "America/St_Johns")  # +05:45, -03:30


@contextmanager
def zone(name: str) -> Iterator[None]:
    """Django, and its session with PostgreSQL, in this time zone."""

    def become(database: str | None) -> None:
        connection.settings_dict["TIME_ZONE"] = database
        for known in ("timezone", "timezone_name"):
            connection.__dict__.pop(known, None)
        connection.ensure_timezone()

    before = connection.settings_dict["TIME_ZONE"]
    try:
        become(name)
        with timezone.override(name):
            yield
    finally:
        become(before)


@pytest.fixture
def day(db: None) -> datetime:
    """A recorded day that ends a few seconds into a minute, its last minutes by two gateways."""
    end = timezone.now()
    past.windows(end)
    rows = WindowStat.objects.filter(window_start__gte=end - timedelta(minutes=4))
    WindowStat.objects.bulk_create(_of_another_gateway(row) for row in rows)
    return end


def _of_another_gateway(row: WindowStat) -> WindowStat:
    row.pk, row.gateway = None, "gateway-b"
    return row


def summed(start: datetime, end: datetime, what: str, **where: str) -> int:
    clause = "".join(f" AND {name} = %({name})s" for name in where)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT coalesce(sum({what}), 0)::bigint FROM fleet_windowstat"
            f" WHERE window_start >= %(start)s AND window_start < %(end)s{clause}",
            {"start": start, "end": end, **where},
        )
        (total,) = cursor.fetchone()
    return int(total)


def test_every_range_adds_up_to_what_sql_sums_in_any_time_zone(day: datetime) -> None:
    for name in ZONES:
        with zone(name):
            for choice in RANGES.values():
                bins_add_up(choice, day)
                versions_add_up(choice)


def bins_add_up(choice: Range, now: datetime) -> None:
    start, end = history.bounds(choice, now)
    assert end - start == timedelta(seconds=choice.seconds)
    rows = history.bins(start, end, choice.bin_s)
    assert rows
    assert all(start <= row.start < end for row in rows)
    for name in ("served", "faults", "misses", "sheds", "items"):
        assert sum(getattr(row, name) for row in rows) == summed(start, end, name), choice
    assert sum(sum(row.refused.values()) for row in rows) == summed(start, end, "sheds")
    stored = WindowStat.objects.filter(window_start__gte=start, window_start__lt=end)
    latencies = stored.values_list("latency", flat=True)
    answered = sum(sum(latency.values()) for latency in latencies)
    assert sum(sum(row.latency.values()) for row in rows) == answered


def versions_add_up(choice: Range) -> None:
    """What the table beneath a model's charts shows."""
    start, end = history.bounds(choice)
    totals = history.version_totals(choice, "llama-3-8b")
    assert set(totals) == {"v1", "v2"}
    for version, total in totals.items():
        expected = summed(start, end, "served", model="llama-3-8b", version=version)
        assert total.served == expected > 0


def test_a_chart_has_at_most_six_hundred_points_and_gaps_where_nothing_was_recorded(
    day: datetime,
) -> None:
    WindowStat.objects.filter(window_start__gte=day - timedelta(hours=3)).delete()
    for choice in RANGES.values():
        series = history.traffic_series(choice)
        assert len(series["t"]) == choice.points <= 600
        assert series["goodput"][-1] is None
    assert any(value for value in history.traffic_series(RANGES["24h"])["goodput"])


def test_a_quantile_of_a_bin_is_that_of_its_rows_together_and_no_mean_of_quantiles(
    day: datetime,
) -> None:
    choice = RANGES["6h"]
    series = history.traffic_series(choice)
    at = datetime.fromtimestamp(series["t"][10] / 1000, tz=UTC)
    whole = LogHistogram()
    for row in WindowStat.objects.filter(
        window_start__gte=at, window_start__lt=at + timedelta(seconds=choice.bin_s)
    ):
        whole.merge(LogHistogram.from_sparse({int(k): v for k, v in row.latency.items()}))
    p95 = whole.quantile(0.95)
    assert p95 is not None
    assert series["p95"][10] == round(p95, 2)


@pytest.mark.parametrize("name", ZONES)
def test_a_tenants_chart_adds_up_to_what_sql_sums(name: str) -> None:
    past.configuration()
    past.usage(timezone.now())
    with zone(name):
        for choice in RANGES.values():
            usage = tenants.chart_series(choice, {"id": "acme"})["usage"]
            end = timezone.now().replace(second=0, microsecond=0)
            start = datetime.fromtimestamp(usage["t"][0] / 1000, tz=UTC)
            assert end - start == timedelta(seconds=max(choice.seconds, 3600))
            rows = UsageMinute.objects.filter(tenant="acme", minute__gte=start, minute__lt=end)
            width_min = (usage["t"][1] - usage["t"][0]) / 60_000
            exact = sum(rows.values_list("served", flat=True))
            rounding = 0.005 * width_min * len(usage["t"])  # two decimals a point
            assert abs(sum(usage["served"]) * width_min - exact) <= rounding
            assert exact > 0
