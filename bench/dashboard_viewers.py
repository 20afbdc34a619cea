"""Live viewers without a browser: websockets that watch, acknowledge and weigh each message."""

import asyncio
import json
import time
from dataclasses import dataclass, field

import psutil
from websockets.asyncio.client import ClientConnection, connect

from bench.dashboard_site import DashboardSite
from tests.browser.persons import session_key

# The nine pages and the overview twice: what ten operators may have open.
TOPICS: tuple[tuple[str, dict[str, str]], ...] = (
    ("overview", {}),
    ("overview", {}),
    ("models", {}),
    ("model", {"id": "model-001"}),
    ("fleet", {}),
    ("replica", {"id": "gpu-0001"}),
    ("tenants", {}),
    ("requests", {}),
    ("engine", {}),
    ("system", {}),
)
SETTLE_S = 5.0


@dataclass(slots=True)
class Viewer:
    """What one viewer was sent."""

    topic: str
    snapshots: list[int] = field(default_factory=list)
    deltas: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Live:
    """CPU of the web process a second, without and with viewers, and a row for each topic."""

    idle_ms: float
    busy_ms: float
    rows: list[dict[str, object]]


def measure_viewers(site: DashboardSite, viewers: int, duration_s: float) -> Live:
    """Idle first, then the viewers."""
    return asyncio.run(_measure(site, viewers, duration_s))


async def _measure(site: DashboardSite, count: int, duration_s: float) -> Live:
    assert site.web is not None
    web = psutil.Process(site.web.pid)
    viewers = [Viewer(TOPICS[n % len(TOPICS)][0]) for n in range(count)]
    stop = asyncio.Event()
    async with await _connected(site):  # one connection wakes the web process's pulse
        await asyncio.sleep(SETTLE_S)
        idle_ms = await _cpu_ms_a_second(web, duration_s)
        async with asyncio.TaskGroup() as group:
            for number, viewer in enumerate(viewers):
                params = TOPICS[number % len(TOPICS)][1]
                group.create_task(_watch(site, viewer, params, stop))
            await asyncio.sleep(SETTLE_S)
            busy_ms = await _cpu_ms_a_second(web, duration_s)
            stop.set()
    rows: list[dict[str, object]] = []
    for topic in dict.fromkeys(viewer.topic for viewer in viewers):
        deltas = [n for viewer in viewers if viewer.topic == topic for n in viewer.deltas]
        snapshots = [n for viewer in viewers if viewer.topic == topic for n in viewer.snapshots]
        rows.append(
            {
                "topic": topic,
                "messages": len(deltas),
                "mean_kb": sum(deltas) / len(deltas) / 1000 if deltas else None,
                "largest_kb": max(deltas) / 1000 if deltas else None,
                "snapshot_kb": max(snapshots) / 1000 if snapshots else None,
            }
        )
    return Live(idle_ms=idle_ms, busy_ms=busy_ms, rows=rows)


async def _cpu_ms_a_second(web: psutil.Process, duration_s: float) -> float:
    before, began_s = web.cpu_times(), time.monotonic()
    await asyncio.sleep(duration_s)
    after, ended_s = web.cpu_times(), time.monotonic()
    used_s = after.user + after.system - before.user - before.system
    return used_s * 1000 / (ended_s - began_s)


async def _connected(site: DashboardSite) -> ClientConnection:
    return await connect(
        site.url.replace("http", "ws") + "/ws/live/",
        origin=site.url,  # type: ignore[arg-type]
        additional_headers={"Cookie": f"sessionid={session_key('otto')}"},
        max_size=None,
    )


async def _watch(
    site: DashboardSite, viewer: Viewer, params: dict[str, str], stop: asyncio.Event
) -> None:
    async with await _connected(site) as socket:
        await socket.send(json.dumps({"do": "watch", "topic": viewer.topic, "params": params}))
        while not stop.is_set():
            try:
                text = await asyncio.wait_for(socket.recv(), 1.0)
            except TimeoutError:
                continue
            message = json.loads(text)
            sizes = viewer.snapshots if message["t"] == "snapshot" else viewer.deltas
            sizes.append(len(text.encode() if isinstance(text, str) else text))
            await socket.send(json.dumps({"do": "ack", "seq": message["seq"]}))
