"""A scripted OpenAI server on a real socket, in the test's own loop."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import uvicorn

from bench.upstreams.openai_server import Script, Upstream


class RunningUpstream(Upstream):
    """`script` and `stats` may be read and set directly."""

    address: str = ""

    def behave(self, **script: object) -> None:
        self.script = Script(**script)  # type: ignore[arg-type]


@asynccontextmanager
async def running_upstream(name: str, model: str = "m") -> AsyncIterator[RunningUpstream]:
    upstream = RunningUpstream(name, model)
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    upstream.address = f"http://127.0.0.1:{sock.getsockname()[1]}"
    server = uvicorn.Server(
        uvicorn.Config(
            upstream, log_level="critical", lifespan="off", timeout_graceful_shutdown=1, ws="none"
        )
    )
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server._serve([sock]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield upstream
    finally:
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await task
        sock.close()
