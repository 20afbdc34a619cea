"""Steady traffic through the gateway, in a thread of its own, for as long as a scene lasts."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from itertools import cycle
from types import TracebackType
from typing import Self

import msgspec

from fleet.loadtest.sender import Ending, Sender
from fleet.loadtest.workload import Shot

DEADLINE_MS = 10_000.0
SESSIONS = 2000
TOKENS = (16, 400)


class SteadyTraffic:
    """Poisson arrivals at `per_s`, each from one of many sessions, of mixed sizes.

    They go to the gateways at `urls` in turn. `answered` is called for each ending, in the
    traffic's own thread. `last_sent` holds, by version, the wall clock's seconds at which the
    last request that this version answered was sent.
    """

    def __init__(
        self,
        urls: Sequence[str],
        key: str,
        model: str,
        per_s: float,
        answered: Callable[[Ending], None] = lambda _: None,
    ) -> None:
        self.model = model
        self.per_s = per_s
        self.codes: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.last_sent: dict[str, float] = {}
        self._urls = urls
        self._key = key
        self._answered = answered
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"traffic-{model}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(10)

    @property
    def success(self) -> float | None:
        """The share of requests that were answered; None before the first."""
        total = self.codes.total()
        return self.codes["ok"] / total if total else None

    def _run(self) -> None:
        asyncio.run(self._send_all())

    async def _send_all(self) -> None:
        rng = random.Random(self.model)
        under_way: set[asyncio.Task[None]] = set()
        async with AsyncExitStack() as stack:
            senders = cycle(
                [await stack.enter_async_context(Sender(url, self._key)) for url in self._urls]
            )
            next_s = time.monotonic()
            while not self._stop.is_set():
                next_s += rng.expovariate(self.per_s)
                delay_s = next_s - time.monotonic()
                if delay_s > 0:
                    await asyncio.sleep(delay_s)
                elif delay_s < -1.0:
                    next_s = time.monotonic()  # a stalled machine must not become a burst
                task = asyncio.create_task(self._send(next(senders), self._shot(rng)))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            if under_way:
                await asyncio.wait(under_way, timeout=5)

    async def _send(self, sender: Sender, shot: Shot) -> None:
        now_s, sent_at = time.monotonic(), time.time()
        ending = await sender.send(shot, now_s, now_s)
        self.codes[ending.code] += 1
        if ending.version:
            self.versions[ending.version] += 1
            last = self.last_sent.get(ending.version, 0.0)
            self.last_sent[ending.version] = max(last, sent_at)
        self._answered(ending)

    def _shot(self, rng: random.Random) -> Shot:
        tokens = rng.randint(*TOKENS)
        body = {
            "model": self.model,
            "input": "word " * (tokens * 4 // 5),
            "sessionKey": f"s{rng.randrange(SESSIONS)}",
            "deadlineMs": round(DEADLINE_MS),
            "maxOutputTokens": 8,
        }
        return Shot(body=msgspec.json.encode(body), tokens=tokens, deadline_ms=DEADLINE_MS)
