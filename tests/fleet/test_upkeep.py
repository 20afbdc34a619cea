"""Rolling up changes no sum; sweeping takes only what reported once and fell silent."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from fleet.models import Heartbeat, RecorderBatch, Replica, UsageMinute, WindowStat
from fleet.selectors import last_seen, window_points, window_totals
from fleet.services import Registration, register_replica, upkeep
from fleet.tasks import beat_heartbeat

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 5, 1, 12, 0, 30, tzinfo=UTC)


def window(at: datetime, rng: random.Random, gateway: str = "g1") -> WindowStat:
    return WindowStat(
        gateway=gateway,
        window_start=at,
        model="llama",
        version="v1",
        arm="baseline",
        served=rng.randrange(9),
        busy_ms=rng.random(),
        assigned=rng.choice([None, 3]),
        refused={"overloaded": rng.randrange(3)},
        latency={str(rng.randrange(200, 220)): rng.randrange(5)},
    )


@pytest.fixture
def windows(db: None) -> None:
    rng = random.Random(5)
    WindowStat.objects.bulk_create(
        window(NOW - timedelta(seconds=n), rng, gateway)
        for n in range(0, 2 * 3600, 5)
        for gateway in ("g1", "g2")
    )


def test_rolling_up_changes_no_sum_and_leaves_the_last_hour_alone(windows: None) -> None:
    start, end = NOW - timedelta(hours=3), NOW + timedelta(hours=1)
    before = window_totals(start, end)[0]
    upkeep.roll_up_windows(NOW)
    after = window_totals(start, end)[0]
    for name in ("served", "assigned", "refused", "latency"):
        assert getattr(after, name) == getattr(before, name)
    assert after.busy_ms == pytest.approx(before.busy_ms)
    recent = WindowStat.objects.filter(window_start__gte=NOW - timedelta(hours=1))
    assert set(recent.values_list("resolution_s", flat=True)) == {1}
    old = WindowStat.objects.filter(window_start__lt=datetime(2026, 5, 1, 11, tzinfo=UTC))
    assert set(old.values_list("resolution_s", flat=True)) == {60}
    assert old.count() == 2 * 60
    by_minute = window_points(start, end, timedelta(minutes=1))
    assert sum(point.served for point in by_minute) == before.served


def test_rolling_up_again_does_nothing_and_a_late_window_joins_its_minute(windows: None) -> None:
    upkeep.roll_up_windows(NOW)
    assert upkeep.roll_up_windows(NOW) == 0
    rows = WindowStat.objects.count()
    start, end = NOW - timedelta(hours=3), NOW
    before = window_totals(start, end)[0]
    late = window(NOW - timedelta(minutes=90), random.Random(1))
    late.gateway, late.served = "g1", 1000
    late.save()
    upkeep.roll_up_windows(NOW)
    assert WindowStat.objects.count() == rows
    assert window_totals(start, end)[0].served == before.served + 1000


def test_only_a_replica_that_reported_once_and_fell_silent_is_swept() -> None:
    given = {"model": "m", "version": "v1", "address": "http://127.0.0.1:1"}
    register_replica(Registration(replica_id="live", **given), actor="fleet")
    register_replica(Registration(replica_id="dead", **given), actor="fleet")
    register_replica(Registration(replica_id="external", **given), actor="ada", heartbeat=False)
    long_ago = timezone.now() - timedelta(seconds=settings.HALCYON_REPLICA_FORGET_S + 1)
    Replica.objects.filter(pk__in=["dead", "external"]).update(registered_at=long_ago)
    Replica.objects.filter(pk="dead").update(heartbeat_at=long_ago)
    assert upkeep.sweep_replicas() == ["dead"]
    assert set(Replica.objects.values_list("pk", flat=True)) == {"live", "external"}


def test_rows_past_their_keeping_time_are_forgotten() -> None:
    now = timezone.now()
    for age in (timedelta(days=1), timedelta(days=1000)):
        window(now - age, random.Random(1)).save()
        UsageMinute.objects.create(gateway="g", tenant="t", model="m", minute=now - age)
        RecorderBatch.objects.create(gateway="g", sequence=age.days)
    RecorderBatch.objects.filter(sequence=1000).update(written_at=now - timedelta(days=1000))
    Heartbeat.objects.create(name="gateway:old", seen_at=now - timedelta(days=2))
    assert upkeep.forget_old_rows() == {
        "windows": 1,
        "usage": 1,
        "recorder batches": 1,
        "heartbeats": 1,
        "sessions": 0,
    }


def test_beats_tick_leaves_a_sign_that_the_dashboard_can_read() -> None:
    assert last_seen("beat") is None
    beat_heartbeat()
    seen = last_seen("beat")
    assert seen is not None
    assert seen.age_s < 5


def test_every_scheduled_task_of_the_fleet_exists() -> None:
    from halcyon_site.celery import app

    app.loader.import_default_modules()
    names = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    missing = {name for name in names if name not in app.tasks}
    assert not {name for name in missing if name.startswith("fleet.")}
