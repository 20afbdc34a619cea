"""The web application with its clock stopped: for pictures that are the same every time.

Everything is real but time, gateways and what the doctor finds on the machine: five minutes of
the played fleet are in memory, the wall clock stands at `STILL`, and the pulse looks at it for
ever.
"""

import os
from datetime import UTC, datetime

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "halcyon_site.settings")

STILL = datetime(2026, 3, 2, 14, 30, 0, tzinfo=UTC)
STILL_MS = round(STILL.timestamp() * 1000)

from django.utils import timezone  # noqa: E402

timezone.now = lambda: STILL

from fleet.live import facts, pulse, store  # noqa: E402
from halcyon_site.asgi import application as real  # noqa: E402
from tests.browser.stage import view  # noqa: E402

# What the doctor would say of a machine that the pictures do not depend on.
FINDINGS: tuple[tuple[str, ...], ...] = (
    ("database", "healthy", "PostgreSQL 18.4"),
    ("settings", "healthy", "debug off, hosts and replica networks limited"),
    ("disk", "healthy", "61 GiB free at /var/lib/halcyon"),
    ("broker", "healthy", "Valkey 9.0.1"),
    ("gateway", "healthy", "http://127.0.0.1:8080 is ready"),
    ("web", "healthy", "http://127.0.0.1:8000 is ready"),
    ("migrations", "healthy", "all applied"),
    ("triggers", "healthy", "every change of configuration is announced"),
    ("clock", "healthy", "within 0.0 s of the database"),
    (
        "beat",
        "down",
        "last tick 94 s ago",
        "Rollouts hold where they are, silent replicas stay listed, windows are not rolled up.",
        "Start `celery -A halcyon_site beat` and `celery -A halcyon_site worker`.",
    ),
    ("gateways", "healthy", "1 record what they serve"),
    (
        "replicas",
        "degraded",
        "1 of 6 do not answer: llama-t4-1",
        "Gateways leave them out; the others carry their share while they can.",
        "Look at their logs; remove one that is gone: `manage.py replicas remove ID`.",
    ),
    ("traffic", "healthy", "2 models, each with replicas behind it"),
    ("keys", "healthy", "5 keys of 4 tenants"),
)
SECONDS = 300
LAST = 540


def fill() -> None:
    """Five minutes of seconds, as if they had just passed."""
    heart = pulse.pulse
    heart.store = store.LiveStore(lambda: 0.0)
    for second in range(LAST - SECONDS, LAST + 1):
        said = view(second)
        at_ms = STILL_MS - (LAST - second) * 1000
        heart.store.put("gateway-a", second, said)
        heart.feed.absorb("gateway-a", said, at_ms)
        heart.samples.absorb("gateway-a", said, at_ms)
        heart.rings.add(at_ms, heart.store.state())
    heart.ensure_started = lambda: None  # type: ignore[method-assign]
    heart.broker_failing_since_ms = None


def still() -> None:
    """Every look at the pulse sees the same instant."""
    from dataclasses import replace

    from fleet.dashboard.checkup import checkup
    from fleet.doctor import Finding

    heart = pulse.pulse

    scene = replace(heart._look(), at_ms=STILL_MS)
    facts.facts.now("database")

    def scene_with_facts() -> object:
        for name in ("rollouts", "rollout_pages"):
            facts.facts.now(name)
        return scene

    findings = [Finding(*finding) for finding in FINDINGS]  # type: ignore[arg-type]
    checkup.examine = lambda: findings
    checkup.patience_s = 30.0
    heart.scene = scene_with_facts  # type: ignore[method-assign,assignment]


_filled = False


async def application(scope: object, receive: object, send: object) -> None:
    global _filled
    if not _filled:
        from asgiref.sync import sync_to_async

        _filled = True
        fill()
        await sync_to_async(still, thread_sensitive=False)()
    await real(scope, receive, send)
