"""Windows and usage on their way to Postgres: once a second, exactly once, never in the way.

One transaction a batch: its sequence first (a repeated one ends there, nothing is counted
twice), then the rows by array, not row by row. While Postgres is away the outbox holds what
waits, in bounded memory. What is still unwritten when the process stops is left in a spool
file, and the next start writes it under the old gateway's name.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from psycopg import AsyncConnection

from engine.rollout.evidence import WindowRecord
from fleet.gateway.listener import CONNECT_TIMEOUT_S, connect
from fleet.gateway.outbox import Batch, Outbox

PERIOD_S = 1.0
WRITE_TIMEOUT_S = 5.0
MAX_BACKOFF_S = 5.0
USAGE_SLICE = 500
HEARTBEAT_S = 5.0
NOTE_KEYS_S = 60.0  # how fine "last used" of an API key is

log = logging.getLogger("halcyon.gateway")
_decoder = msgspec.msgpack.Decoder(Batch)

_SEQUENCE = """
    INSERT INTO fleet_recorderbatch (gateway, sequence, written_at) VALUES (%s, %s, now())
    ON CONFLICT (gateway, sequence) DO NOTHING RETURNING sequence"""
_WINDOWS = """
    INSERT INTO fleet_windowstat (
        gateway, resolution_s, window_start, model, version, arm, served, faults, sheds, misses,
        cancelled, client_errors, refused, execution, latency, batches, items, busy_ms,
        prompt_tokens, completion_tokens, assigned, sessions)
    SELECT %s, 1, * FROM unnest(
        %s::timestamptz[], %s::text[], %s::text[], %s::text[], %s::int8[], %s::int8[],
        %s::int8[], %s::int8[], %s::int8[], %s::int8[], %s::jsonb[], %s::jsonb[], %s::jsonb[],
        %s::int8[], %s::int8[], %s::float8[], %s::int8[], %s::int8[], %s::int8[], %s::float8[])
    ON CONFLICT DO NOTHING"""
_USAGE = """
    INSERT INTO fleet_usageminute (
        gateway, tenant, model, minute, requests, served, refused, prompt_tokens,
        completion_tokens)
    SELECT %s, * FROM unnest(
        %s::text[], %s::text[], %s::timestamptz[], %s::int8[], %s::int8[], %s::jsonb[],
        %s::int8[], %s::int8[])
    ON CONFLICT (gateway, tenant, model, minute) DO UPDATE SET
        requests = excluded.requests, served = excluded.served, refused = excluded.refused,
        prompt_tokens = excluded.prompt_tokens, completion_tokens = excluded.completion_tokens
    WHERE fleet_usageminute.requests < excluded.requests"""
_HEARTBEAT = """
    INSERT INTO fleet_heartbeat (name, seen_at, details) VALUES (%s, now(), %s::jsonb)
    ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, details = excluded.details"""
_KEYS_USED = "UPDATE fleet_apikey SET last_used_at = now() WHERE digest = ANY(%s)"
_FAREWELL = "DELETE FROM fleet_heartbeat WHERE name = %s"

_json = msgspec.json.Encoder().encode


class Recorder:
    """Writes one process's outbox."""

    def __init__(
        self,
        database_url: str,
        outbox: Outbox,
        *,
        gateway: str,
        take_windows: Callable[[], list[WindowRecord]],
        about: Callable[[], dict[str, Any]],
        used_keys: Callable[[], set[bytes]],
        went: Callable[[str | None], None],
        spool: Path | None = None,
    ) -> None:
        self._database_url = database_url
        self._outbox = outbox
        self._gateway = gateway
        self._take_windows = take_windows
        self._about = about
        self._used_keys = used_keys
        self._went = went
        self._spool = spool
        self._connection: AsyncConnection[Any] | None = None
        self._last_heartbeat_s = 0.0
        self._keys_noted_s = -NOTE_KEYS_S
        self.written = 0
        self.failed = 0
        self.repeated = 0

    async def run(self) -> None:
        """Until cancelled."""
        backoff_s = 0.0
        while True:
            await asyncio.sleep(PERIOD_S if not backoff_s else backoff_s * random.uniform(0.7, 1.3))
            try:
                await self._turn()
            except (psycopg.Error, OSError, TimeoutError) as error:
                self.failed += 1
                await self._disconnect()
                self._went(str(error).strip().splitlines()[0][:200] if str(error) else "no answer")
                backoff_s = min(max(backoff_s * 2.0, 0.5), MAX_BACKOFF_S)
            else:
                backoff_s = 0.0
                self._went(None)

    def collect(self) -> None:
        """Move what the engine closed into the outbox."""
        self._outbox.add(self._take_windows())

    async def stop(self, within_s: float = 3.0) -> None:
        """Write what is left; what cannot be written goes to the spool."""
        self.collect()
        try:
            async with asyncio.timeout(within_s):
                await self._flush()
                connection = await self._connected()
                await connection.execute(_FAREWELL, (f"gateway:{self._gateway}",))
        except (psycopg.Error, OSError, TimeoutError) as error:
            log.warning("the last windows wait in the spool: %s", error)
        await self._disconnect()
        self._keep_rest()

    async def _turn(self) -> None:
        self.collect()
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await self._connected()
        await self._replay()
        await self._flush()
        now_s = time.monotonic()
        if now_s - self._last_heartbeat_s >= HEARTBEAT_S:
            self._last_heartbeat_s = now_s
            connection = await self._connected()
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                details = _json(self._about()).decode()
                await connection.execute(_HEARTBEAT, (f"gateway:{self._gateway}", details))
        if now_s - self._keys_noted_s >= NOTE_KEYS_S and self._used_keys():
            await self._note_keys()
            self._keys_noted_s = now_s

    async def _note_keys(self) -> None:
        """When each key was last used. Those of a write that fails are noted by the next one."""
        used = self._used_keys()
        digests = list(used)
        connection = await self._connected()
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await connection.execute(_KEYS_USED, ([digest.hex() for digest in digests],))
        used.difference_update(digests)

    async def _flush(self) -> None:
        """Write the windows that are closed and the usage so far; what comes in meanwhile
        waits for the next turn, or a busy gateway would never stop writing."""
        batch = self._outbox.batch()
        while batch is not None:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._write(batch)
            self._outbox.written()
            batch = self._outbox.batch() if self._outbox.has_windows else None

    async def _write(self, batch: Batch) -> None:
        connection = await self._connected()
        async with connection.transaction():
            cursor = await connection.execute(_SEQUENCE, (batch.gateway, batch.sequence))
            if await cursor.fetchone() is None:
                self.repeated += 1
                return
            if batch.windows:
                rows = [msgspec.structs.astuple(row) for row in batch.windows]
                columns = _columns(rows, json=(10, 11, 12))
                await connection.execute(_WINDOWS, (batch.gateway, *columns))
            for start in range(0, len(batch.usage), USAGE_SLICE):
                part = batch.usage[start : start + USAGE_SLICE]
                await connection.execute(_USAGE, (batch.gateway, *_columns(part, json=(5,))))
                await asyncio.sleep(0)
        self.written += 1

    async def _connected(self) -> AsyncConnection[Any]:
        if self._connection is None:
            self._connection = await connect(self._database_url, "halcyon-gateway-recorder")
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(1.0):
                    await connection.close()

    # -- the spool ---------------------------------------------------------------------

    def _keep_rest(self) -> None:
        if self._spool is None:
            return
        batch = self._outbox.batch()
        while batch is not None:
            name = f"{batch.gateway}.{batch.sequence}.batch"
            try:
                self._spool.mkdir(parents=True, exist_ok=True)
                (self._spool / name).write_bytes(msgspec.msgpack.encode(batch))
            except OSError as error:
                log.error("windows and usage are lost: %s", error)
            self._outbox.written()
            batch = self._outbox.batch()

    async def _replay(self) -> None:
        """Write what an earlier process left behind."""
        if self._spool is None or not self._spool.is_dir():
            return
        for path in sorted(self._spool.glob("*.batch")):
            try:
                batch = _decoder.decode(path.read_bytes())
            except FileNotFoundError:
                continue  # a sibling was faster
            except msgspec.MsgspecError as error:
                log.error("cannot read %s, set aside: %s", path, error)
                path.rename(path.with_suffix(".unreadable"))
                continue
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._write(batch)
            path.unlink(missing_ok=True)
            log.info("wrote %d windows that %s left behind", len(batch.windows), batch.gateway)


def _columns(rows: Iterable[tuple[Any, ...]], *, json: tuple[int, ...]) -> list[list[Any]]:
    """Rows turned into columns, those in `json` encoded."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    for place in json:
        columns[place] = [_json(value).decode() for value in columns[place]]
    return columns
