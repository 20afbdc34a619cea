"""A small HTTP/1.1 client for replicas: keep-alive pools, deadlines, and no task per request.

aiohttp costs 150-200 us of CPU an exchange (measured, ADR 0071), half of the whole budget
of a request when batches are small; this costs about 25. It does what a scheduler needs and
no more: POST and GET with a body in memory, one answer in memory, cancel by closing.

A request on a reused connection that the replica had closed already is sent again, once,
on a fresh one. A replica that dies with work in its hands is not such a case: bytes had
time to travel, and the scheduler decides about retries.
"""

import asyncio
import contextlib
import ipaddress
import ssl
import time
from collections import deque
from urllib.parse import urlsplit

from fleet.forbidden import is_forbidden
from fleet.gateway.transports.connection import Connection, Exchange, OnAnswer, OnFailure

CONNECT_TIMEOUT_S = 1.0
LATE_S = 0.1  # a limit that fires so much too late says that this process stood still
SWEEP_S = 0.5  # how long what is over is remembered; a deadline that comes sooner is kept
IDLE_SWEEP_S = 2.0  # with nothing under way there are only idle connections to close
NOT_BEFORE_S = 0.005  # a timer may be that early
MAX_IDLE_PER_REPLICA = 64


class Endpoint:
    """Where an address leads, parsed once."""

    __slots__ = ("_heads", "host", "is_name", "netloc", "port", "prefix", "secure")

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"address {address!r}: must be http://host:port or https://host:port")
        self.secure = parts.scheme == "https"
        self.host = parts.hostname
        self.is_name = not _is_ip(self.host)
        self.port = parts.port or (443 if self.secure else 80)
        self.netloc = parts.netloc.rpartition("@")[2]
        self.prefix = parts.path.rstrip("/")
        self._heads: dict[tuple[str, str, bytes, bytes], bytes] = {}

    def request(self, method: str, path: str, extra: bytes, media: bytes, body: bytes) -> bytes:
        """The bytes of a request. `extra` is whole header lines."""
        key = (method, path, extra, media)
        head = self._heads.get(key)
        if head is None:
            line = f"{method} {self.prefix}{path} HTTP/1.1\r\nhost: {self.netloc}\r\n".encode()
            typed = b"content-type: %b\r\naccept: %b\r\n" % (media, media) if media else b""
            head = line + extra + typed + b"content-length: "
            if len(self._heads) < 32:
                self._heads[key] = head
        return b"%b%d\r\n\r\n%b" % (head, len(body), body)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class HttpClient:
    """Pools of connections by address. Not thread-safe: one event loop."""

    def __init__(self, *, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self._loop = asyncio.get_running_loop()
        self._connect_timeout_s = connect_timeout_s
        self._endpoints: dict[str, Endpoint] = {}
        self._idle: dict[str, deque[Connection]] = {}
        self._open: set[Connection] = set()
        self._pending: set[Exchange] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_s = 0.0  # when it comes, on `time.monotonic`
        self._tls: ssl.SSLContext | None = None
        self.resent = 0

    def request(
        self,
        address: str,
        method: str,
        path: str,
        deadline_s: float,
        on_answer: OnAnswer,
        on_failure: OnFailure,
        *,
        body: bytes = b"",
        media: bytes = b"",
        extra: bytes = b"",
    ) -> Exchange:
        """Send a request; `deadline_s` is on `time.monotonic`. Callbacks come later, never now.
        Raises `ValueError` for an address that is none."""
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            if len(self._endpoints) > 4096:
                self._endpoints.clear()
            endpoint = self._endpoints[address] = Endpoint(address)
        data = endpoint.request(method, path, extra, media, body)
        exchange = Exchange(address, data, deadline_s, on_answer, on_failure)
        self._pending.add(exchange)
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if connection.usable:
                connection.send(exchange)
                break
            connection.kill()
        else:
            self._connect(endpoint, exchange)
        if self._sweeper is None or deadline_s < self._sweep_s:
            self._sweep_at(min(deadline_s, time.monotonic() + SWEEP_S))
        return exchange

    async def close(self) -> None:
        """Close every connection; what was pending is forgotten."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for exchange in list(self._pending):
            exchange.cancel()
        for task in list(self._connecting):
            task.cancel()
        for connection in list(self._open):
            connection.kill()
        if self._connecting:
            await asyncio.wait(self._connecting, timeout=1.0)

    def _connect(self, endpoint: Endpoint, exchange: Exchange) -> None:
        task = self._loop.create_task(self._connected(endpoint, exchange))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connected(self, endpoint: Endpoint, exchange: Exchange) -> None:
        began_s = time.monotonic()
        limit_s = min(self._connect_timeout_s, max(exchange.deadline_s - began_s, 0.001))
        try:
            async with asyncio.timeout(limit_s):
                transport, connection = await self._loop.create_connection(
                    lambda: Connection(exchange.address, self._release, self._lost),
                    endpoint.host,
                    endpoint.port,
                    ssl=self._tls_context() if endpoint.secure else None,
                )
        except TimeoutError:
            now_s = time.monotonic()
            late = now_s - began_s - limit_s > LATE_S
            if late and not exchange.over and now_s < exchange.deadline_s:
                self._connect(endpoint, exchange)  # no replica's fault
                return
            exchange.failed(f"no connection within {limit_s * 1000:.0f} ms")
        except (OSError, UnicodeError) as error:
            exchange.failed(f"cannot connect: {getattr(error, 'strerror', None) or error}")
        else:
            self._open.add(connection)
            # a name was judged when it was written down; where it leads now is another question
            peer = transport.get_extra_info("peername") if endpoint.is_name else None
            if peer and is_forbidden(peer[0]):
                connection.kill()
                exchange.failed(f"{endpoint.host} leads to an address that is never allowed")
            elif exchange.over:
                connection.kill()
            else:
                connection.send(exchange)
        if exchange.over:
            self._pending.discard(exchange)

    def _release(self, connection: Connection) -> None:
        idle = self._idle.get(connection.address)
        if idle is None:
            idle = self._idle[connection.address] = deque()
        if len(idle) < MAX_IDLE_PER_REPLICA:
            idle.append(connection)
        else:
            connection.kill()

    def _lost(self, connection: Connection, exchange: Exchange | None) -> None:
        self._open.discard(connection)
        idle = self._idle.get(connection.address)
        if idle is not None:
            with contextlib.suppress(ValueError):
                idle.remove(connection)
            if not idle:
                del self._idle[connection.address]
        if exchange is None:
            return
        exchange.connection = None
        if exchange.may_resend(connection):
            exchange.resent = True
            self.resent += 1
            self._connect(self._endpoints[exchange.address], exchange)
        else:
            exchange.failed("the connection closed before an answer")

    def _sweep(self) -> None:
        """Fail what is past its deadline, forget what is over, close what idled too long."""
        self._sweeper = None
        now_s = time.monotonic()
        next_s = now_s + SWEEP_S
        for exchange in list(self._pending):
            if exchange.over or exchange.deadline_s <= now_s:
                self._pending.discard(exchange)
                exchange.failed("no answer in time")
            else:
                next_s = min(next_s, exchange.deadline_s)
        for idle in list(self._idle.values()):
            while idle and not idle[0].usable:
                idle.popleft().kill()
        if self._pending or self._open:
            self._sweep_at(next_s if self._pending else now_s + IDLE_SWEEP_S)

    def _sweep_at(self, at_s: float) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        delay_s = max(at_s - time.monotonic(), NOT_BEFORE_S)
        self._sweep_s = at_s
        self._sweeper = self._loop.call_later(delay_s, self._sweep)

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls
