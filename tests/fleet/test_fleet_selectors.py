"""Totals equal the plain sum of the rows, for any range, time zone and number of pages."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from engine.stats.histogram import LogHistogram
from fleet.models import UsageMinute, WindowStat
from fleet.selectors import (
    last_seen,
    usage_by_period,
    usage_totals,
    window_points,
    window_rows,
    window_totals,
)
from fleet.services import note_alive

pytestmark = pytest.mark.django_db
START = datetime(2026, 10, 24, 12, tzinfo=UTC)  # clocks in Europe go back the night after


@pytest.fixture
def usage(db: None) -> list[UsageMinute]:
    rng = random.Random(7)
    rows = [
        UsageMinute(
            gateway=gateway,
            tenant=tenant,
            model="llama",
            minute=START + timedelta(minutes=minute),
            requests=rng.randrange(50),
            served=rng.randrange(40),
            refused={"quota_exceeded": rng.randrange(5)} if rng.random() < 0.5 else {},
            prompt_tokens=rng.randrange(9000),
            completion_tokens=rng.randrange(9000),
        )
        for minute in range(48 * 60)
        for gateway in ("g1", "g2")
        for tenant in ("acme", "globex")
        if rng.random() < 0.3
    ]
    UsageMinute.objects.bulk_create(rows, batch_size=2000)
    return rows


def total(rows: list[UsageMinute]) -> dict[str, object]:
    refused: Counter[str] = Counter()
    for row in rows:
        refused.update(row.refused)
    return {
        "requests": sum(row.requests for row in rows),
        "served": sum(row.served for row in rows),
        "prompt_tokens": sum(row.prompt_tokens for row in rows),
        "completion_tokens": sum(row.completion_tokens for row in rows),
        "refused": dict(refused),
    }


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu", "Pacific/Apia"])
@pytest.mark.parametrize("period", ["hour", "day"])
def test_the_periods_of_any_time_zone_add_up_to_the_rows(
    usage: list[UsageMinute], zone: str, period: str
) -> None:
    rng = random.Random(zone)
    for _ in range(4):
        start = START + timedelta(minutes=rng.randrange(1400))
        end = start + timedelta(minutes=rng.randrange(1, 1400))
        rows = [row for row in usage if start <= row.minute < end and row.tenant == "acme"]
        points = usage_by_period(start, end, period, ZoneInfo(zone), tenant="acme")  # type: ignore[arg-type]
        for name in ("requests", "served", "prompt_tokens", "completion_tokens"):
            assert sum(getattr(p, name) for p in points) == sum(getattr(r, name) for r in rows)
        whole = usage_totals(start, end, tenant="acme")
        assert {name: getattr(whole, name) for name in total(rows)} == total(rows)
        assert sum((Counter(p.refused) for p in points), Counter()) == Counter(whole.refused)


def test_the_day_on_which_clocks_go_back_has_twenty_five_hours(usage: list[UsageMinute]) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    points = usage_by_period(START, START + timedelta(days=2), "day", berlin, tenant="acme")
    assert [point.start.isoformat() for point in points] == [
        "2026-10-24T00:00:00+02:00",
        "2026-10-25T00:00:00+02:00",
        "2026-10-26T00:00:00+01:00",
    ]
    sunday = [r for r in usage if r.minute.astimezone(berlin).day == 25 and r.tenant == "acme"]
    assert points[1].requests == sum(row.requests for row in sunday)
    span = max(r.minute for r in sunday) - min(r.minute for r in sunday)
    assert span > timedelta(hours=24)


@pytest.fixture
def windows(db: None) -> list[WindowStat]:
    rng = random.Random(11)
    rows = []
    for second in range(1200):
        for gateway in ("g1", "g2"):
            latency = LogHistogram()
            for _ in range(rng.randrange(4)):
                latency.record(rng.lognormvariate(4, 0.5))
            rows.append(
                WindowStat(
                    gateway=gateway,
                    window_start=START + timedelta(seconds=second),
                    model="llama",
                    version=rng.choice(["v1", "v2"]),
                    arm="baseline",
                    served=latency.count,
                    refused={"overloaded": 1} if rng.random() < 0.2 else {},
                    latency={str(k): n for k, n in latency.to_sparse().items()},
                    busy_ms=rng.random(),
                )
            )
    WindowStat.objects.bulk_create(rows, batch_size=2000)
    return rows


def test_window_sums_equal_the_rows_and_their_quantile_is_that_of_the_merged_histogram(
    windows: list[WindowStat],
) -> None:
    start, end = START + timedelta(seconds=100), START + timedelta(seconds=1100)
    found = {t.version: t for t in window_totals(start, end, model="llama")}
    for version in ("v1", "v2"):
        rows = [r for r in windows if start <= r.window_start < end and r.version == version]
        merged = LogHistogram()
        for row in rows:
            merged.merge(LogHistogram.from_sparse(row.latency))
        assert found[version].served == sum(row.served for row in rows)
        assert found[version].windows == len(rows)
        assert found[version].refused == {"overloaded": sum(len(row.refused) for row in rows)}
        assert found[version].latency == merged.to_sparse()
        assert found[version].latency_ms(0.95) == merged.quantile(0.95)
        assert found[version].busy_ms == pytest.approx(sum(row.busy_ms for row in rows))
        assert found[version].assigned is None


def test_steps_add_up_to_the_range_and_empty_steps_are_absent(windows: list[WindowStat]) -> None:
    end = START + timedelta(hours=2)
    points = window_points(START, end, timedelta(seconds=60), model="llama")
    assert sum(p.served for p in points) == sum(row.served for row in windows)
    assert {p.start for p in points} == {START + timedelta(minutes=n) for n in range(20)}
    assert window_totals(end, end + timedelta(hours=1)) == []


def test_the_judge_reads_the_rows_in_order(windows: list[WindowStat]) -> None:
    times = [row.window_start for row in window_rows("llama", start=START, versions=["v1"])]
    assert times == sorted(times)
    assert len(times) == sum(row.version == "v1" for row in windows)


def test_a_process_that_was_never_heard_of_is_unknown_not_dead() -> None:
    assert last_seen("beat") is None
    note_alive("beat", host="a")
    note_alive("beat", host="b")
    seen = last_seen("beat")
    assert seen is not None
    assert seen.details == {"host": "b"}
    assert seen.age_s < 5
