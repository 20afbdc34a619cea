"""Registration: an idempotent upsert that repeats as the heartbeat.

    POST {control}/v1/replicas/register, Authorization: Bearer <fleet token>

Each beat says everything, so that it does not matter which one arrives, or who restarted: the
control API, its database or this process. Beats come every `heartbeat_s` with a jitter of a
fifth, so that a fleet that started together does not beat together; after a failure they back
off, doubling from a quarter of it up to six times.

`draining` is said when it changes: false in the first beat of a life (a drain ends with the
process that drained), true in the last. In between it is left out, so that a drain ordered by
an operator stands.

A refusal (bad token, address outside the allowed networks) is logged with the server's words
and tried again: an operator may repair it there. The replica serves all the while.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import aiohttp
import structlog

from fleet.replica.options import Options
from fleet.replica.workplace import Workplace

JITTER_RATIO = 0.2
FIRST_BACKOFF_RATIO = 0.25
LONGEST_BACKOFF_RATIO = 6.0
TIMEOUT_S = 5.0

log = structlog.get_logger("replica")


class Registration:
    """Keeps the control API informed. `draining` is asked at each beat."""

    def __init__(
        self,
        options: Options,
        workplace: Workplace,
        *,
        address: str,
        started_at: float,
        draining: Callable[[], bool],
        rng: random.Random | None = None,
    ) -> None:
        self.options = options
        self.workplace = workplace
        self.address = address
        self.registered = False
        self.last_error: str | None = None
        self._announced = False
        self._started_at = datetime.fromtimestamp(started_at, UTC).isoformat()
        self._draining = draining
        self._rng = rng or random.Random()
        self._failures = 0

    def body(self) -> dict[str, Any]:
        """What a beat says. The limits are the configured ones: what the replica regulates
        below them travels with its answers and its health, not through the database."""
        options, runtime = self.options, self.workplace.runtime
        return {
            "replicaId": options.replica_id,
            "modelId": options.model,
            "version": options.version,
            "address": self.address,
            "protocol": "batch",
            "weight": options.weight,
            "accelerator": options.accelerator or runtime.accelerator,
            "runtime": options.runtime,
            "workUnit": runtime.work_unit.value,
            "maxBatchSize": options.max_batch_size,
            "maxBatchTokens": options.max_batch_tokens,
            "maxConcurrency": options.max_concurrency,
            "loadedModels": options.loaded_models,
            "gpuMemoryRatio": options.gpu_memory_ratio,
            "startedAt": self._started_at,
            "draining": True if self._draining() else None if self._announced else False,
        }

    async def run(self) -> None:
        """Beat for ever."""
        async with self._session() as session:
            while True:
                await self._beat(session)
                await asyncio.sleep(self._wait_s())

    async def say_now(self) -> None:
        """One beat, now: the state changed and the process may end soon."""
        async with self._session() as session:
            await self._beat(session)

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            headers={"authorization": f"Bearer {self.options.token}"},
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        )

    async def _beat(self, session: aiohttp.ClientSession) -> None:
        url = f"{self.options.control_url}/v1/replicas/register"
        try:
            async with session.post(url, json=self.body(), allow_redirects=False) as answer:
                if answer.status < 300:
                    self._noted(None)
                else:
                    text = (await answer.text())[:300]
                    self._noted(f"{answer.status}: {text}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._noted(f"{type(error).__name__}: {error}")

    def _noted(self, error: str | None) -> None:
        self._failures = 0 if error is None else self._failures + 1
        if error is None and not self.registered:
            log.info("registered", control=self.options.control_url, address=self.address)
        elif error is not None and error != self.last_error:
            log.warning("not registered", control=self.options.control_url, error=error)
        self.registered = error is None
        self._announced = self._announced or self.registered
        self.last_error = error

    def _wait_s(self) -> float:
        beat_s = self.options.heartbeat_s
        if self._failures:
            backoff = FIRST_BACKOFF_RATIO * 2.0 ** min(self._failures - 1, 20)
            beat_s *= min(backoff, LONGEST_BACKOFF_RATIO)
        return beat_s * (1.0 + JITTER_RATIO * self._rng.uniform(-1.0, 1.0))
