"""Just enough ASGI: routes, an answer as a value that can be raised, bodies, disconnects."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fleet.replica.wire import JSON, encode

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MAX_BODY_BYTES = 64 * 1024 * 1024


class Reply(Exception):
    """An answer, raised from wherever it is known."""

    def __init__(
        self, status: int, value: Any, media: bytes = JSON, headers: Headers | None = None
    ) -> None:
        super().__init__(status)
        self.status = status
        self.body = value if isinstance(value, bytes) else encode(value, media)
        self.media = media
        self.headers = headers or []


class ClientGone(Exception):
    """Nobody waits for the answer."""


Handler = Callable[[Scope, Receive], Awaitable[Reply]]


class Router:
    """An ASGI application made of (method, path) -> handler."""

    def __init__(self) -> None:
        self.routes: dict[tuple[str, str], Handler] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        path = scope["path"].rstrip("/") or "/"
        handler = self.routes.get((method, path))
        try:
            reply = self._no_route(path) if handler is None else await handler(scope, receive)
        except Reply as raised:
            reply = raised
        except ClientGone:
            return
        start = {
            "type": "http.response.start",
            "status": reply.status,
            "headers": [
                (b"content-type", reply.media),
                (b"content-length", str(len(reply.body)).encode()),
                *reply.headers,
            ],
        }
        await send(start)
        body = b"" if scope["method"] == "HEAD" else reply.body
        await send({"type": "http.response.body", "body": body})

    def _no_route(self, path: str) -> Reply:
        allowed = sorted(method for method, known in self.routes if known == path)
        if allowed:
            headers = [(b"allow", ", ".join(allowed).encode())]
            return error_reply(405, "method_not_allowed", f"use {', '.join(allowed)}", headers)
        known = ", ".join(sorted({path for _, path in self.routes}))
        return error_reply(404, "not_found", f"no such path; there are {known}")


def error_reply(
    status: int, code: str, message: str, headers: Headers | None = None, media: bytes = JSON
) -> Reply:
    """The error envelope."""
    return Reply(status, {"error": {"code": code, "message": message}}, media, headers)


def header(scope: Scope, name: bytes) -> bytes:
    """A request header, empty where it is absent."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return b""


async def read_body(receive: Receive) -> bytes:
    """The whole body, or 413."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise error_reply(413, "payload_too_large", f"body: more than {MAX_BODY_BYTES} bytes")
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks) if len(chunks) > 1 else chunk


async def disconnected(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def bad_request(field: str, message: str) -> dict[str, str]:
    """The body of a 400 that names the field."""
    return {"error": "invalid_request", "field": field, "message": message}
