"""Reading the configuration from Postgres: plain SQL, one repeatable-read transaction, in slices.

Rows become Python objects 256 at a time with a turn of the event loop in between, so that
ten thousand tenants stall no request; `snapshot.build` and the comparison with what is in
force run in a thread, in slices too: whoever holds the interpreter's lock holds up the loop.
The ORM is not involved: this runs inside the data plane's loop.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from psycopg import AsyncConnection, IsolationLevel

from fleet.gateway.snapshot import (
    SLICE,
    KeyRow,
    ModelRow,
    ReplicaRow,
    Rows,
    Snapshot,
    SplitRow,
    TenantRow,
    VersionRow,
    build,
    equal,
)

REPLICA_SLICE = 32  # their rows are wide, with JSON in them: 12 us each
_LOADED = ReplicaRow.__struct_fields__.index("loaded_models")

_REVISION = "SELECT last_value, extract(epoch FROM now())::float8 FROM fleet_config_revision"
_MODELS = "SELECT name, strategy, slo_ms, extract(epoch FROM created_at)::float8 FROM fleet_model"
_VERSIONS = """
    SELECT model.name, version.name
    FROM fleet_modelversion version JOIN fleet_model model ON model.id = version.model_id"""
_SPLITS = """
    SELECT model.name, baseline.name, canary.name,
           split.canary_percent::float8, split.salt, split.shadow
    FROM fleet_trafficsplit split
    JOIN fleet_model model ON model.id = split.model_id
    JOIN fleet_modelversion baseline ON baseline.id = split.baseline_id
    LEFT JOIN fleet_modelversion canary ON canary.id = split.canary_id"""
_REPLICAS = """
    SELECT replica.replica_id, model.name, version.name, replica.address, replica.protocol,
           replica.weight::float8, replica.accelerator, replica.work_unit,
           replica.max_batch_size, replica.max_batch_tokens, replica.max_concurrency,
           replica.draining, replica.loaded_models, replica.gpu_memory_ratio::float8,
           extract(epoch FROM replica.started_at)::float8
    FROM fleet_replica replica
    JOIN fleet_modelversion version ON version.id = replica.version_id
    JOIN fleet_model model ON model.id = version.model_id
    ORDER BY replica.replica_id"""
_TENANTS = """
    SELECT name, priority, weight::float8, requests_per_minute::float8, requests_burst::float8,
           tokens_per_minute::float8, tokens_burst::float8, max_in_flight, enabled
    FROM fleet_tenant ORDER BY id"""
_KEYS = """
    SELECT key.digest, tenant.name, extract(epoch FROM key.expires_at)::float8,
           key.may_choose_version
    FROM fleet_apikey key JOIN fleet_tenant tenant ON tenant.id = key.tenant_id
    WHERE key.revoked_at IS NULL AND (key.expires_at IS NULL OR key.expires_at > now())
    ORDER BY key.id"""

_OPERATORS = """
    SELECT digest FROM fleet_accesstoken
    WHERE kind = 'user' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
    ORDER BY id"""


async def read(connection: AsyncConnection[Any]) -> Rows:
    """Everything, as it was at one instant. The connection must not be in a transaction."""
    await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    await connection.set_read_only(True)
    async with connection.transaction():
        cursor = await connection.execute(_REVISION)
        revision, read_at = await cursor.fetchone() or (0, 0.0)
        return Rows(
            revision=revision,
            read_at=read_at,
            models=await _all(connection, _MODELS, lambda row: ModelRow(*row)),
            versions=await _all(connection, _VERSIONS, lambda row: VersionRow(*row)),
            splits=await _all(connection, _SPLITS, lambda row: SplitRow(*row)),
            replicas=await _all(connection, _REPLICAS, _replica_row, REPLICA_SLICE),
            tenants=await _all(connection, _TENANTS, lambda row: TenantRow(*row)),
            keys=await _all(connection, _KEYS, lambda row: KeyRow(*row)),
            operators=await _all(connection, _OPERATORS, lambda row: str(row[0])),
        )


async def digest(rows: Rows, in_force: Snapshot) -> Snapshot | None:
    """The snapshot of `rows`, made in a thread; None where it says what is in force already."""
    return await asyncio.to_thread(_digest, rows, in_force)


def _digest(rows: Rows, in_force: Snapshot) -> Snapshot | None:
    if not in_force.stale and same(rows, in_force.rows):
        return None
    return build(rows, in_force)


def same(left: Rows, right: Rows) -> bool:
    """Whether two readings say the same, whenever they were made."""
    return (
        left.revision == right.revision
        and left.models == right.models
        and left.versions == right.versions
        and left.splits == right.splits
        and left.replicas == right.replicas
        and equal(left.tenants, right.tenants)
        and equal(left.keys, right.keys)
        and left.operators == right.operators
    )


async def _all[T](
    connection: AsyncConnection[Any], query: str, make: Callable[[Any], T], size: int = SLICE
) -> list[T]:
    rows: list[T] = []
    async with connection.cursor() as cursor:
        await cursor.execute(query)
        while part := await cursor.fetchmany(size):
            rows.extend(make(row) for row in part)
            await asyncio.sleep(0)
    return rows


def _replica_row(row: Any) -> ReplicaRow:
    values = list(row)
    values[_LOADED] = tuple(sorted(map(str, values[_LOADED] or ())))
    return ReplicaRow(*values)
