"""First paints. `paint_pages` runs this module in a process of its own, where the pulse has
heard a minute of the large fleet, and asks for each page as a signed-in operator's browser
does."""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.dashboard_site import PAGES, DashboardSite, Size
from bench.progress import Task

SECONDS = 60


def paint_pages(site: DashboardSite, rounds: int, task: Task) -> list[dict[str, object]]:
    """A row for each page."""
    size = site.size
    words = [str(n) for n in (size.replicas, size.models, size.tenants, rounds)]
    rows: list[dict[str, object]] = []
    for line in site.script("-m", "bench.dashboard_paint", *words):
        rows.append(json.loads(line))
        task.say(f"first paint of {rows[-1]['page']}")
        task.advance()
    return rows


def measure(size: Size, rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each page, as it is known. Must run in a process with Django set up."""
    from django.contrib.auth.models import User
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    from fleet.live.pulse import pulse
    from tests.browser.stage import view

    sizes = {name: getattr(size, name) for name in ("replicas", "models", "tenants")}
    now_ms = round(time.time() * 1000)
    for second in range(SECONDS):
        said = view(240 + second, **sizes)
        pulse.store.put("gateway-a", second, said)
        pulse.feed.absorb("gateway-a", said, now_ms - (SECONDS - second) * 1000)
        pulse.samples.absorb("gateway-a", said, now_ms - (SECONDS - second) * 1000)
        pulse.rings.add(now_ms - (SECONDS - second) * 1000, pulse.store.state())
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(User.objects.get(username="otto"))
    for page, path in PAGES.items():
        client.get(path)  # imports and templates: a process pays for them once
        times = []
        for _ in range(rounds):
            pulse.store.put("gateway-a", SECONDS, said)  # every second brings a new view
            pulse._scene = None
            began_s = time.perf_counter()
            answer = client.get(path)
            times.append((time.perf_counter() - began_s) * 1000)
        with CaptureQueriesContext(connection) as queries:
            client.get(path)
        if answer.status_code != 200:
            raise RuntimeError(f"{path} answered {answer.status_code}")
        yield {
            "page": page,
            "path": path,
            "paint_ms": statistics.median(times),
            "slowest_paint_ms": max(times),
            "queries": len(queries),
            "html_kb": len(answer.content) / 1000,
        }


def main() -> None:
    import django

    django.setup()
    replicas, models, tenants, rounds = (int(word) for word in sys.argv[1:])
    size = Size(replicas=replicas, models=models, tenants=tenants)
    for row in measure(size, rounds):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
