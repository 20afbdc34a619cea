"""Writing a fleet into a scratch database with plain SQL, as any client of it might."""

import hashlib
import json
import secrets
from typing import Any

import psycopg


class FleetRows:
    """Rows of one database. Every call commits, so the triggers notify."""

    def __init__(self, url: str) -> None:
        self.url = url

    def execute(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query, values)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def model(
        self, name: str = "m", versions: tuple[str, ...] = ("v1",), slo_ms: float = 1000.0
    ) -> None:
        """A model whose first version takes all traffic."""
        self.execute(
            "INSERT INTO fleet_model (name, strategy, slo_ms, description, created_at)"
            " VALUES (%s, 'peak_ewma', %s, '', now())",
            name,
            slo_ms,
        )
        for version in versions:
            self.execute(
                "INSERT INTO fleet_modelversion (model_id, name, notes, created_at)"
                " SELECT id, %s, '', now() FROM fleet_model WHERE name = %s",
                version,
                name,
            )
        self.execute(
            "INSERT INTO fleet_trafficsplit"
            " (model_id, baseline_id, canary_percent, salt, shadow, updated_at)"
            " SELECT m.id, v.id, 0, '', false, now() FROM fleet_model m"
            " JOIN fleet_modelversion v ON v.model_id = m.id AND v.name = %s WHERE m.name = %s",
            versions[0],
            name,
        )

    def replica(
        self,
        replica_id: str,
        address: str,
        *,
        model: str = "m",
        version: str = "v1",
        max_batch_size: int = 32,
        max_concurrency: int = 1,
        draining: bool = False,
        work_unit: str = "tokens",
        protocol: str = "batch",
        loaded_models: tuple[str, ...] = (),
    ) -> None:
        """A replica that has run for an hour."""
        self.execute(
            "INSERT INTO fleet_replica (replica_id, version_id, address, protocol, weight,"
            " accelerator, runtime, work_unit, max_batch_size, max_batch_tokens,"
            " max_concurrency, draining, loaded_models, registered_at, heartbeat_at, started_at)"
            " SELECT %s, v.id, %s, %s, 1, 'cpu', 'scripted', %s, %s, 16384, %s, %s, %s::jsonb,"
            " now(), now(), now() - interval '1 hour'"
            " FROM fleet_modelversion v JOIN fleet_model m ON m.id = v.model_id"
            " WHERE m.name = %s AND v.name = %s"
            " ON CONFLICT (replica_id) DO UPDATE SET address = excluded.address,"
            " draining = excluded.draining, max_concurrency = excluded.max_concurrency,"
            " loaded_models = excluded.loaded_models",
            replica_id,
            address,
            protocol,
            work_unit,
            max_batch_size,
            max_concurrency,
            draining,
            json.dumps(loaded_models),
            model,
            version,
        )

    def tenant(self, name: str = "acme", **limits: Any) -> str:
        """A tenant with a key, which is returned."""
        columns = ["name", "priority", "weight", "enabled", "created_at", *limits]
        values: list[Any] = [name, limits.pop("priority", 1), 1.0, True]
        columns = [*dict.fromkeys(columns)]
        marks = ["%s", "%s", "%s", "%s", "now()", *["%s"] * len(limits)]
        self.execute(
            f"INSERT INTO fleet_tenant ({', '.join(columns)}) VALUES ({', '.join(marks)})",
            *values,
            *limits.values(),
        )
        return self.key(name)

    def key(self, tenant: str, *, may_choose_version: bool = False) -> str:
        """A further key of a tenant."""
        prefix = secrets.token_hex(4)
        key = f"hk_{prefix}_{secrets.token_hex(16)}"
        self.execute(
            "INSERT INTO fleet_apikey"
            " (tenant_id, name, prefix, digest, created_at, may_choose_version)"
            " SELECT id, %s, %s, %s, now(), %s FROM fleet_tenant WHERE name = %s",
            f"key-{prefix}",
            prefix,
            hashlib.sha256(key.encode()).hexdigest(),
            may_choose_version,
            tenant,
        )
        return key
