"""A running replica process, as the tests see it."""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 30.0


@dataclass
class ReplicaProcess:
    """A running replica: its address, what it logged, and a client for it."""

    process: asyncio.subprocess.Process
    url: str
    http: aiohttp.ClientSession
    log: list[dict[str, Any]] = field(default_factory=list)

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        async with self.http.get(path, **options) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, Any]:
        async with self.http.post(path, json=body, **options) as answer:
            return answer.status, await answer.json()

    async def execute(self, *inputs: Any, **fields: Any) -> tuple[int, Any]:
        return await self.post("/execute", batch(*inputs, **fields))

    async def health(self) -> dict[str, Any]:
        return dict((await self.get("/health"))[1])

    def events(self) -> list[str]:
        return [entry["event"] for entry in self.log]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def exit_code(self) -> int:
        return await asyncio.wait_for(self.process.wait(), WITHIN_S)


def batch(*inputs: Any, **fields: Any) -> dict[str, Any]:
    """A batch of these inputs; each item has `fields` too."""
    items = [{"requestId": f"r{n}", "input": value, **fields} for n, value in enumerate(inputs)]
    return {"batchId": "b1", "items": items}


async def until(
    condition: Callable[[], Awaitable[bool]] | Callable[[], bool], within_s: float = WITHIN_S
) -> None:
    """Wait for a condition, not for a time."""
    async with asyncio.timeout(within_s):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


async def read_log(process: asyncio.subprocess.Process, log: list[dict[str, Any]]) -> None:
    assert process.stderr is not None
    async for line in process.stderr:
        text = line.decode(errors="replace").strip()
        log.append(json.loads(text) if text.startswith("{") else {"event": "text", "text": text})


StartReplica = Callable[..., Awaitable[ReplicaProcess]]
