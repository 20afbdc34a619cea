"""One request over HTTP, and how it ended as its client saw it."""

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from fleet.loadtest.workload import Shot

PATIENCE_S = 5.0  # beyond the deadline: a gateway that says nothing is a failure of its own


@dataclass(slots=True, frozen=True)
class Ending:
    """`code` is "ok", the gateway's error code, or "no_answer"."""

    started_s: float
    latency_ms: float
    tokens: int
    deadline_ms: float
    status: int
    code: str
    version: str = ""
    replica: str = ""
    batch: int = 0

    @property
    def in_time(self) -> bool:
        return self.code == "ok" and self.latency_ms <= self.deadline_ms


class _Batch(msgspec.Struct):
    size: int = 0


class _Answer(msgspec.Struct, rename="camel"):
    version: str = ""
    replica_id: str = ""
    batch: _Batch = msgspec.field(default_factory=_Batch)


class _Problem(msgspec.Struct):
    code: str = "error"


class _Refusal(msgspec.Struct):
    error: _Problem = msgspec.field(default_factory=_Problem)


_answer = msgspec.json.Decoder(_Answer)
_refusal = msgspec.json.Decoder(_Refusal)


class Sender:
    """Keeps connections open and sends shots through them."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/") + "/v1/infer"
        self._headers = {"x-api-key": key, "content-type": "application/json"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            skip_auto_headers=["User-Agent", "Accept", "Accept-Encoding"],
            headers=self._headers,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, shot: Shot, due_s: float, origin_s: float) -> Ending:
        """Send one. Latency counts from `due_s` (monotonic), when it should have left."""
        assert self._session is not None
        status, code = 0, "no_answer"
        extra: dict[str, Any] = {}
        timeout = aiohttp.ClientTimeout(total=shot.deadline_ms / 1000 + PATIENCE_S)
        try:
            async with self._session.post(self._url, data=shot.body, timeout=timeout) as response:
                body = await response.read()
                status = response.status
                code, extra = _read(status, body)
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass
        return Ending(
            started_s=due_s - origin_s,
            latency_ms=(time.monotonic() - due_s) * 1000,
            tokens=shot.tokens,
            deadline_ms=shot.deadline_ms,
            status=status,
            code=code,
            **extra,
        )


def _read(status: int, body: bytes) -> tuple[str, dict[str, Any]]:
    try:
        if status == 200:
            answer = _answer.decode(body)
            return "ok", {
                "version": answer.version,
                "replica": answer.replica_id,
                "batch": answer.batch.size,
            }
        return _refusal.decode(body).error.code, {}
    except msgspec.DecodeError:
        return "unreadable", {}
