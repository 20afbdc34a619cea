"""A real gateway in processes of its own, started and stopped by a test."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp

_START = """
import json, logging.config, os, sys
from django.conf import settings
logging.config.dictConfig(settings.LOGGING)
from fleet.gateway.main import run
if __name__ == "__main__":
    sys.exit(run(**json.loads(os.environ["GATEWAY_OPTIONS"])))
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def until(
    condition: Callable[[], Any], within_s: float = 10.0, what: str = "the condition"
) -> Any:
    """Poll `condition` (a function, or one that returns an awaitable) until it holds."""
    limit = time.monotonic() + within_s
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < limit, f"{what} did not come about within {within_s} s"
        await asyncio.sleep(0.02)


class Answer:
    """An HTTP answer, read."""

    def __init__(self, status: int, headers: Any, body: bytes, took_s: float) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.took_s = took_s

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """The error code of the envelope, None on success."""
        return self.json["error"]["code"] if self.status >= 400 else None


class GatewayProcess:
    """One gateway (one or several processes) and a client to speak to it."""

    def __init__(
        self, environment: dict[str, str], state_dir: Path, key: str, **options: Any
    ) -> None:
        self.port = options.pop("port", None) or free_port()
        self.key = key
        self._options = {
            "port": self.port,
            "state_dir": str(state_dir),
            "grace_s": 0.05,
            **options,
        }
        self._environment = {
            **environment,
            "GATEWAY_OPTIONS": json.dumps(self._options),
            "HALCYON_LOG_LEVEL": os.environ.get("GATEWAY_TEST_LOG", "WARNING"),
        }
        self._log = state_dir / f"gateway-{self.port}.log"
        self.process: asyncio.subprocess.Process | None = None
        self.session: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    async def start(self, *, wait: bool = True) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _START, env=self._environment, stdout=log, stderr=log
            )
        connector = aiohttp.TCPConnector(limit=0)
        self.session = aiohttp.ClientSession(connector=connector)
        if wait:
            await until(self.is_ready, 40.0, f"readiness ({self.log[-2000:]})")

    async def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None, self.log[-4000:]
        with contextlib.suppress(aiohttp.ClientError, OSError):
            return (await self.get("/readyz")).status == 200
        return False

    async def is_listening(self) -> bool:
        """Whether it answers at all."""
        with contextlib.suppress(aiohttp.ClientError, OSError):
            return (await self.get("/healthz")).status == 200
        return False

    async def stop(self, sig: int = signal.SIGTERM, within_s: float = 20.0) -> int:
        """Signal it and wait for its end. Returns the exit code."""
        if self.session is not None:
            await self.session.close()
            self.session = None
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(sig)
        return await asyncio.wait_for(self.process.wait(), within_s)

    # -- requests ----------------------------------------------------------------------

    async def request(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any
    ) -> Answer:
        assert self.session is not None
        began = time.monotonic()
        async with self.session.request(
            method, self.url + path, headers=headers, timeout=aiohttp.ClientTimeout(60), **more
        ) as answer:
            body = await answer.read()
        return Answer(answer.status, answer.headers, body, time.monotonic() - began)

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.request("GET", path, **more)

    async def infer(self, key: str | None = None, **body: Any) -> Answer:
        """`POST /v1/infer` with sensible defaults."""
        sent = {"model": "m", "input": "hello", "deadlineMs": 2000, **body}
        headers = {"x-api-key": key or self.key}
        return await self.request("POST", "/v1/infer", json=sent, headers=headers)

    async def infer_many(self, count: int, at_once: int = 16, **body: Any) -> list[Answer]:
        """`count` requests, `at_once` in flight."""
        answers: list[Answer] = []
        left = iter(range(count))

        async def client() -> None:
            for number in left:
                answer = await self.infer(**{"input": f"request {number}", **body})
                answers.append(answer)

        await asyncio.gather(*(client() for _ in range(at_once)))
        return answers

    async def state(self) -> Any:
        """The live state of all its processes."""
        return (await self.get("/v1/control/state")).json

    async def settled(self, within_s: float = 5.0) -> Any:
        """Wait until nothing is queued or running; the conservation law then."""

        async def at_rest() -> Any:
            law = (await self.state())["conservation"]
            return law if law["queued"] == law["running"] == 0 else None

        return await until(at_rest, within_s, "rest")


@contextlib.asynccontextmanager
async def running(gateway: GatewayProcess, *, wait: bool = True) -> AsyncIterator[GatewayProcess]:
    """Start, and stop whatever happened."""
    try:
        await gateway.start(wait=wait)
        yield gateway
    finally:
        if gateway.process is not None and gateway.process.returncode is None:
            try:
                await gateway.stop()
            except TimeoutError:
                gateway.process.kill()
                await gateway.process.wait()
        if gateway.session is not None:
            await gateway.session.close()
