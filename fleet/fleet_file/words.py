"""What a fleet file may say, checked where it is read: unknown words are refused by name."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml
from msgspec import Meta

from engine.errors import InvalidInput
from engine.types import Priority
from fleet.replica.runtimes import RUNTIMES


class _Words(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, rename="camel"):
    pass


class SplitWords(_Words, frozen=True):
    baseline: str
    canary: str | None = None
    canary_percent: float = 0.0
    shadow: bool = False


class ModelWords(_Words, frozen=True):
    versions: list[str]
    strategy: str = "peak_ewma"
    slo_ms: float = 1000.0
    description: str = ""
    split: SplitWords | None = None


class ReplicaWords(_Words, frozen=True):
    """A replica that `up` starts (with a runtime), or one that runs elsewhere (an address).

    What is not said of one elsewhere is None: its runtime is nobody's business, how much runs
    there at once depends on the protocol, and what is loaded there it may tell itself.
    """

    id: str
    model: str
    version: str
    address: str | None = None
    protocol: Literal["batch", "openai"] = "batch"
    runtime: str = ""  # of one that `up` starts: simulated, if not said
    speed: float = 1.0
    jitter: float | None = None
    seed: int | None = None
    weight: float = 1.0
    accelerator: str = ""
    work_unit: str = "tokens"
    max_batch_size: int = 32
    max_batch_tokens: int = 16_384
    max_concurrency: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    loaded_models: list[str] | None = None
    gpu_memory_ratio: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    options: list[str] = []  # further arguments of `manage.py replica`

    def __post_init__(self) -> None:
        if self.is_local:
            msgspec.structs.force_setattr(self, "runtime", self.runtime or "simulated")
            msgspec.structs.force_setattr(self, "max_concurrency", self.max_concurrency or 1)

    @property
    def is_local(self) -> bool:
        return self.address is None


class TenantWords(_Words, frozen=True):
    priority: Literal["low", "normal", "high", "critical"] = "normal"
    weight: float = 1.0
    requests_per_minute: int | None = None
    requests_burst: int | None = None
    tokens_per_minute: int | None = None
    tokens_burst: int | None = None
    max_in_flight: int | None = None
    enabled: bool = True
    keys: list[str] = []  # names; the keys themselves are derived from this installation

    def limits(self) -> dict[str, object]:
        return {
            "priority": Priority[self.priority.upper()].value,
            **{
                name: getattr(self, name)
                for name in (
                    "weight",
                    "requests_per_minute",
                    "requests_burst",
                    "tokens_per_minute",
                    "tokens_burst",
                    "max_in_flight",
                    "enabled",
                )
            },
        }


class LoadWords(_Words, frozen=True):
    """The light traffic that `up` sends, so that there is something to see."""

    model: str
    tenant: str
    key: str
    rate_per_s: float = 5.0


class FleetFile(_Words, frozen=True):
    models: dict[str, ModelWords] = {}
    replicas: list[ReplicaWords] = []
    tenants: dict[str, TenantWords] = {}
    users: dict[str, Literal["viewer", "operator", "admin"]] = {}
    load: list[LoadWords] = []


def read(path: Path) -> FleetFile:
    """The file's words, or `InvalidInput` that names the file, the place and the fault."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise InvalidInput("file", str(path), f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput("file", str(path), f"is not YAML: {error}") from None
    try:
        fleet = msgspec.convert(document, FleetFile)
    except msgspec.ValidationError as error:
        raise InvalidInput("file", str(path), str(error)) from None
    _check_names(path, fleet)
    return fleet


def _check_names(path: Path, fleet: FleetFile) -> None:
    """Every name that one part of the file uses must be one that another part defines."""
    seen: set[str] = set()
    for replica in fleet.replicas:
        _require(path, "replica's model", replica.model, fleet.models)
        _require(path, "replica's version", replica.version, fleet.models[replica.model].versions)
        if replica.is_local:
            _require(path, "replica's runtime", replica.runtime, RUNTIMES)
        if replica.id in seen:
            raise InvalidInput("file", str(path), f"names the replica {replica.id} twice")
        seen.add(replica.id)
    for name, model in fleet.models.items():
        for version in filter(
            None, (model.split and (model.split.baseline, model.split.canary)) or ()
        ):
            _require(path, f"split of {name}", version, model.versions)
    for load in fleet.load:
        _require(path, "load's model", load.model, fleet.models)
        _require(path, "load's tenant", load.tenant, fleet.tenants)
        _require(path, "load's key", load.key, fleet.tenants[load.tenant].keys)


def _require(path: Path, what: str, name: str, known: object) -> None:
    names = sorted(known)  # type: ignore[call-overload]
    if name not in names:
        listed = ", ".join(names) or "none"
        raise InvalidInput(
            "file", str(path), f"the {what} is {name!r}, which it does not define; known: {listed}"
        )
