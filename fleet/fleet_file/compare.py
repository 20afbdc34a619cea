"""What differs between a fleet file and the fleet, as steps that read like sentences."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from fleet import services
from fleet.fleet_file.keys import demo_key
from fleet.fleet_file.words import FleetFile, ModelWords, ReplicaWords
from fleet.models import ApiKey, Model, ModelVersion, Replica, Tenant, TrafficSplit

MODEL_WORDS = ("strategy", "slo_ms", "description")
REPLICA_WORDS = (
    "address",
    "protocol",
    "weight",
    "accelerator",
    "runtime",
    "work_unit",
    "max_batch_size",
    "max_batch_tokens",
    "max_concurrency",
    "loaded_models",
    "gpu_memory_ratio",
)
MAY_TELL_ITSELF = ("loaded_models", "gpu_memory_ratio")  # compared only where the file says so


class Step(Struct, frozen=True, kw_only=True):
    """One thing that applying would do. `after` is all that the service needs."""

    verb: str  # create | change | remove
    kind: str  # model | version | split | replica | tenant | key
    name: str
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}

    def sentence(self) -> str:
        changes = ", ".join(
            f"{name}: {self.before.get(name)} -> {value}"
            if self.verb == "change"
            else f"{name}={value}"
            for name, value in self.after.items()
            if value not in (None, "", [])
            and (self.verb != "change" or value != self.before.get(name))
        )
        return f"{self.verb} {self.kind} {self.name}" + (f" ({changes})" if changes else "")


def differences(fleet: FleetFile, *, only_missing: bool = False, prune: bool = False) -> list[Step]:
    """The steps from the fleet as it is to the file, in the order in which they can be done.

    `only_missing` adds and changes nothing that is there; `prune` also removes replicas of
    the file's models that the file does not name. Local replicas register themselves, so
    the file is no authority on them.
    """
    steps = [
        *_models(fleet),
        *_tenants(fleet),
        *_keys(fleet),
        *_replicas(fleet),
        *(_strangers(fleet) if prune else ()),
    ]
    return [step for step in steps if not only_missing or step.verb == "create"]


def _models(fleet: FleetFile) -> Iterator[Step]:
    there = {model.name: model for model in Model.objects.all()}
    versions = set(ModelVersion.objects.values_list("model__name", "name"))
    splits = {
        split.model.name: split
        for split in TrafficSplit.objects.select_related("model", "baseline", "canary")
    }
    for name, words in fleet.models.items():
        wanted = {word: getattr(words, word) for word in MODEL_WORDS}
        if name not in there:
            yield Step(verb="create", kind="model", name=name, after=wanted)
        else:
            yield from _changed("model", name, there[name], wanted)
        for version in words.versions:
            if (name, version) not in versions:
                yield Step(
                    verb="create",
                    kind="version",
                    name=f"{name} {version}",
                    after={"model": name, "version": version},
                )
        yield from _split(name, words, splits.get(name))


def _split(name: str, words: ModelWords, there: TrafficSplit | None) -> Iterator[Step]:
    if words.split is None:
        return
    wanted: dict[str, Any] = {
        "baseline": words.split.baseline,
        "canary": words.split.canary,
        "canary_percent": words.split.canary_percent,
        "shadow": words.split.shadow,
    }
    if there is None:
        yield Step(verb="create", kind="split", name=name, after=wanted)
        return
    present = {
        "baseline": there.baseline.name,
        "canary": there.canary.name if there.canary else None,
        "canary_percent": there.canary_percent,
        "shadow": there.shadow,
    }
    if present != wanted:
        yield Step(verb="change", kind="split", name=name, before=present, after=wanted)


def _tenants(fleet: FleetFile) -> Iterator[Step]:
    there = {tenant.name: tenant for tenant in Tenant.objects.all()}
    for name, words in fleet.tenants.items():
        wanted = words.limits()
        if name not in there:
            yield Step(verb="create", kind="tenant", name=name, after=wanted)
        else:
            yield from _changed("tenant", name, there[name], wanted)


def _keys(fleet: FleetFile) -> Iterator[Step]:
    there = set(ApiKey.objects.filter(revoked_at=None).values_list("tenant__name", "name"))
    digests = set(ApiKey.objects.values_list("digest", flat=True))  # revoked ones stay revoked
    for tenant, words in fleet.tenants.items():
        for key in words.keys:
            if (tenant, key) not in there and demo_key(tenant, key).digest not in digests:
                yield Step(
                    verb="create",
                    kind="key",
                    name=f"{tenant}/{key}",
                    after={"tenant": tenant, "key": key},
                )


def _replicas(fleet: FleetFile) -> Iterator[Step]:
    there = {
        replica.replica_id: replica for replica in Replica.objects.select_related("version__model")
    }
    for words in fleet.replicas:
        if words.is_local:
            continue
        wanted = _wanted(words)
        replica = there.get(words.id)
        if replica is None:
            yield Step(verb="create", kind="replica", name=words.id, after=wanted)
            continue
        present = {"model": replica.version.model.name, "version": replica.version.name} | {
            word: getattr(replica, word) for word in REPLICA_WORDS if word in wanted
        }
        if present != wanted:
            changed = [word for word in wanted if present[word] != wanted[word]]
            yield Step(
                verb="change",
                kind="replica",
                name=words.id,
                before={word: present[word] for word in changed},
                after={word: wanted[word] for word in changed},
            )


def _wanted(words: ReplicaWords) -> dict[str, Any]:
    """What the row would say, without what the file leaves to the replica."""
    said = {word: value for word in REPLICA_WORDS if (value := getattr(words, word)) is not None}
    row = services.Registration(
        replica_id=words.id, model=words.model, version=words.version, **said
    ).row_fields()
    return {"model": words.model, "version": words.version} | {
        word: row[word] for word in REPLICA_WORDS if word in said or word not in MAY_TELL_ITSELF
    }


def _strangers(fleet: FleetFile) -> Iterator[Step]:
    named = {words.id for words in fleet.replicas}
    rows = Replica.objects.filter(version__model__name__in=list(fleet.models))
    for replica in rows.exclude(pk__in=named):
        yield Step(
            verb="remove", kind="replica", name=replica.pk, before={"address": replica.address}
        )


def _changed(kind: str, name: str, row: Any, wanted: dict[str, Any]) -> Iterator[Step]:
    present = {word: getattr(row, word) for word in wanted}
    changed = [word for word in wanted if present[word] != wanted[word]]
    if changed:
        yield Step(
            verb="change",
            kind=kind,
            name=name,
            before={word: present[word] for word in changed},
            after={word: wanted[word] for word in changed},
        )
