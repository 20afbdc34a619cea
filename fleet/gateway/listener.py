"""Keeping the configuration current: LISTEN, reload on a word, reload all on reconnect, poll.

A commit that changes configuration notifies `halcyon_config`; the reload follows within
milliseconds. Bursts are read once. Whoever reconnects may have missed a word, so it reloads;
and every `POLL_S` it reloads anyway, because a net costs little. While Postgres is away the
last snapshot stays in force, and `degraded` says so.

A Postgres that accepts and never answers is as good as away: every wait has a limit.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable

import psycopg
from psycopg import AsyncConnection

from fleet.gateway import loader
from fleet.gateway.snapshot import Rows, Snapshot

CHANNEL = "halcyon_config"
POLL_S = 15.0
GATHER_S = 0.02  # words of one burst arrive together: wait this long, read once
CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 10.0
BACKOFF_S = (0.1, 2.0)

log = logging.getLogger("halcyon.gateway")

Connection = AsyncConnection[tuple[object, ...]]


class Listener:
    """Reads on one connection, hands over what changed, and reports how that goes."""

    def __init__(
        self,
        database_url: str,
        *,
        in_force: Callable[[], Snapshot],
        adopt: Callable[[Snapshot], None],
        confirmed: Callable[[], None],
        lost: Callable[[str], None],
        keep: Callable[[Rows], Awaitable[None]],
        poll_s: float = POLL_S,
    ) -> None:
        self._database_url = database_url
        self._in_force = in_force
        self._adopt = adopt
        self._confirmed = confirmed
        self._lost = lost
        self._keep = keep
        self._poll_s = poll_s
        self.reloads = 0
        self.reconnects = 0
        self.last_reload_s: float | None = None  # how long the last one took

    async def run(self) -> None:
        """Until cancelled."""
        pause_s = BACKOFF_S[0]
        while True:
            began = time.monotonic()
            try:
                await self._session()
            except (psycopg.Error, OSError, TimeoutError) as error:
                self._lost(_words(error))
            self.reconnects += 1
            if time.monotonic() - began > 10.0:
                pause_s = BACKOFF_S[0]
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(pause_s * 2.0, BACKOFF_S[1])

    async def _session(self) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            connection = await connect(self._database_url, "halcyon-gateway-listener")
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                await connection.execute(f"LISTEN {CHANNEL}")
            while True:
                await self._reload(connection)
                await self._word(connection)
        finally:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(1.0):
                    await connection.close()

    async def _word(self, connection: Connection) -> None:
        """Return when something changed, or when it is time to look anyway."""
        heard = await _words_of(connection)
        if not heard:
            await _readable(connection.fileno(), self._poll_s)
            heard = await _words_of(connection)
        if heard:
            await asyncio.sleep(GATHER_S)
            await _words_of(connection)

    async def _reload(self, connection: Connection) -> None:
        began = time.monotonic()
        async with asyncio.timeout(READ_TIMEOUT_S):
            rows = await loader.read(connection)
        snapshot = await loader.digest(rows, self._in_force())
        if snapshot is not None:
            self._adopt(snapshot)
        self.reloads += 1
        self.last_reload_s = time.monotonic() - began
        self._confirmed()
        if snapshot is not None:
            await self._keep(rows)


async def connect(database_url: str, name: str) -> Connection:
    """An autocommit connection that gives up on a silent server."""
    return await AsyncConnection.connect(
        database_url,
        autocommit=True,
        application_name=name,
        connect_timeout=int(CONNECT_TIMEOUT_S),
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=8_000,
    )


async def _words_of(connection: Connection) -> list[psycopg.Notify]:
    """The notifications that are here already. Raises where the connection is gone."""
    return [word async for word in connection.notifies(timeout=0.0)]


async def _readable(descriptor: int, within_s: float) -> None:
    """Return when there is something to read, or after that time. Psycopg's own wait looks up
    ten times a second, for the sake of Ctrl-C."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        async with asyncio.timeout(within_s):
            await readable.wait()
    except TimeoutError:
        pass
    finally:
        loop.remove_reader(descriptor)


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "Postgres does not answer"
    return str(error).strip().splitlines()[0][:200] if str(error) else type(error).__name__
