"""The shortest road of a streamed event: off the server's socket, on to the client's, as it is.

Most reads of a stream are one chunk of the chunked coding with one event in it, and most
events are like the last one but for their text (`StreamWatch` learns what stands around it).
Where the client is sent the chunked coding too, such a read is already what it has to be
sent: nothing is cut out and nothing is put around it again. A few comparisons show that it is
one more piece of text and can be no end, usage or error; counting it is an addition.

Whatever differs, and everything for a client that does not keep up, takes the long road
(`Upstream.chunk`), where the same counts are kept. ADR 93 has the costs.
"""

from collections.abc import Callable

from engine.types import Request
from fleet.gateway.transports.chunked import size_lines

MAX_READ = 1024  # bytes; a longer read takes the long road
MAX_LENGTHS = 64  # so many lengths of reads are known by heart, a stream
_BACKSLASH = ord("\\")


class Pipe:
    """The way to a client that is sent the chunked coding."""

    __slots__ = ("lags", "write")

    def __init__(self, write: Callable[[bytes], None], *, lags: bool = False) -> None:
        self.write = write
        self.lags = lags  # it does not keep up with what it is sent, or it is gone


class Splice:
    """The short road of one stream. `take` is asked first, between two chunks; the pieces that
    it took are counted in `request.tokens_spent`."""

    __slots__ = ("_after", "_before", "_heads", "_pipe", "_request")

    def __init__(self, around: tuple[bytes, bytes], request: Request, pipe: Pipe) -> None:
        self._request = request
        self._pipe = pipe
        self._before, self._after = around[0], around[1] + b"\r\n"
        self._heads: dict[int, tuple[bytes, ...]] = {}  # by length: up to the text

    def take(self, data: bytes) -> bool:
        """Pass `data` on, if it is one more piece of text and nothing else."""
        pipe = self._pipe
        if pipe.lags:
            return False
        size = len(data)
        heads = self._heads.get(size)
        if heads is None:
            heads = self._heads_for(size)
        after = self._after
        if not data.startswith(heads) or not data.endswith(after):
            return False
        begin, end = len(heads[0]), size - len(after)
        if begin >= end or data.find(b'"', begin, end) >= 0 or data[end - 1] == _BACKSLASH:
            return False
        self._request.tokens_spent += 1
        pipe.write(data)
        return True

    def _heads_for(self, size: int) -> tuple[bytes, ...]:
        """What a read of `size` bytes begins with, if it is one chunk with one plain event."""
        if size > MAX_READ or len(self._heads) >= MAX_LENGTHS:
            return ()
        heads = tuple(line + self._before for line in size_lines(size))
        self._heads[size] = heads
        return heads
