"""The configuration in force, immutable, swapped whole: what the request path reads.

`build` turns the rows of the fleet's tables (see `loader`) into the engine's specs and the
key table of `auth`. A row that cannot be understood is left out and named in `rejected`:
one bad replica must not cost a fleet its configuration. Specs of unchanged rows are reused
from the previous snapshot, so a reload of 10,000 tenants builds only what changed.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.errors import InvalidInput
from engine.types import (
    FleetSnapshot,
    ModelSpec,
    Priority,
    Protocol,
    ReplicaSpec,
    SplitSpec,
    Strategy,
    TenantSpec,
    WorkUnit,
)

SLICE = 256  # rows that are worked on without a chance for others in between


class ModelRow(msgspec.Struct, frozen=True):
    name: str
    strategy: str
    slo_ms: float
    created_at: float


class VersionRow(msgspec.Struct, frozen=True):
    model: str
    name: str


class SplitRow(msgspec.Struct, frozen=True):
    model: str
    baseline: str
    canary: str | None
    canary_percent: float
    salt: str
    shadow: bool


class ReplicaRow(msgspec.Struct, frozen=True):
    replica_id: str
    model: str
    version: str
    address: str
    protocol: str
    weight: float
    accelerator: str
    work_unit: str
    max_batch_size: int
    max_batch_tokens: int
    max_concurrency: int
    draining: bool
    loaded_models: tuple[str, ...]
    gpu_memory_ratio: float | None
    started_at: float | None


class TenantRow(msgspec.Struct, frozen=True, gc=False):
    name: str
    priority: int
    weight: float
    requests_per_minute: float | None
    requests_burst: float | None
    tokens_per_minute: float | None
    tokens_burst: float | None
    max_in_flight: int | None
    enabled: bool


class KeyRow(msgspec.Struct, frozen=True, gc=False):
    digest: str
    tenant: str
    expires_at: float | None
    may_choose_version: bool


class Rows(msgspec.Struct, kw_only=True):
    """Everything that was read, in one repeatable-read transaction."""

    revision: int
    read_at: float  # seconds since the epoch, by the database
    models: list[ModelRow] = []
    versions: list[VersionRow] = []
    splits: list[SplitRow] = []
    replicas: list[ReplicaRow] = []
    tenants: list[TenantRow] = []
    keys: list[KeyRow] = []
    operators: list[str] = []  # digests of the access tokens of people


class KeyEntry(msgspec.Struct, frozen=True, gc=False):
    """What a key opens. `expires_at` is in seconds since the epoch."""

    tenant: str
    priority: Priority
    expires_at: float | None
    may_choose_version: bool


@dataclass(slots=True, frozen=True, kw_only=True)
class Snapshot:
    """One configuration. `stale` says that it came from the disk and not from Postgres.

    `keyring` numbers the snapshots of this process: what a key opened in one of them holds for
    that one alone.
    """

    fleet: FleetSnapshot
    keys: Mapping[bytes, KeyEntry]
    created_at: Mapping[str, float]  # models, seconds since the epoch
    rows: Rows
    operators: frozenset[bytes] = frozenset()
    stale: bool = False
    rejected: tuple[str, ...] = field(default=())
    used: set[bytes] = field(default_factory=set)  # digests of keys since the recorder took them
    keyring: int = field(default_factory=itertools.count(1).__next__)

    @property
    def revision(self) -> int:
        return self.fleet.revision


EMPTY = Snapshot(
    fleet=FleetSnapshot(revision=-1),
    keys={},
    created_at={},
    rows=Rows(revision=-1, read_at=0.0),
    stale=True,
)


def build(rows: Rows, previous: Snapshot = EMPTY, *, stale: bool = False) -> Snapshot:
    """The snapshot of `rows`."""
    rejected: list[str] = []
    splits = {row.model: row for row in rows.splits}
    versions: dict[str, set[str]] = {row.name: set() for row in rows.models}
    for version in rows.versions:
        versions.setdefault(version.model, set()).add(version.name)
    models = dict(_each(rows.models, lambda row: _model(row, versions, splits), rejected))
    known_replicas = {row.replica_id: row for row in previous.rows.replicas}
    replicas: dict[str, ReplicaSpec] = {}
    for row in rows.replicas:
        known = previous.fleet.replicas.get(row.replica_id)
        if known is not None and known_replicas.get(row.replica_id) == row:
            replicas[row.replica_id] = known
            continue
        replicas.update(_each([row], lambda each: _replica(each, rows.read_at), rejected))
    tenants = _tenants(rows, previous, rejected)
    keys = previous.keys
    if equal(rows.keys, previous.rows.keys):
        rows.keys = previous.rows.keys  # the same objects: dropping the old snapshot frees little
    if rows.keys is not previous.rows.keys or not _same_priorities(tenants, previous.fleet.tenants):
        keys = {
            bytes.fromhex(row.digest): KeyEntry(
                row.tenant, tenants[row.tenant].priority, row.expires_at, row.may_choose_version
            )
            for row in rows.keys
            if row.tenant in tenants
        }
    return Snapshot(
        fleet=FleetSnapshot(
            revision=rows.revision, models=models, replicas=replicas, tenants=tenants
        ),
        keys=keys,
        created_at={row.name: row.created_at for row in rows.models},
        rows=rows,
        operators=frozenset(bytes.fromhex(digest) for digest in rows.operators),
        stale=stale,
        rejected=tuple(rejected),
        used=set() if previous is EMPTY else previous.used,
    )


def equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """`left == right`, in slices: a comparison of ten thousand rows is one step to the
    interpreter, and a thread in it lets nobody else run for milliseconds."""
    if len(left) != len(right):
        return False
    slices = (slice(start, start + SLICE) for start in range(0, len(left), SLICE))
    return all(left[part] == right[part] for part in slices)


def _each(rows: Iterable[Any], make: Any, rejected: list[str]) -> Iterable[tuple[str, Any]]:
    for row in rows:
        try:
            spec = make(row)
        except (InvalidInput, ValueError, TypeError) as error:
            rejected.append(f"{type(row).__name__[:-3].lower()} {_name(row)}: {error}")
        else:
            yield _name(row), spec


def _name(row: Any) -> str:
    return str(getattr(row, "name", None) or row.replica_id)


def _model(
    row: ModelRow, versions: Mapping[str, set[str]], splits: Mapping[str, SplitRow]
) -> ModelSpec:
    split = splits.get(row.name)
    return ModelSpec(
        model=row.name,
        versions=frozenset(versions[row.name]),
        strategy=Strategy(row.strategy),
        slo_ms=row.slo_ms,
        split=None
        if split is None
        else SplitSpec(
            model=row.name,
            baseline=split.baseline,
            canary=split.canary,
            canary_ratio=0.0 if split.canary is None else split.canary_percent / 100.0,
            salt=split.salt,
            shadow=split.shadow,
        ),
    )


def _replica(row: ReplicaRow, read_at: float) -> ReplicaSpec:
    return ReplicaSpec(
        replica_id=row.replica_id,
        model=row.model,
        version=row.version,
        address=row.address,
        protocol=Protocol(row.protocol),
        weight=row.weight,
        accelerator=row.accelerator,
        max_batch_size=row.max_batch_size,
        max_batch_tokens=row.max_batch_tokens,
        max_concurrency=row.max_concurrency,
        work_unit=WorkUnit(row.work_unit),
        draining=row.draining,
        age_s=None if row.started_at is None else max(read_at - row.started_at, 0.0),
        loaded_models=frozenset(row.loaded_models),
        gpu_memory_ratio=row.gpu_memory_ratio,
    )


def _tenants(rows: Rows, previous: Snapshot, rejected: list[str]) -> dict[str, TenantSpec]:
    before = previous.rows.tenants
    if [row.name for row in before] != [row.name for row in rows.tenants]:
        known = {row.name: row for row in before}
        before = [known.get(row.name, row) for row in rows.tenants]
    specs = previous.fleet.tenants
    tenants: dict[str, TenantSpec] = {}
    for place, (row, old) in enumerate(zip(rows.tenants, before, strict=True)):
        spec = specs.get(row.name)
        if row == old:
            rows.tenants[place] = old
        if spec is None or row != old:
            try:
                spec = _tenant(row)
            except (InvalidInput, ValueError) as error:
                rejected.append(f"tenant {row.name}: {error}")
                continue
        tenants[row.name] = spec
    return tenants


def _same_priorities(tenants: Mapping[str, TenantSpec], before: Mapping[str, TenantSpec]) -> bool:
    """Whether the same tenants have the same priorities. Unchanged specs are the same objects."""
    if tenants.keys() != before.keys():
        return False
    return all(
        spec is before[name] or spec.priority is before[name].priority
        for name, spec in tenants.items()
    )


def _tenant(row: TenantRow) -> TenantSpec:
    return TenantSpec(
        tenant=row.name,
        priority=Priority(row.priority),
        weight=row.weight,
        requests_per_s=_per_second(row.requests_per_minute),
        requests_burst=row.requests_burst,
        tokens_per_s=_per_second(row.tokens_per_minute),
        tokens_burst=row.tokens_burst,
        max_in_flight=row.max_in_flight,
        enabled=row.enabled,
    )


def _per_second(per_minute: float | None) -> float | None:
    return None if per_minute is None else per_minute / 60.0
