"""The fixed past behind the played present: models, replicas, tenants, windows, usage.

Written through the services where they exist and in bulk where there are thousands. Every
number is a function of its minute, so two runs that end at the same second store the same.
"""

import math
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Group, User
from django.contrib.sessions.backends.db import SessionStore

from engine.stats.histogram import LogHistogram, bucket_of
from fleet.models import Heartbeat, Tenant, UsageMinute, WindowStat
from fleet.services import (
    Registration,
    create_model,
    create_tenant,
    create_version,
    issue_key,
    register_replica,
    set_split,
)
from tests.browser.persons import PASSWORD_FOR_TESTS, PEOPLE, session_key
from tests.browser.stage import view

ACTOR = "the stage"

ARMS = (
    ("llama-3-8b", "v1", "baseline", 0.75, 118.0),
    ("llama-3-8b", "v2", "canary", 0.25, 94.0),
    ("minilm", "v1", "baseline", 0.2, 9.0),
)


def people() -> None:
    """One person a role, each signed in once."""
    for name, group in PEOPLE.items():
        user = User.objects.create_user(name, password=PASSWORD_FOR_TESTS)
        user.groups.add(Group.objects.get(name=group))
        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.set_expiry(86_400 * 3650)
        session._session_key = session_key(name)
        session.save(must_create=True)


def configuration() -> None:
    """What the played gateways speak of, as rows."""
    for model, versions, slo in (("llama-3-8b", ("v1", "v2"), 1000), ("minilm", ("v1",), 250)):
        made = create_model(model, slo_ms=slo, actor=ACTOR)
        for version in versions:
            create_version(made, version, actor=ACTOR)
        set_split(made, baseline="v1", actor=ACTOR)
    for number, replica in enumerate(view(240)["replicas"]):
        registration = Registration(
            replica_id=replica["replicaId"],
            model=replica["model"],
            version=replica["version"],
            address=f"http://10.20.0.{11 + number}:9101",
            accelerator=replica["accelerator"],
        )
        register_replica(registration, actor=ACTOR)
    tenants: dict[str, dict[str, int]] = {
        "acme": {"tokens_per_minute": 500_000, "tokens_burst": 500_000, "priority": 1},
        "globex": {"tokens_per_minute": 1_000_000, "priority": 2},
        "initech": {"tokens_per_minute": 120_000, "requests_per_minute": 3000, "priority": 1},
        "umbrella": {"priority": 0},
    }
    for name, limits in tenants.items():
        issue_key(create_tenant(name, actor=ACTOR, **limits), "production", actor=ACTOR)
    issue_key(Tenant.objects.get(name="acme"), "staging", actor=ACTOR)


def windows(end: datetime, *, gateway: str = "gateway-a") -> int:
    """A day of rolled-up minutes and, for the last quarter of an hour, seconds."""
    recent = end - timedelta(minutes=16)
    rows = [
        *_rolled_up(end - timedelta(hours=24), recent, gateway),
        *_seconds(recent, end, gateway),
    ]
    WindowStat.objects.bulk_create(rows, batch_size=2000)
    return len(rows)


def processes(now: datetime) -> None:
    """Who wrote lately; beat did not."""
    for name, age_s in (("beat", 94), ("gateway:gateway-a", 2), ("worker@node-1", 5)):
        Heartbeat.objects.create(name=name, seen_at=now - timedelta(seconds=age_s))


def usage(end: datetime, *, gateway: str = "gateway-a") -> None:
    """A day of minutes of every tenant."""
    end = end.replace(second=0, microsecond=0)
    rows = []
    for back in range(1, 24 * 60):
        minute = end - timedelta(minutes=back)
        for index, (tenant, rate) in enumerate(
            (("acme", 78), ("globex", 90), ("initech", 26), ("umbrella", 7))
        ):
            n = int(60 * rate * _day(minute, index))
            refused = (
                {"quota_exceeded": n // 40} if tenant == "acme" and minute.minute % 7 < 3 else {}
            )
            served = n - sum(refused.values())
            rows.append(
                UsageMinute(
                    gateway=gateway,
                    tenant=tenant,
                    model="llama-3-8b",
                    minute=minute,
                    requests=n,
                    served=served,
                    refused=refused,
                    prompt_tokens=served * 318,
                    completion_tokens=served * 94,
                )
            )
    UsageMinute.objects.bulk_create(rows, batch_size=2000)


def _day(moment: datetime, shift: int = 0) -> float:
    """How busy a minute is: a slow day with ripples, between 0.55 and 1.15."""
    minutes = moment.hour * 60 + moment.minute + moment.second / 60
    slow = math.sin(2 * math.pi * minutes / 1440 - 1.2 + shift / 3)
    ripple = math.sin(minutes / 3.1 + shift) + math.sin(minutes / 11.7)
    return 0.85 + 0.2 * slow + 0.05 * ripple


def _rolled_up(start: datetime, end: datetime, gateway: str) -> Iterator[WindowStat]:
    moment = start.replace(second=0, microsecond=0)
    while moment < end:
        yield from _window(moment, 60, gateway)
        moment += timedelta(minutes=1)


def _seconds(start: datetime, end: datetime, gateway: str) -> Iterator[WindowStat]:
    moment = start.replace(second=0, microsecond=0)
    while moment < end:
        yield from _window(moment, 1, gateway)
        moment += timedelta(seconds=1)


def _window(moment: datetime, seconds: int, gateway: str) -> Iterator[WindowStat]:
    for index, (model, version, arm, share, middle_ms) in enumerate(ARMS):
        n = int(200 * share * seconds * _day(moment, index))
        faults = n // 300
        misses = n // 110 if moment.minute % 9 < 4 else n // 400
        sheds = n // 30 if moment.minute % 13 < 5 else n // 160
        served = n - faults - misses - sheds
        yield WindowStat(
            gateway=gateway,
            window_start=moment,
            resolution_s=seconds,
            model=model,
            version=version,
            arm=arm,
            served=served,
            faults=faults,
            misses=misses,
            sheds=sheds,
            refused={"deadline_unreachable": sheds} if sheds else {},
            latency=_latency(served, middle_ms * _day(moment, index + 5)),
            batches=max(served // 14, 1),
            items=served,
        )


def _latency(n: int, middle_ms: float) -> dict[str, int]:
    """Eight buckets around a middle, with a tail: quantiles that look like an LLM's."""
    shape = ((0.4, 6), (0.7, 20), (1.0, 28), (1.5, 22), (2.4, 13), (4.2, 7), (6.1, 3), (8.8, 1))
    buckets: dict[str, int] = {}
    for factor, percent in shape:
        count = round(n * percent / 100)
        if count:
            bucket = str(bucket_of(middle_ms * factor))
            buckets[bucket] = buckets.get(bucket, 0) + count
    return buckets


def rollout(now: datetime, *, windows: int = 26) -> int:
    """A rollout of llama-3-8b to v2, judged by the real judge over fixed windows.

    It climbs 1, 5, 25 % and then waits: its one replica cannot carry 50 %.
    """
    from django.db import transaction

    from engine.rollout.calibration import calibrate
    from engine.rollout.capacity import CapacityFacts
    from engine.rollout.controller import judge
    from engine.rollout.counts import WindowCounts
    from engine.rollout.state import JudgeState
    from rollouts.policy import rules_of
    from rollouts.services import apply_verdict, start

    interval = 30
    begun = now - timedelta(seconds=(windows + 1) * interval)
    row = start(
        "llama-3-8b",
        "v2",
        actor="otto",
        reason="v2 halves the time to first token",
        policy={"intervalS": interval},
        now=begun,
    )
    rules = rules_of(row.policy)
    calm = LogHistogram()
    for bucket in range(-20, 20):
        calm.record(1.02**bucket, 60)
    fresh = calibrate([calm] * 12)
    state = JudgeState.from_json(row.state).calibrated(fresh)
    for seq in range(1, windows + 1):
        share = row.percent / 100.0
        canary = round(5400 * share)
        baseline = 5400 - canary
        silent = seq in (9, 10)  # its replica restarted
        counts = WindowCounts(
            seq=seq,
            canary_ended=0 if silent else canary,
            baseline_ended=baseline,
            canary_faults=0 if silent else canary // 400,
            baseline_faults=baseline // 430,
            canary_sheds=0,
            baseline_sheds=0,
            canary_misses=0 if silent else canary // 150,
            baseline_misses=baseline // 140,
            canary_timed=0 if silent else canary,
            baseline_timed=baseline,
            slow_canary=0 if silent else round(canary * (0.021 + 0.004 * math.sin(seq))),
            slower_canary=0 if silent else round(canary * 0.009),
            slow_baseline=round(baseline * (0.05 + 0.003 * math.sin(seq * 1.3))),
            canary_over_slo=0 if silent else canary // 60,
            canary_answered=0 if silent else canary,
            canary_requests=0 if silent else canary,
            baseline_requests=baseline,
            canary_sessions=0.0 if silent else round(canary / 6 * (1 + 0.04 * math.sin(seq))),
            baseline_sessions=round(baseline / 6),
        )
        facts = CapacityFacts(
            canary_ready=0 if silent else 1,
            canary_per_s=84.0 + 3 * math.sin(seq / 2),
            offered_per_s=180.0 + 6 * math.sin(seq / 3),
        )
        state, verdict = judge(state, counts, rules, facts)
        with transaction.atomic():
            apply_verdict(
                row,
                state,
                verdict,
                counts=counts,
                facts=facts,
                calibration=fresh if seq == 1 else None,
                now=begun + timedelta(seconds=(seq + 1) * interval),
            )
    return int(row.pk)
