"""A head that this connection has sent before is read by comparing, not by parsing.

A client that keeps its connection sends the same head with every request, byte for byte but
for the length of the body. llhttp calls back eight times for it and leaves a list of headers
that have to be looked through again; that costs as much as admitting the request. So the head
of the first request is kept, as the bytes before and after the digits of `content-length`,
and a read that is one whole request with the same two ends is taken as it is: llhttp, which
waits between two messages, never knows of it.

What was learned holds for the bytes alone: the path, the headers, that it is a short POST of
HTTP/1.1 which keeps the connection. Whatever differs by one byte takes the long way.
"""

from collections.abc import Mapping

from fleet.gateway.auth import Opened
from fleet.gateway.call import Begin

_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
_MOST_DIGITS = 5


class KnownHead:
    """The head of requests to one path, and what its key opened last."""

    __slots__ = ("_after", "_before", "begin", "headers", "opened", "path")

    def __init__(
        self,
        before: bytes,
        after: bytes,
        path: str,
        headers: Mapping[bytes, bytes],
        begin: Begin,
    ) -> None:
        self._before = before
        self._after = after
        self.path = path
        self.headers = headers
        self.begin = begin
        self.opened = Opened()

    def body_of(self, data: bytes, longest: int) -> bytes | None:
        """The body where `data` is one whole request with this head and at most `longest`
        bytes of body; else None."""
        before, after = self._before, self._after
        if not data.startswith(before):
            return None
        start = len(before)
        end = data.find(b"\r", start, start + _MOST_DIGITS + 1)
        if end < 0 or not data.startswith(after, end):
            return None
        digits = data[start:end]
        if not digits.isdigit():
            return None
        length = int(digits)
        start = end + len(after)
        return data[start:] if length == len(data) - start and length <= longest else None


def learn(
    data: bytes, path: str, headers: Mapping[bytes, bytes], begin: Begin, longest: int
) -> KnownHead | None:
    """The head of `data`, which the parser took for one short request, or None where it is
    more than that, or less, or has its length in words that are not plain digits."""
    size = data.find(_END) + len(_END)
    head = data[:size]
    names = head.lower()
    at = names.find(_LENGTH)
    if size < len(_END) or at < 0 or names.find(_LENGTH, at + 1) >= 0:
        return None
    start = at + len(_LENGTH)
    while head[start : start + 1] == b" ":
        start += 1
    known = KnownHead(head[:start], head[head.index(b"\r", start) :], path, headers, begin)
    return None if known.body_of(data, longest) is None else known
