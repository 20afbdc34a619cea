"""The life of all processes: start, wait until the fleet serves, watch, stop in order.

The gateway stops first, while its replicas still answer what it holds; web and replicas
follow. Embedded servers that die are started again too: their data is on disk.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from halcyon_site.embedded import EmbeddedServices
from halcyon_site.supervisor.child import Child
from halcyon_site.supervisor.plan import Plan

log = logging.getLogger(__name__)

READY_WITHIN_S = 180.0  # a machine busy with other things; ten seconds are usual
FAILED_STARTS = 3
WATCH_EVERY_S = 2.0
SERVING = {"healthy", "degraded"}


class DidNotStart(RuntimeError):
    """A process was not ready in time. The message ends with its last words."""


class Supervisor:
    def __init__(
        self,
        plans: Sequence[Plan],
        services: EmbeddedServices,
        *,
        var: Path,
        gateway_url: str,
        replicas: set[str],
    ) -> None:
        log_dir = var / "log"
        log_dir.mkdir(parents=True, exist_ok=True)
        (var / "run").mkdir(parents=True, exist_ok=True)
        self.children = [Child(plan, log_dir) for plan in plans]
        self.service_restarts = 0
        self._services = services
        self._expected = {name for name, runs in services.status().items() if runs}
        self._gateway_url = gateway_url
        self._replicas = replicas
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start everything and return when the gateway sees every replica serve.

        Worker and beat start only then: they are not waited for, and would take the cores
        from what is.
        """
        for child in self.children:
            if not child.plan.is_background:
                child.start()
        self._watching = asyncio.create_task(self._watch(), name="supervisor-watch")
        give_up_s = time.monotonic() + READY_WITHIN_S
        for child in self.children:
            if not child.plan.is_background:
                await self._until_ready(child, give_up_s)
        async with aiohttp.ClientSession() as session:
            while waiting := self._replicas - await self._serving(session):
                if time.monotonic() > give_up_s:
                    raise DidNotStart(
                        f"the gateway does not see {', '.join(sorted(waiting))} serve; "
                        f"read {self.children[0].log.parent}/*.log"
                    )
                await asyncio.sleep(0.1)
        for child in self.children:
            if child.plan.is_background:
                child.start()

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        first = {"gateway", "beat", "worker"}
        for group in (
            [child for child in self.children if child.plan.name in first],
            [child for child in self.children if child.plan.name not in first],
        ):
            await asyncio.gather(*(child.stop() for child in group))

    @property
    def healthy(self) -> bool:
        """Every process is ready and none had to be started twice."""
        return not self.service_restarts and all(
            child.state == "ready" and not child.restarts for child in self.children
        )

    def summary(self) -> dict[str, Any]:
        return {
            child.plan.name: {"state": child.state, "restarts": child.restarts, "pid": child.pid}
            for child in self.children
        }

    async def _until_ready(self, child: Child, give_up_s: float) -> None:
        while not child.ready_once.is_set():
            words = f"The end of {child.log}:\n{child.last_words()}"
            if child.restarts >= FAILED_STARTS:
                raise DidNotStart(f"{child.plan.name} ended {child.restarts} times. {words}")
            if time.monotonic() > give_up_s:
                raise DidNotStart(
                    f"{child.plan.name} is not ready after {READY_WITHIN_S:g} s. {words}"
                )
            await asyncio.sleep(0.05)

    async def _serving(self, session: aiohttp.ClientSession) -> set[str]:
        try:
            async with session.get(f"{self._gateway_url}/v1/control/state") as response:
                state = await response.json()
            return {r["replicaId"] for r in state["replicas"] if r["status"] in SERVING}
        except (aiohttp.ClientError, TimeoutError, OSError, KeyError, ValueError):
            return set()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            await self._revive_services()

    async def _revive_services(self) -> None:
        running = {name for name, runs in self._services.status().items() if runs}
        gone = self._expected - running
        if gone:
            self.service_restarts += 1
            log.warning("%s died; starting again", " and ".join(sorted(gone)))
            try:
                await asyncio.to_thread(self._services.start)
            except Exception:
                log.exception("could not start %s", " and ".join(sorted(gone)))
