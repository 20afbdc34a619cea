"""`Idempotency-Key`: the same request twice runs once and is billed once.

The first request with a key runs; one that comes meanwhile joins it and hears the same
answer from its beginning, stream or not; one that comes later gets the stored answer. The
same key with another body is a conflict (409). Answers worth trying again (429, 5xx) are
told to those who wait and then forgotten, so that a retry really runs.

Keys belong to a tenant's API key. The store is bounded in entries and bytes, oldest first,
and entries expire. It lives in this process: behind several gateways, duplicates must reach
the same one (by session affinity of the load balancer), and of a gateway with several
processes the kernel chooses one per connection, as the documentation says.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

from fleet.gateway.call import JSON, Begin, Call
from fleet.gateway.errors import Headers, Problem

TTL_S = 600.0
MAX_ENTRIES = 10_000
MAX_BYTES = 64 * 1024 * 1024
HEADER = b"idempotency-key"
Name = tuple[bytes, bytes]  # whose key (a digest), and the idempotency key


class SharedCall(Call):
    """One running request with any number of listeners; what it says is kept for late ones."""

    __slots__ = ("_listeners", "_on_end", "_said", "digest", "expires_s", "size", "status")

    def __init__(self, first: Call, digest: bytes, on_end: Callable[["SharedCall"], None]) -> None:
        super().__init__(first.method, first.path, first.query, first.headers, first.body)
        self.request_id = first.request_id
        self.digest = digest
        self.status: int | None = None
        self.size = 0
        self.expires_s = 0.0
        self._said: list[tuple[str, tuple[object, ...]]] = []
        self._listeners: list[Call] = []
        self._on_end = on_end
        self.join(first)

    def join(self, call: Call) -> None:
        """Let `call` hear everything, from the beginning."""
        call.body = b""
        for verb, words in self._said:
            getattr(call, verb)(*words)
        if not self.settled:
            self._listeners.append(call)
            call.owner = Listener(self, call)

    def left(self, call: Call) -> None:
        """A listener's client is gone; the work goes on while another one listens."""
        if call in self._listeners:
            self._listeners.remove(call)
        if not self._listeners and not self.settled:
            self.leave()
            self._on_end(self)

    @property
    def backlog(self) -> int:
        return max((call.backlog for call in self._listeners), default=0)

    def answer(self, status: int, body: bytes, headers: Headers = (), media: bytes = JSON) -> None:
        if not self.settled:
            self.status = status
            self.size += len(body)
            self._say("answer", status, body, headers, media)
            self._end()

    def open(self, status: int, headers: Headers = (), media: bytes = b"text/event-stream") -> None:
        if not self.settled and self.status is None:
            self.status = status
            self._say("open", status, headers, media)

    def write(self, chunk: bytes) -> None:
        if not self.settled and chunk:
            self.size += len(chunk)
            self._say("write", chunk)

    def close(self) -> None:
        if not self.settled:
            self._say("close")
            self._end()

    def _say(self, verb: str, *words: object) -> None:
        self._said.append((verb, words))
        for call in list(self._listeners):
            getattr(call, verb)(*words)

    def _end(self) -> None:
        self.settled = True
        self.owner = None
        self._listeners.clear()
        self._on_end(self)


class Listener:
    """The owner of a joined call: tells the shared one when its client leaves."""

    __slots__ = ("_call", "_shared")

    def __init__(self, shared: SharedCall, call: Call) -> None:
        self._shared = shared
        self._call = call

    def gone(self) -> None:
        self._shared.left(self._call)


class IdempotencyStore:
    """The requests of this process that carry a key. `wrap` puts it before an endpoint."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running: dict[Name, SharedCall] = {}
        self._stored: OrderedDict[Name, SharedCall] = OrderedDict()  # first: next to expire
        self._bytes = 0
        self.joined = 0
        self.replayed = 0

    def wrap(self, begin: Begin) -> Begin:
        """An endpoint that runs once per key."""

        def once(call: Call) -> None:
            key = call.headers.get(HEADER)
            if key is None:
                begin(call)
            else:
                self._once(key, call, begin)

        return once

    def _once(self, key: bytes, call: Call, begin: Begin) -> None:
        if not 1 <= len(key) <= 255:
            raise Problem(
                "invalid_request",
                "idempotency-key: must have from 1 to 255 characters",
                details={"field": "idempotency-key"},
            )
        self._forget_old()
        digest = hashlib.sha256(call.path.encode() + b"\0" + call.body).digest()
        whose = call.headers.get(b"x-api-key") or call.headers.get(b"authorization") or b""
        name = (hashlib.sha256(whose).digest(), key)
        known = self._running.get(name) or self._stored.get(name)
        if known is not None:
            if known.digest != digest:
                raise Problem(
                    "idempotency_conflict",
                    "idempotency-key: was used with another request body: use a new key",
                    details={"field": "idempotency-key"},
                )
            self.replayed += known.settled
            self.joined += not known.settled
            known.join(call)
            return
        shared = SharedCall(call, digest, lambda ended: self._ended(name, ended))
        self._running[name] = shared
        try:
            begin(shared)
        except Problem as problem:
            shared.fail(problem)
        except BaseException:
            self._running.pop(name, None)
            raise

    def _ended(self, name: Name, shared: SharedCall) -> None:
        self._running.pop(name, None)
        status = shared.status
        if status is None or status in (401, 403, 408, 429) or status >= 500:
            return
        shared.expires_s = self._clock() + TTL_S
        shared.body = b""
        self._stored[name] = shared
        self._bytes += shared.size
        while self._bytes > MAX_BYTES or len(self._stored) > MAX_ENTRIES:
            self._drop_oldest()

    def _forget_old(self) -> None:
        now_s = self._clock()
        while self._stored and next(iter(self._stored.values())).expires_s <= now_s:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, entry = self._stored.popitem(last=False)
        self._bytes -= entry.size
