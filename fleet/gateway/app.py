"""The gateway as a plain ASGI application: find the endpoint, read the body, carry the answer.

Nothing here knows what an endpoint does. The body is bounded before it is read (a declared
length over the limit is refused at once, an undeclared one as soon as it passes the limit)
and must arrive within `body_timeout_s`. Whatever goes wrong leaves as the one envelope.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from fleet.gateway.call import JSON, Begin, Call
from fleet.gateway.errors import Headers, Problem
from fleet.gateway.routing_table import RoutingTable

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

DEFAULT_BODY_LIMIT = 2 * 1024 * 1024
BODY_TIMEOUT_S = 30.0
LINGER_BYTES, LINGER_S = 16 * 1024 * 1024, 2.0

log = logging.getLogger("halcyon.gateway")


class AsgiCall(Call):
    """A call that came by ASGI: what is said queues up and a task sends it."""

    __slots__ = ("_started", "out", "wake")

    def __init__(self, method: str, path: str, query: bytes, headers: Mapping[bytes, bytes]):
        super().__init__(method, path, query, headers, b"")
        self.out: deque[Message] = deque()
        self.wake = asyncio.Event()
        self._started = False

    def answer(self, status: int, body: bytes, headers: Headers = (), media: bytes = JSON) -> None:
        if self.settled or self._started:
            return
        length = (b"content-length", b"%d" % len(body))
        self._start(status, (*headers, length), media)
        self.out.append({"type": "http.response.body", "body": body})
        self.settled = True

    def open(self, status: int, headers: Headers = (), media: bytes = b"text/event-stream") -> None:
        if not self.settled and not self._started:
            self._start(status, (*headers, (b"cache-control", b"no-store")), media)

    def write(self, chunk: bytes) -> None:
        if not self.settled and chunk:
            self.out.append({"type": "http.response.body", "body": chunk, "more_body": True})
            self.wake.set()

    @property
    def backlog(self) -> int:
        return sum(len(message.get("body", b"")) for message in self.out)

    def close(self) -> None:
        if not self.settled:
            self.out.append({"type": "http.response.body", "body": b""})
            self.settled = True
            self.wake.set()

    def leave(self) -> None:
        super().leave()
        self.wake.set()

    def _start(self, status: int, headers: Headers, media: bytes) -> None:
        self._started = True
        known = [(b"content-type", media), *headers]
        if self.request_id:
            known.append((b"x-request-id", self.request_id.encode()))
        self.out.append({"type": "http.response.start", "status": status, "headers": known})
        self.wake.set()


class GatewayApp:
    """ASGI 3. `next_request_id` names the calls, `observe` counts answers by route and status."""

    def __init__(
        self,
        table: RoutingTable,
        next_request_id: Callable[[], str],
        *,
        body_limit: int = DEFAULT_BODY_LIMIT,
        body_timeout_s: float = BODY_TIMEOUT_S,
        observe: Callable[[str, int], None] = lambda _path, _status: None,
    ) -> None:
        self.table = table
        self.body_limit = body_limit
        self._next_request_id = next_request_id
        self._body_timeout_s = body_timeout_s
        self._observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        call = AsgiCall(
            scope["method"], scope["path"], scope["query_string"], dict(scope["headers"])
        )
        call.request_id = self._next_request_id()
        call.peer = scope["client"][0] if scope.get("client") else None
        label = "other"
        unread = False
        try:
            begin, route = self.table.find(call.method, call.path)
            label = route.path
            require_media(call, route.media)
            unread = call.method == "POST"
            call.body = await self._read(call, receive)
            unread = False
        except Problem as problem:
            if unread and problem.status in (408, 413):
                problem.headers = (*problem.headers, (b"connection", b"close"))
            call.fail(problem)
            self._observe(label, problem.status)
            await _send_all(call, send, receive if problem.status == 413 else None)
            return
        except ClientLeft:
            return
        await self._serve(call, begin, label, receive, send)

    async def _serve(
        self, call: AsgiCall, begin: Begin, label: str, receive: Receive, send: Send
    ) -> None:
        listening = asyncio.ensure_future(_until_left(receive, call))
        working: asyncio.Future[None] | None = None
        try:
            try:
                pending = begin(call)
                if pending is not None:
                    working = asyncio.ensure_future(pending)
                    working.add_done_callback(lambda task: _ended(task, call))
            except Exception as error:
                fail_whole(call, error)
            while True:
                await call.wake.wait()
                call.wake.clear()
                while call.out:
                    message = call.out.popleft()
                    if message["type"] == "http.response.start":
                        self._observe(label, message["status"])
                    await send(message)
                if call.settled:
                    return
        finally:
            listening.cancel()
            if working is not None and not working.done():
                working.cancel()
            call.leave()

    async def _read(self, call: Call, receive: Receive) -> bytes:
        limit = self.body_limit
        declared = call.headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            raise too_large(limit, int(declared))
        try:
            async with asyncio.timeout(self._body_timeout_s):
                message = await receive()
                if not message.get("more_body"):
                    if message["type"] == "http.disconnect":
                        raise ClientLeft
                    return bytes(message.get("body", b""))
                body = bytearray(message.get("body", b""))
                while message.get("more_body"):
                    if len(body) > limit:
                        raise too_large(limit, None)
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientLeft
                    body += message.get("body", b"")
        except TimeoutError:
            raise Problem(
                "request_timeout",
                f"body: did not arrive within {self._body_timeout_s:g} s",
                details={"field": "body"},
            ) from None
        if len(body) > limit:
            raise too_large(limit, len(body))
        return bytes(body)


class ClientLeft(Exception):
    """The client left before its body was read."""


def too_large(limit: int, size: int | None) -> Problem:
    """A body over the limit."""
    said = "" if size is None else f" of {size} bytes"
    return Problem(
        "payload_too_large",
        f"body{said} is over the limit of {limit} bytes",
        details={"field": "body", "limitName": "body_bytes", "limit": limit, "used": size},
    )


def require_media(call: Call, media: bytes | None) -> None:
    """Refuse a body that claims to be something else than the route takes."""
    if media is None or call.method != "POST":
        return
    sent = call.headers.get(b"content-type")
    if sent is None or sent == media:
        return
    if sent.partition(b";")[0].strip().lower() != media:
        wanted = media.decode()
        shown = sent[:80].decode("latin-1")
        raise Problem(
            "unsupported_media_type",
            f"content-type: must be {wanted}, not {shown!r}",
            details={"field": "content-type", "accepted": [wanted]},
            headers=((b"accept", media),),
        )


def fail_whole(call: Call, error: Exception) -> None:
    """Answer a call whose endpoint raised."""
    if isinstance(error, Problem):
        call.fail(error)
        return
    log.error("the endpoint of %s raised", call.path, exc_info=error)
    call.fail(Problem("internal_error", "the gateway failed; its log has the reason"))


def _ended(task: "asyncio.Future[None]", call: Call) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if isinstance(error, Exception):
        fail_whole(call, error)


async def _until_left(receive: Receive, call: AsgiCall) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    call.leave()


async def _send_all(call: AsgiCall, send: Send, drain: Receive | None) -> None:
    """Send a refusal. With `drain`, swallow what the client is still sending first, so that
    it reads the answer instead of a reset."""
    while call.out:
        message = call.out.popleft()
        if drain is not None and message["type"] == "http.response.body":
            await send({**message, "more_body": True})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    await _swallow(drain)
            message = {"type": "http.response.body", "body": b""}
        await send(message)


async def _swallow(receive: Receive) -> None:
    swallowed = 0
    while swallowed < LINGER_BYTES:
        message = await receive()
        swallowed += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
