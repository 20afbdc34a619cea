"""A real HTTP server that plays a replica and fails as it is told.

It speaks the batch protocol on a real socket in the test's own event loop. `behave` is a
function from the batch it got to what it does about it; the ready-made ones are below. What
it saw is kept: batches, members, the greatest number of batches at once, connections that
the gateway closed on it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

Batch = dict[str, Any]
Behaviour = Callable[["ScriptedReplica", Batch, web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Seen:
    """What reached the replica."""

    batches: list[list[str]] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    deadlines_ms: list[float] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    cancelled: int = 0
    running: int = 0
    peak: int = 0
    ports: set[int] = field(default_factory=set)

    @property
    def connections(self) -> int:
        """How many connections brought batches, by the ports that they came from."""
        return len(self.ports)

    @property
    def items(self) -> int:
        return sum(len(batch) for batch in self.batches)


class ScriptedReplica:
    """Start with `async with`; change `behave` and `ready` at any time."""

    def __init__(
        self,
        behave: "Behaviour | None" = None,
        *,
        keep_alive_s: float = 75.0,
        port: int = 0,
    ) -> None:
        self.behave: Behaviour = behave or answers()
        self.ready = True
        self.report: dict[str, Any] = {}
        self.seen = Seen()
        self.port = port
        self._keep_alive_s = keep_alive_s
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "ScriptedReplica":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/execute", self._execute)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=self._keep_alive_s,
            shutdown_timeout=0.1,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True, backlog=2048)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port and every connection, as a killed process would."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def _readyz(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"ready": self.ready, **self.report}, status=200 if self.ready else 503
        )

    async def _execute(self, request: web.Request) -> web.StreamResponse:
        batch = msgspec.msgpack.decode(await request.read())
        seen = self.seen
        assert request.transport is not None
        seen.ports.add(request.transport.get_extra_info("peername")[1])
        seen.batches.append([item["requestId"] for item in batch["items"]])
        seen.inputs.extend(item["input"] for item in batch["items"])
        seen.deadlines_ms.extend(item["deadlineMs"] for item in batch["items"])
        seen.at_s.append(time.monotonic())
        seen.running += 1
        seen.peak = max(seen.peak, seen.running)
        try:
            return await self.behave(self, batch, request)
        except asyncio.CancelledError:
            seen.cancelled += 1
            raise
        finally:
            seen.running -= 1


def reply(batch: Batch, results: list[dict[str, Any]], execution_ms: float) -> web.Response:
    """A well-formed answer."""
    body = {"batchId": batch["batchId"], "executionMs": execution_ms, "results": results}
    return web.Response(body=msgspec.msgpack.encode(body), content_type="application/msgpack")


def success(item: dict[str, Any]) -> dict[str, Any]:
    """The result of one member: its input, echoed."""
    return {
        "requestId": item["requestId"],
        "output": f"echo:{item['input']}"[:80],
        "promptTokens": 10,
        "completionTokens": 3,
    }


def answers(delay_s: float = 0.0) -> Behaviour:
    """Serve after `delay_s`."""

    async def behave(_: ScriptedReplica, batch: Batch, __: web.Request) -> web.StreamResponse:
        if delay_s:
            await asyncio.sleep(delay_s)
        return reply(batch, [success(item) for item in batch["items"]], delay_s * 1000.0 + 0.1)

    return behave


def answers_after(gate: asyncio.Event) -> Behaviour:
    """Serve when the test opens the gate."""

    async def behave(_: ScriptedReplica, batch: Batch, __: web.Request) -> web.StreamResponse:
        await gate.wait()
        return reply(batch, [success(item) for item in batch["items"]], 20.0)

    return behave


def fails(status: int = 500, delay_s: float = 0.0, message: str = "it broke") -> Behaviour:
    """Answer every batch with an error."""

    async def behave(_: ScriptedReplica, __: Batch, ___: web.Request) -> web.StreamResponse:
        if delay_s:
            await asyncio.sleep(delay_s)
        return web.json_response({"error": {"message": message}}, status=status)

    return behave


def busy(retry_after_s: float = 0.05) -> Behaviour:
    """Answer 503 with Retry-After: backpressure, never a fault."""

    async def behave(_: ScriptedReplica, __: Batch, ___: web.Request) -> web.StreamResponse:
        return web.json_response(
            {"error": {"message": "busy"}},
            status=503,
            headers={"Retry-After": f"{retry_after_s:g}"},
        )

    return behave


def hangs() -> Behaviour:
    """Never answer."""

    async def behave(_: ScriptedReplica, __: Batch, ___: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return behave


def garbles() -> Behaviour:
    """Answer 200 with bytes that are no answer."""

    async def behave(_: ScriptedReplica, __: Batch, ___: web.Request) -> web.StreamResponse:
        return web.Response(body=b"\xc1 not an answer", content_type="application/msgpack")

    return behave


def rejects_items(bad: Callable[[dict[str, Any]], bool]) -> Behaviour:
    """Serve the batch, but refuse the members for which `bad` is true."""

    async def behave(_: ScriptedReplica, batch: Batch, __: web.Request) -> web.StreamResponse:
        results = [
            {"requestId": item["requestId"], "error": "cannot read this input", "status": 400}
            if bad(item)
            else success(item)
            for item in batch["items"]
        ]
        return reply(batch, results, 1.0)

    return behave


def fails_whole_if(bad: Callable[[dict[str, Any]], bool], status: int = 500) -> Behaviour:
    """Fail every batch that has a member for which `bad` is true."""

    async def behave(
        replica: ScriptedReplica, batch: Batch, request: web.Request
    ) -> web.StreamResponse:
        if any(bad(item) for item in batch["items"]):
            return web.json_response({"error": {"message": "the batch broke"}}, status=status)
        return await answers()(replica, batch, request)

    return behave
