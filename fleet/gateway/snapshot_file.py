"""The last known configuration on disk, so that a gateway restarts while Postgres is away.

Static stability would end at the first restart otherwise. The file holds the rows (key
digests, never keys), is readable by its owner only, and is replaced whole. A snapshot that
comes from it is marked stale until Postgres confirms it.
"""

import contextlib
import logging
import os
import tempfile
from pathlib import Path

import msgspec

from fleet.gateway.snapshot import Rows, Snapshot, build

log = logging.getLogger("halcyon.gateway")
_decoder = msgspec.msgpack.Decoder(Rows)


def save(path: Path, rows: Rows) -> None:
    """Replace the file. Failures are logged: the gateway works without it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.msgpack.encode(rows))
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        log.warning("cannot keep the configuration in %s: %s", path, error)


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
