"""The heartbeat of a web process: listen to the gateways, tick once a second, wake viewers.

One listener per process joins the channel-layer group, whatever the number of browsers: a
view of 1,000 replicas is decoded once, in a thread. The ticker makes one `Scene` a second,
also while nothing arrives, because growing old is news too.

The listener renews its membership of the group, so that a Valkey that restarted empty finds
it again; while the layer is away it retries and says since when.
"""

import asyncio
import logging
import time

from channels.layers import get_channel_layer

from fleet.live import wire
from fleet.live.facts import Facts, facts
from fleet.live.feed import Feed
from fleet.live.rings import Rings
from fleet.live.samples import Samples
from fleet.live.scene import Scene
from fleet.live.store import LiveStore, store

log = logging.getLogger(__name__)

PERIOD_S = 1.0
RENEW_S = 5.0
RETRY_S = 1.0


class Pulse:
    """Listener and ticker of one web process. Start it from the event loop."""

    def __init__(self, live_store: LiveStore = store, known_facts: Facts = facts) -> None:
        self.store = live_store
        self.rings = Rings()
        self.feed = Feed()
        self.samples = Samples()
        self.facts = known_facts
        self.tick = 0
        self.broker_failing_since_ms: int | None = None
        self.broker_error = ""
        self._scene: Scene | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: set[asyncio.Event] = set()

    def ensure_started(self) -> None:
        """Start the two loops once per event loop; cheap to call on every request."""
        if self._tasks and not self._tasks[0].get_loop().is_closed():
            return
        self._tasks = [
            asyncio.create_task(self._listen(), name="halcyon-live-listener"),
            asyncio.create_task(self._beat(), name="halcyon-live-pulse"),
        ]

    async def stop(self) -> None:
        """End both loops: for tests, and for a process that shuts down in order."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.facts.settle()

    def scene(self) -> Scene:
        """The present scene; between ticks the last one, so that all readers agree."""
        if self._scene is None or time.time() * 1000 - self._scene.at_ms > 1500:
            self._scene = self._look()
        return self._scene

    def wake_on_tick(self, event: asyncio.Event) -> None:
        """Set this event at every tick, until `forget`."""
        self._waiting.add(event)

    def forget(self, event: asyncio.Event) -> None:
        self._waiting.discard(event)

    def _look(self) -> Scene:
        return Scene(
            at_ms=round(time.time() * 1000),
            tick=self.tick,
            state=self.store.state(),
            rings=self.rings,
            feed=self.feed,
            samples=self.samples,
            facts=self.facts,
            broker_failing_since_ms=self.broker_failing_since_ms,
            broker_error=self.broker_error,
        )

    async def _beat(self) -> None:
        next_s = time.monotonic()
        while True:
            next_s = max(next_s + PERIOD_S, time.monotonic())
            await asyncio.sleep(next_s - time.monotonic())
            try:
                self.advance()
            except Exception:
                log.exception("the live dashboard missed a beat")

    def advance(self) -> None:
        """One tick: look, remember, wake everybody."""
        self.tick += 1
        self._scene = self._look()
        self.rings.add(self._scene.at_ms, self._scene.state)
        self.facts.refresh(time.monotonic())
        for event in self._waiting:
            event.set()

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_until_broken()
            except Exception as error:
                if self.broker_failing_since_ms is None:
                    self.broker_failing_since_ms = round(time.time() * 1000)
                    log.warning("the live feed is interrupted: %s", error)
                self.broker_error = str(error) or type(error).__name__
            await asyncio.sleep(RETRY_S)

    async def _listen_until_broken(self) -> None:
        layer = get_channel_layer()
        channel = await layer.new_channel("halcyon-web")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew(layer, channel))
            while True:
                await self.hear(await layer.receive(channel))

    async def _renew(self, layer: object, channel: str) -> None:
        while True:
            async with asyncio.timeout(RENEW_S):
                await layer.group_add(wire.GROUP, channel)  # type: ignore[attr-defined]
            if self.broker_failing_since_ms is not None:
                log.info("the live feed is back")
            self.broker_failing_since_ms, self.broker_error = None, ""
            await asyncio.sleep(RENEW_S)

    async def hear(self, message: wire.Envelope) -> None:
        """Take in one message of the group. An unreadable one is logged and dropped."""
        gateway = message["gateway"]
        if message["type"] == "gateway.gone":
            self.store.forget(gateway)
            return
        try:
            view = await asyncio.to_thread(wire.unpack, message)
        except ValueError as error:
            log.warning("%s", error)
            return
        self.store.put(gateway, message["seq"], view)
        now_ms = time.time() * 1000
        self.feed.absorb(gateway, view, now_ms)
        self.samples.absorb(gateway, view, now_ms)


pulse = Pulse()
