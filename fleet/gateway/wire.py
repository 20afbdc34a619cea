"""The short road: hot endpoints called straight from uvicorn's HTTP parser.

Uvicorn's ASGI costs a task, an event, a scope and two message dicts a request: about 30 us
that say nothing about inference. `WireProtocol` is uvicorn's own httptools protocol with one
more way out: a complete POST to a hot path becomes a `WireCall` and its answer is one write.
Everything else (other paths, large or chunked bodies, `Expect`, HTTP/1.0) takes the ASGI
road unchanged, and so does every error of the protocol itself.

Answers leave in the order of their requests. A pipelined hot request waits its turn; one of
another kind behind a pending hot one closes the connection after the answer, which HTTP/1.1
lets a server do and every pipelining client must handle.

Idle connections are closed by a sweep of the server, not by a timer each.
"""

import asyncio
import time
from collections import deque
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from fleet.gateway import known_head
from fleet.gateway.app import fail_whole, require_media
from fleet.gateway.call import JSON, Begin, Call
from fleet.gateway.known_head import KnownHead
from fleet.gateway.transports.splice import Pipe
from fleet.gateway.wire_call import HotRoutes, WireCall

SHORT_BODY = 64 * 1024  # larger bodies stream in on the ASGI road, under its limits
MAX_PIPELINED = 32
HEADS_TRIED = 4  # a client whose heads keep changing is not learned from any more


class WireProtocol(HttpToolsProtocol):
    """One connection. Use as uvicorn's `http=functools.partial(WireProtocol, hot=...)`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        hot: HotRoutes,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.hot = hot
        self.since = time.monotonic()  # when this connection last began to wait for its client
        self._pipe: Pipe | None = None
        self._call: WireCall | None = None  # the one being answered
        self._arriving: WireCall | None = None  # the one whose body is being read
        self._begin: Begin | None = None
        self._queue: deque[tuple[WireCall, Begin]] = deque()
        self._deaf = False  # a request of another kind came behind a hot one: close after it
        self._between = True  # the parser is between two messages
        self._head: KnownHead | None = None  # what this client sends with every request
        self._heads_tried = 0
        self._read: WireCall | None = None  # the last one that the parser read

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        if (
            self._between
            and self._call is None
            and not self._queue
            and not self._deaf
            and (cycle is None or cycle.response_complete)
        ):
            head = self._head
            if head is not None:
                body = head.body_of(data, SHORT_BODY)
                if body is not None:
                    if cycle is not None:
                        self._unset_keepalive_if_required()
                    call = WireCall(self, head.path, head.headers, True, head.opened, body)
                    self._start(call, head.begin)
                    return
            if self._heads_tried < HEADS_TRIED:
                self._learn(data)
                return
        super().data_received(data)

    def _learn(self, data: bytes) -> None:
        """Let the parser read `data`, and keep its head if it was one whole hot request."""
        self._read = None
        super().data_received(data)
        call, self._read = self._read, None
        if call is not None and call.keep_alive and self._between:
            begin = self.hot.begin[call.path.encode()]
            learned = known_head.learn(data, call.path, call.headers, begin, SHORT_BODY)
            self._head = learned or self._head
            self._heads_tried += 1

    # -- parser callbacks --------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._between = False
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        if self._deaf:
            return
        begin = self.hot.begin.get(self.url)
        if begin is not None and self._is_short():
            self._begin = begin
            self._arriving = WireCall(
                self, self.url.decode(), dict(self.headers), self.parser.should_keep_alive()
            )
            return
        if self._call is not None:
            self._deaf = True
            self._call.keep_alive = False
            return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url = url
        self.headers.extend(headers)
        self.expect_100_continue = expects
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._arriving is not None:
            self._arriving.body += body
        elif not self._deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._between = True
        call, begin = self._arriving, self._begin
        if call is None or begin is None:
            if not self._deaf:
                super().on_message_complete()
            return
        self._arriving = self._begin = None
        self._read = call
        if self._call is None and not self._queue:
            self._start(call, begin)
        elif len(self._queue) < MAX_PIPELINED:
            self._queue.append((call, begin))
        else:
            self._deaf = True
            self._queue[-1][0].keep_alive = False

    # -- transport callbacks -----------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        if self._pipe is not None:
            self._pipe.lags = True
        self._queue.clear()
        self._arriving = self._read = None
        call, self._call = self._call, None
        if call is not None:
            call.leave()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        if self._pipe is not None:
            self._pipe.lags = True
        super().pause_writing()

    def resume_writing(self) -> None:
        if self._pipe is not None:
            self._pipe.lags = False
        super().resume_writing()

    def on_response_complete(self) -> None:
        self.since = time.monotonic()
        super().on_response_complete()

    def shutdown(self) -> None:
        """Asked by the server to finish: now if idle, after the answer if not."""
        if self._call is not None:
            self._call.keep_alive = False
            for call, _ in self._queue:
                call.keep_alive = False
        else:
            super().shutdown()

    # -- answers -----------------------------------------------------------------------

    def pipe(self) -> Pipe:
        """The way to this client for chunks that are ready to be sent."""
        if self._pipe is None:
            self._pipe = Pipe(self.transport.write, lags=self.flow.write_paused)
        return self._pipe

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def finished(self, call: WireCall) -> None:
        """`call` has its whole answer: take the next one in line."""
        self.server_state.total_requests += 1
        self._call = None
        if not call.keep_alive:
            self._queue.clear()
            self.transport.close()
        elif self._queue:
            self.loop.call_soon(self._next)
        else:
            self.since = time.monotonic()

    def idle_since(self) -> float | None:
        """Since when this connection waits for its client, or None where the client waits."""
        if self._call is not None or (self.cycle is not None and not self.cycle.response_complete):
            return None
        return self.since

    def _next(self) -> None:
        if self._call is None and self._queue and not self.transport.is_closing():
            self._start(*self._queue.popleft())

    def _start(self, call: WireCall, begin: Begin) -> None:
        self._call = call
        try:
            require_media(call, JSON)
            pending = begin(call)
        except Exception as error:
            fail_whole(call, error)
            return
        if pending is not None:
            task = asyncio.ensure_future(_waiting(pending, call))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def _is_short(self) -> bool:
        """Whether the message can take the short road from its head alone."""
        if self.expect_100_continue or (self.cycle and not self.cycle.response_complete):
            return False
        if self.parser.get_method() != b"POST" or self.parser.get_http_version() != "1.1":
            return False
        for name, value in self.headers:
            if name == b"content-length":
                return len(value) < 6 and value.isdigit() and int(value) <= SHORT_BODY
            if name == b"upgrade":
                return False
        return False


async def _waiting(pending: Any, call: Call) -> None:
    try:
        await pending
    except Exception as error:
        fail_whole(call, error)
