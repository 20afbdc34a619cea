"""A call on the short road: its answer is one write to the connection, at once."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING

from fleet.gateway.auth import Opened
from fleet.gateway.call import JSON, Begin, Call
from fleet.gateway.errors import Headers
from fleet.gateway.transports.splice import Pipe

if TYPE_CHECKING:
    from fleet.gateway.wire import WireProtocol

_STATUS_LINE = {
    int(status): b"HTTP/1.1 %d %s\r\n" % (int(status), status.phrase.encode())
    for status in HTTPStatus
}
_CLOSE = b"connection: close\r\n"
_SERVED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-request-id: %b\r\n"
    b"content-length: %d\r\n\r\n%b"
)


class HotRoutes:
    """What the short road needs to know, shared by all connections of a process."""

    __slots__ = ("begin", "next_request_id", "observe")

    def __init__(
        self,
        begin: Mapping[bytes, Begin],
        next_request_id: Callable[[], str],
        observe: Callable[[str, int], None],
    ) -> None:
        self.begin = begin
        self.next_request_id = next_request_id
        self.observe = observe


class WireCall(Call):
    """A call on the short road. Its answer is written to the connection at once."""

    __slots__ = ("_begun", "_wire", "keep_alive")

    def __init__(
        self,
        wire: "WireProtocol",
        path: str,
        headers: Mapping[bytes, bytes],
        keep_alive: bool,
        opened: Opened | None = None,
        body: bytes = b"",
    ) -> None:
        self.method = "POST"
        self.path = path
        self.query = b""
        self.headers = headers
        self.body = body
        self.owner = None
        self.peer = None
        self.opened = opened
        self.settled = False
        self.request_id = wire.hot.next_request_id()
        self.keep_alive = keep_alive
        self._wire = wire
        self._begun = False

    def answer(self, status: int, body: bytes, headers: Headers = (), media: bytes = JSON) -> None:
        if self.settled or self._begun:
            return
        self.settled = True
        request_id = self.request_id.encode()
        if status == 200 and media is JSON and self.keep_alive and not headers:
            data = _SERVED % (request_id, len(body), body)
        else:
            head = self._head(status, (*headers, (b"content-length", b"%d" % len(body))), media)
            data = b"%b%b\r\n%b" % (head, b"" if self.keep_alive else _CLOSE, body)
        transport = self._wire.transport
        if not transport.is_closing():
            transport.write(data)
        self._done(status)

    def open(self, status: int, headers: Headers = (), media: bytes = b"text/event-stream") -> None:
        if self.settled or self._begun:
            return
        self._begun = True
        extra = ((b"cache-control", b"no-store"), (b"transfer-encoding", b"chunked"))
        head = self._head(status, (*headers, *extra), media)
        self._wire.write(b"%b%b\r\n" % (head, b"" if self.keep_alive else _CLOSE))
        self._wire.hot.observe(self.path, status)

    def write(self, chunk: bytes) -> None:
        if chunk and self._begun and not self.settled:
            transport = self._wire.transport
            if not transport.is_closing():
                transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    def pipe(self) -> Pipe | None:
        return self._wire.pipe() if self._begun and not self.settled else None

    @property
    def backlog(self) -> int:
        return self._wire.transport.get_write_buffer_size()

    def close(self) -> None:
        if self._begun and not self.settled:
            self.settled = True
            self._wire.write(b"0\r\n\r\n")
            self._done(None)

    def _head(self, status: int, headers: Headers, media: bytes) -> bytes:
        line = _STATUS_LINE.get(status) or b"HTTP/1.1 %d Status\r\n" % status
        parts = [line, b"content-type: ", media, b"\r\nx-request-id: "]
        parts += [self.request_id.encode(), b"\r\n"]
        for name, value in headers:
            parts += [name, b": ", value, b"\r\n"]
        return b"".join(parts)

    def _done(self, status: int | None) -> None:
        self.owner = None
        if status is not None:
            self._wire.hot.observe(self.path, status)
        self._wire.finished(self)
