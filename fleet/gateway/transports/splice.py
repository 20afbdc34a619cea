"""The shortest road of a streamed event: off the server's socket, on to the client's, as it is.

Most reads of a stream are one chunk of the chunked coding with one event in it, and most
events are like the last one but for their text (`StreamWatch` learns what stands around it).
Where the client is sent the chunked coding too, such a read is already what it has to be
sent: nothing is cut out and nothing is put around it again. Five comparisons show that it is
one more piece of text and can be no end, usage or error; counting it is an addition.

Whatever differs, and everything for a client that does not keep up, takes the long road
(`Upstream.chunk`), where the same counts are kept. ADR 93 has the costs.
"""

import asyncio
from typing import Protocol

from engine.types import Request
from fleet.gateway.openai.events import StreamWatch
from fleet.gateway.transports.chunked import MAX_READ, SIZE_LINES

_BACKSLASH = ord("\\")


class Pipe(Protocol):
    """A client that is sent the chunked coding."""

    lags: bool  # more waits for it than its connection likes to hold

    @property
    def transport(self) -> asyncio.Transport: ...


class Splice:
    """The short road of one stream. `take` is asked first, between two chunks."""

    __slots__ = ("_after", "_before", "_pipe", "_request", "_watch")

    def __init__(self, watch: StreamWatch, request: Request, pipe: Pipe) -> None:
        self._watch = watch
        self._request = request
        self._pipe = pipe
        self._before, self._after = watch.around[0], watch.around[1] + b"\r\n"

    def take(self, data: bytes) -> bool:
        """Pass `data` on, if it is one more piece of text and nothing else."""
        size = len(data)
        pipe = self._pipe
        if size >= MAX_READ or pipe.lags:
            return False
        lines = SIZE_LINES[size]
        if not data.startswith(lines):
            return False
        before, after = self._before, self._after
        begin = len(lines[0])
        if not data.startswith(before, begin) or not data.endswith(after):
            return False
        begin += len(before)
        end = size - len(after)
        if begin >= end or data.find(b'"', begin, end) >= 0 or data[end - 1] == _BACKSLASH:
            return False
        self._watch.pieces += 1
        self._request.tokens_spent += 1
        transport = pipe.transport
        if not transport.is_closing():
            transport.write(data)
        return True
