"""Who answers: the name of a gateway process and the ids of the requests it takes.

A gateway id is `<host>-<port>-<n>-<start>`: unique for ever, so windows and usage written
under it are one writer's own. A request id is `<n>x<digest>-<count>`, where the digest is of
the gateway id: any process of a gateway can tell from the id alone which sibling remembers
that request.
"""

import itertools
import re
import socket
import string
import time

import xxhash

_DIGITS = string.digits + string.ascii_lowercase
_REQUEST_ID = re.compile(r"([0-9]{1,4})x[0-9a-f]{8}-[0-9a-f]{1,16}")


def base36(number: int) -> str:
    """A non-negative integer in base 36."""
    digits = ""
    while True:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
        if not number:
            return digits


class Identity:
    """One process of one gateway."""

    __slots__ = ("_count", "_prefix", "gateway_id", "process", "started_at")

    def __init__(
        self, port: int, process: int, *, host: str | None = None, started_at: float | None = None
    ) -> None:
        self.process = process
        self.started_at = time.time() if started_at is None else started_at
        name = re.sub(r"[^A-Za-z0-9.-]", "-", host or socket.gethostname()) or "gateway"
        start = base36(int(self.started_at * 1000))
        self.gateway_id = f"{name[:38]}-{port}-{process}-{start}"
        self._prefix = f"{process}x{xxhash.xxh32_hexdigest(self.gateway_id.encode())}-"
        self._count = itertools.count(1)

    def next_request_id(self) -> str:
        """A fresh request id."""
        return f"{self._prefix}{next(self._count):x}"


def process_of(request_id: str) -> int | None:
    """The process number inside a request id, or None where it is none of ours."""
    match = _REQUEST_ID.fullmatch(request_id)
    return int(match.group(1)) if match else None
