"""PostgreSQL and Valkey without installing anything: private servers under one directory.

    services = EmbeddedServices(Path("var"))
    with services.owned():        # starts what is not running, stops it at the end
        ...

One process at a time owns a directory; ownership is a file lock, which the kernel releases
however the owner dies. A server that a killed owner left behind is adopted by the next.
"""

import fcntl
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from halcyon_site.embedded import postgres, valkey
from halcyon_site.embedded.places import Places, places
from halcyon_site.embedded.postgres import ServiceDidNotStart

__all__ = ["AlreadyOwned", "EmbeddedServices", "Places", "ServiceDidNotStart", "places"]

FAST_AND_FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class AlreadyOwned(RuntimeError):
    """Another process runs its services in this directory. Stop it, or set HALCYON_VAR."""


class EmbeddedServices:
    """The two servers of one directory."""

    def __init__(
        self,
        var: Path,
        *,
        durable: bool = True,
        with_postgres: bool = True,
        with_valkey: bool = True,
    ) -> None:
        self.places = places(var)
        self._durable = durable
        self._with_postgres = with_postgres
        self._with_valkey = with_valkey

    def start(self) -> None:
        """Have both servers running. Safe to call when they are."""
        self.places.var.mkdir(parents=True, exist_ok=True)
        extra = {} if self._durable else FAST_AND_FORGETFUL
        with ThreadPoolExecutor(2) as pool:
            jobs = []
            if self._with_valkey:
                jobs.append(pool.submit(valkey.start, self.places))
            if self._with_postgres:
                jobs.append(pool.submit(postgres.start, self.places, extra))
            for job in jobs:
                job.result()

    def stop(self) -> None:
        """End both servers if they run, whoever started them."""
        with ThreadPoolExecutor(2) as pool:
            for job in [
                pool.submit(valkey.stop, self.places),
                pool.submit(postgres.stop, self.places),
            ]:
                job.result()

    def status(self) -> dict[str, bool]:
        return {
            "postgres": postgres.running(self.places) is not None,
            "valkey": valkey.running(self.places) is not None,
        }

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Own the directory, or raise `AlreadyOwned` with the owner's pid."""
        self.places.var.mkdir(parents=True, exist_ok=True)
        with self.places.lock.open("a+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.seek(0)
                owner = handle.read().strip() or "unknown"
                raise AlreadyOwned(
                    f"another process (pid {owner}) runs its services in {self.places.var}; "
                    "stop it, or choose another directory with HALCYON_VAR"
                ) from None
            handle.seek(0)
            handle.truncate()
            handle.write(str(os.getpid()))
            handle.flush()
            yield

    @contextmanager
    def owned(self) -> Iterator[Places]:
        """Lock, start, hand over, stop."""
        with self.lock():
            try:
                self.start()
                yield self.places
            finally:
                self.stop()
