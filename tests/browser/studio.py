"""The web application with its clock stopped: for pictures that are the same every time.

Everything is real but time and gateways: five minutes of the played fleet are in memory, the
wall clock stands at `STILL`, and the pulse looks at it for ever.
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
    heart = pulse.pulse
    from dataclasses import replace

    scene = replace(heart._look(), at_ms=STILL_MS)
    facts.facts.now("database")

    def scene_with_facts() -> object:
        for name in ("rollouts", "rollout_pages"):
            facts.facts.now(name)
        return scene

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
