"""The last known configuration on disk, so that a gateway restarts while Postgres is away.

Static stability would end at the first restart otherwise. The file holds the rows (key
digests, never keys), is readable by its owner only, and is replaced whole. A snapshot that
comes from it is marked stale until Postgres confirms it.
"""

import contextlib
import logging
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from fleet.gateway.snapshot import SLICE, Rows, Snapshot, build

log = logging.getLogger("halcyon.gateway")
_decoder = msgspec.msgpack.Decoder(Rows)
_encode = msgspec.msgpack.Encoder().encode


def save(path: Path, rows: Rows) -> None:
    """Replace the file. Failures are logged: the gateway works without it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                for part in encoded(rows):
                    file.write(part)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        log.warning("cannot keep the configuration in %s: %s", path, error)


def encoded(rows: Rows) -> Iterator[bytes]:
    """`rows` in MessagePack, in parts: encoding twenty thousand rows at once would hold the
    interpreter's lock, and with it the event loop, for longer than a request should wait."""
    fields = Rows.__struct_fields__
    yield bytes([0x80 | len(fields)])  # a map of up to 15 fields
    for field in fields:
        value: Any = getattr(rows, field)
        yield _encode(field)
        if not isinstance(value, list):
            yield _encode(value)
            continue
        yield b"\xdd" + struct.pack(">I", len(value))  # a list of so many
        for start in range(0, len(value), SLICE):
            yield b"".join([_encode(row) for row in value[start : start + SLICE]])


def restore(path: Path) -> Snapshot | None:
    """The snapshot of the file, marked stale; None where there is none that can be read."""
    try:
        rows = _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("cannot use the configuration in %s: %s", path, error)
        return None
    return build(rows, stale=True)
