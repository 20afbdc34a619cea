"""One keep-alive connection to a replica, one exchange on it at a time.

The parser is httptools (llhttp, as in Node). A connection that dies is judged here, because
only here it is known what was sent and what came back: see `Exchange.may_resend`.

A stream is mostly reads of one whole chunk each. Between two chunks the parser waits for the
size of the next, so a whole one can go by without it, at a third of the cost (ADR 92).
"""

import asyncio
import time
from collections.abc import Callable
from typing import cast

import httptools

from fleet.gateway.transports.chunked import one_chunk

MAX_ANSWER_BYTES = 64 * 1024 * 1024
STALE_WINDOW_S = 0.1  # a reused connection that dies this soon, unanswered, was closed already
DEFAULT_KEEP_S = 30.0

OnAnswer = Callable[[int, dict[bytes, bytes], bytes], None]
OnFailure = Callable[[str], None]
OnChunk = Callable[[bytes], None]
ShortRoad = Callable[[bytes], bool]


def _nobody(*_: object) -> None:
    """Takes the place of callbacks that were called."""


class Exchange:
    """A request and whoever waits for its answer. Exactly one of the two callbacks is called,
    or neither after `cancel`."""

    __slots__ = (
        "address",
        "connection",
        "data",
        "deadline_s",
        "on_answer",
        "on_chunk",
        "on_failure",
        "over",
        "resent",
        "sent_s",
    )

    def __init__(
        self, address: str, data: bytes, deadline_s: float, answer: OnAnswer, failure: OnFailure
    ) -> None:
        self.address = address
        self.data = data
        self.deadline_s = deadline_s
        self.on_answer = answer
        self.on_failure = failure
        self.on_chunk: OnChunk | None = None  # set: a 2xx body goes here as it comes
        self.connection: Connection | None = None
        self.over = False
        self.resent = False
        self.sent_s = 0.0

    def cancel(self) -> None:
        """Close the connection and forget the callbacks: upstream work stops with it."""
        if not self.over:
            self._end()

    def pause(self) -> None:
        """Stop reading the answer: whoever it is for does not keep up."""
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        """Go on reading."""
        if self.connection is not None:
            self.connection.resume()

    def shorten(self, road: ShortRoad | None) -> None:
        """Ask `road` first about every read between two chunks; True: it took the read."""
        if self.connection is not None:
            self.connection.short_road = road

    def answered(self, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        if not self.over:
            callback = self.on_answer
            self._end()
            callback(status, headers, body)

    def failed(self, why: str) -> None:
        if not self.over:
            callback = self.on_failure
            self._end()
            callback(why)

    def _end(self) -> None:
        """Let go of everything: whoever waits usually holds the exchange in turn."""
        self.over = True
        self.on_answer = self.on_failure = _nobody
        self.on_chunk = None
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.kill()

    def may_resend(self, connection: "Connection") -> bool:
        """Whether the loss of `connection` says nothing about the replica: it was idle before,
        it died at once, and not a byte came back, so the replica had closed it already."""
        return (
            not self.over
            and not self.resent
            and connection.uses > 1
            and not connection.heard
            and time.monotonic() - self.sent_s < STALE_WINDOW_S
        )


class Connection(asyncio.Protocol):
    """A connection. `release` takes it back when an exchange is over, `lost` when it is gone."""

    def __init__(
        self,
        address: str,
        release: Callable[["Connection"], None],
        lost: Callable[["Connection", Exchange | None], None],
    ) -> None:
        self.address = address
        self.uses = 0
        self.heard = False  # a byte of the current answer arrived
        self.idle_s = time.monotonic()
        self.keep_s = DEFAULT_KEEP_S
        self.closed = False
        self.short_road: ShortRoad | None = None  # asked first about a read between two chunks
        self._release = release
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._until_close = False
        self._between_chunks = False

    # -- asyncio -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class

    def data_received(self, data: bytes) -> None:
        if self._between_chunks:
            take = self.short_road
            if take is not None and take(data):
                return
        self.heard = True
        exchange = self._exchange
        if exchange is None:
            self.kill()  # nobody asked for anything
            return
        if self._between_chunks and exchange.on_chunk is not None:
            chunk = one_chunk(data)
            if chunk is not None:
                exchange.on_chunk(chunk)
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"malformed answer: {error}")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        exchange, self._exchange = self._exchange, None
        if exchange is not None and self._until_close and exc is None:
            body = b"".join(self._body)
            exchange.connection = None
            exchange.answered(self._parser.get_status_code(), self._headers, body)
            exchange = None
        self._lost(self, exchange)
        self._transport = None  # the parser, the transport and this hold each other
        del self._parser

    # -- exchanges ---------------------------------------------------------------------

    def send(self, exchange: Exchange) -> None:
        """Send a request. The connection must be idle."""
        assert self._transport is not None
        self.uses += 1
        self.heard = False
        self._exchange = exchange
        exchange.connection = self
        exchange.sent_s = time.monotonic()
        self._transport.write(exchange.data)

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self.closed:
            self._transport.resume_reading()

    def kill(self) -> None:
        """Close at once."""
        self.closed = True
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""
        return (
            not self.closed
            and self._transport is not None
            and not self._transport.is_closing()
            and time.monotonic() - self.idle_s < self.keep_s
        )

    @property
    def _is_good(self) -> bool:
        """Whether the answer is one whose body goes to `on_chunk` as it comes."""
        return 200 <= self._parser.get_status_code() < 300

    # -- parser ------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers = {}
        self._body = []
        self._size = 0
        self._until_close = False
        self._between_chunks = False
        self.short_road = None

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        headers = self._headers
        self._until_close = b"content-length" not in headers and b"transfer-encoding" not in headers
        if hint := headers.get(b"keep-alive"):
            self.keep_s = _keep_alive_s(hint)

    def on_chunk_header(self) -> None:
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        self._between_chunks = self._is_good

    def on_body(self, body: bytes) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.on_chunk is not None and self._is_good:
            exchange.on_chunk(body)
            return
        self._size += len(body)
        if self._size > MAX_ANSWER_BYTES:
            self._fail(f"the answer is over {MAX_ANSWER_BYTES} bytes")
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._between_chunks = False
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        parser = self._parser
        status = parser.get_status_code()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        exchange.connection = None
        if parser.should_keep_alive():
            self.idle_s = time.monotonic()
            self._release(self)
        else:
            self.kill()
        exchange.answered(status, self._headers, body)

    def _fail(self, why: str) -> None:
        exchange, self._exchange = self._exchange, None
        self.kill()
        if exchange is not None:
            exchange.connection = None
            exchange.failed(why)


def _keep_alive_s(hint: bytes) -> float:
    """`Keep-Alive: timeout=5` with a tenth taken off, so that we let go first."""
    for part in hint.split(b","):
        name, _, value = part.strip().partition(b"=")
        if name.strip().lower() == b"timeout" and value.strip().isdigit():
            return min(int(value) * 0.9, DEFAULT_KEEP_S)
    return DEFAULT_KEEP_S
