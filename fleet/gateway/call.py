"""One HTTP request as an endpoint sees it, whichever road it came by.

Two roads lead to an endpoint: `app` (plain ASGI, any server) and `wire` (the same endpoint,
called straight from uvicorn's parser, a third of the CPU). Both hand over a `Call` with the
body read, and take the answer through `answer`, or `open`, `write`, `close` for a stream.

A client that leaves is told to the `owner`, whoever works on the call then. After an answer,
or after the client left, nothing more may be said: late writes are dropped.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from fleet.gateway.auth import Opened
from fleet.gateway.errors import Headers, Problem, envelope
from fleet.gateway.openai import errors as openai
from fleet.gateway.transports.splice import Pipe

JSON = b"application/json"


class Owner(Protocol):
    """Whoever works on a call and wants to know that nobody waits for it any more."""

    def gone(self) -> None: ...


class Call:
    """A request with its body read. Subclasses carry the answer back."""

    __slots__ = (
        "body",
        "headers",
        "method",
        "opened",
        "owner",
        "path",
        "peer",
        "query",
        "request_id",
        "settled",
    )

    def __init__(
        self, method: str, path: str, query: bytes, headers: Mapping[bytes, bytes], body: bytes
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.request_id = ""
        self.peer: str | None = None  # the address at the other end, where it is known
        self.opened: Opened | None = None  # what this connection's key opened before
        self.owner: Owner | None = None
        self.settled = False

    def answer(self, status: int, body: bytes, headers: Headers = (), media: bytes = JSON) -> None:
        """Say everything at once."""
        raise NotImplementedError

    def open(self, status: int, headers: Headers = (), media: bytes = b"text/event-stream") -> None:
        """Begin a stream."""
        raise NotImplementedError

    def write(self, chunk: bytes) -> None:
        """Say a part of a stream."""
        raise NotImplementedError

    def close(self) -> None:
        """End a stream."""
        raise NotImplementedError

    def pipe(self) -> Pipe | None:
        """Where chunks of the chunked coding may be written as they are, after `open`."""
        return None

    @property
    def backlog(self) -> int:
        """Bytes that the client has not taken yet."""
        return 0

    def fail(self, problem: Problem) -> None:
        """Answer with the envelope of the protocol that was spoken."""
        shape = openai.envelope if openai.speaks(self.path) else envelope
        status, body, headers = shape(problem, self.request_id)
        self.answer(status, body, headers)

    def leave(self) -> None:
        """The client left."""
        if self.settled:
            return
        self.settled = True
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.gone()


Begin = Callable[[Call], Awaitable[None] | None]
