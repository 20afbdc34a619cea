"""A replica in front of an OpenAI-compatible server: each item becomes one chat completion.

Useful where the server itself cannot register, or where a batch protocol is wanted in front of
it. The server batches continuously, so the items of a batch go out side by side. A refusal of
the server (429, 503) fails its item as busy; if all items are refused, the batch is.
Temperature is 0 unless the server decides otherwise: an answer that can be repeated.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import aiohttp

from engine.errors import InvalidInput
from engine.types import WorkUnit
from fleet.replica.runtimes.base import (
    RUNTIME_FAILED,
    BoundBy,
    Failed,
    Item,
    ItemOutcome,
    RuntimeBusy,
    RuntimeSettings,
    Served,
)

_BUSY = (429, 503)
_TIMEOUT_S = 600.0


class UpstreamRuntime:
    """Forwards items to `--upstream-url`."""

    work_unit: ClassVar[WorkUnit] = WorkUnit.TOKENS
    bound_by: ClassVar[BoundBy] = BoundBy.DEVICE
    accelerator: ClassVar[str] = "upstream"

    def __init__(self, settings: RuntimeSettings) -> None:
        if not settings.upstream_url.startswith(("http://", "https://")):
            raise InvalidInput(
                "upstream_url", settings.upstream_url, "must be http://... or https://..."
            )
        self._url = settings.upstream_url.rstrip("/").removesuffix("/v1")
        self._model = settings.upstream_model or settings.model
        self._headers = (
            {"authorization": f"Bearer {settings.upstream_key}"} if settings.upstream_key else {}
        )
        self._session: aiohttp.ClientSession | None = None

    async def load(self) -> None:
        """Wait until the server lists its models."""
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S, connect=5.0),
            connector=aiohttp.TCPConnector(limit=0),
        )
        while True:
            try:
                async with self._session.get(f"{self._url}/v1/models") as answer:
                    if answer.status == 200:
                        return
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.5)

    def check(self, value: Any) -> str | None:
        return None if isinstance(value, str) else "must be a text"

    async def run(self, items: Sequence[Item]) -> list[ItemOutcome]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._complete(item)) for item in items]
        outcomes = [task.result() for task in tasks]
        if all(isinstance(each, Failed) and each.status in _BUSY for each in outcomes):
            raise RuntimeBusy("the upstream server is busy")
        return outcomes

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _complete(self, item: Item) -> ItemOutcome:
        assert self._session is not None
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": item.input}],
            "max_tokens": item.max_output_tokens,
            "temperature": 0,
        }
        try:
            async with self._session.post(f"{self._url}/v1/chat/completions", json=body) as answer:
                found = await answer.json(content_type=None)
                if answer.status != 200:
                    return Failed(_message(found, answer.status), answer.status)
                usage = found.get("usage") or {}
                return Served(
                    found["choices"][0]["message"]["content"],
                    int(usage.get("prompt_tokens") or 0),
                    int(usage.get("completion_tokens") or 0),
                )
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
            return Failed(f"upstream: {type(error).__name__}: {error}"[:300], RUNTIME_FAILED)


def _message(found: Any, status: int) -> str:
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    return found[:300] if isinstance(found, str) else f"upstream answered {status}"
