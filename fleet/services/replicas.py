"""Replicas come, report, move, drain and go.

Registering is an idempotent upsert and is the heartbeat too: the same words every few
seconds write one timestamp and announce nothing. What an operator decided (draining) is
never undone by a heartbeat or a restart; what the replica knows (address, limits) is never
kept from the operator's last look. A version that nobody knows yet is created, without
traffic.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from engine.errors import InvalidInput, UnknownName
from engine.types import Protocol
from fleet.addresses import valid_address
from fleet.events import Change, announce
from fleet.models import Replica
from fleet.services.catalog import ensure_version
from fleet.services.writing import check, difference, facts

# A batch replica runs one batch at a time. A server with continuous batching runs many, how many
# is learned upwards from 16 (`engine/routing/ceiling.py`), and this is only the most (as vLLM's).
DEFAULT_CONCURRENCY = {Protocol.BATCH.value: 1, Protocol.OPENAI.value: 256}
MEMORY_STEP = 0.05  # coarser than the sensor, or each heartbeat would reload every gateway


def default_concurrency(protocol: str) -> int:
    """What suits a replica of this protocol, where nobody says."""
    return DEFAULT_CONCURRENCY.get(protocol, 1)


@dataclass(slots=True, frozen=True, kw_only=True)
class Registration:
    """What a replica says of itself."""

    replica_id: str
    model: str
    version: str
    address: str
    protocol: str = "batch"
    weight: float = 1.0
    accelerator: str = ""
    runtime: str = ""
    work_unit: str = "tokens"
    max_batch_size: int = 32
    max_batch_tokens: int = 16_384
    max_concurrency: int | None = None  # None: what suits the protocol
    loaded_models: list[str] = field(default_factory=list)
    gpu_memory_ratio: float | None = None
    started_at: datetime | None = None
    draining: bool | None = None  # a replica that is shutting down says so itself

    def row_fields(self) -> dict[str, object]:
        memory = self.gpu_memory_ratio
        if memory is not None:
            memory = round(round(memory / MEMORY_STEP) * MEMORY_STEP, 2)
        return {
            "address": self.address,
            "protocol": self.protocol,
            "weight": self.weight,
            "accelerator": self.accelerator,
            "runtime": self.runtime,
            "work_unit": self.work_unit,
            "max_batch_size": self.max_batch_size,
            "max_batch_tokens": self.max_batch_tokens,
            "max_concurrency": (
                default_concurrency(self.protocol)
                if self.max_concurrency is None
                else self.max_concurrency
            ),
            "loaded_models": sorted(self.loaded_models),
            "gpu_memory_ratio": memory,
        }


def register_replica(
    registration: Registration, *, actor: str, reason: str = "", heartbeat: bool = True
) -> tuple[Replica, bool]:
    """Write the replica down, or refresh it. The flag says whether it is new.

    `heartbeat=False` is for replicas that somebody else writes down and that never report.
    """
    address = valid_address(registration.address)
    with transaction.atomic():
        version = ensure_version(registration.model, registration.version, actor=actor)
        now = timezone.now()
        replica = (
            Replica.objects.select_for_update(of=("self",))
            .select_related("version__model")
            .filter(pk=registration.replica_id)
            .first()
        )
        is_new = replica is None
        if replica is None:
            replica = Replica(
                replica_id=registration.replica_id, version=version, registered_at=now
            )
        before = {} if is_new else facts(replica)
        for name, value in registration.row_fields().items():
            setattr(replica, name, value)
        replica.version, replica.address = version, address
        if registration.started_at is not None:
            _note_start(replica, registration.started_at)
        if registration.draining is not None:
            replica.draining = registration.draining or replica.drain_ordered
        after = facts(replica)
        was, became = difference(before, after)
        if is_new or became:
            check(replica)
        if heartbeat:
            replica.heartbeat_at = now
        replica.save(force_insert=is_new)
        if is_new or became:
            announce(
                Change(
                    action=_verb(is_new, was, became),
                    kind="replica",
                    subject=replica.replica_id,
                    model=registration.model,
                    actor=actor,
                    reason=reason,
                    before=None if is_new else was,
                    after=after if is_new else became,
                )
            )
    return replica, is_new


def drain_replica(replica_id: str, *, actor: str, reason: str = "") -> Replica:
    """Send it no new work. Idempotent."""
    return _set_draining(replica_id, True, actor, reason)


def undrain_replica(replica_id: str, *, actor: str, reason: str = "") -> Replica:
    """Let it have work again. Idempotent."""
    return _set_draining(replica_id, False, actor, reason)


@transaction.atomic
def remove_replica(replica_id: str, *, actor: str, reason: str = "") -> None:
    """Forget it. One that still runs will register again: stop it first."""
    replica = _locked(replica_id)
    before, model = facts(replica), replica.version.model.name
    replica.delete()
    announce(
        Change(
            action="replica.removed",
            kind="replica",
            subject=replica_id,
            model=model,
            actor=actor,
            reason=reason,
            before=before,
        )
    )


@transaction.atomic
def _set_draining(replica_id: str, draining: bool, actor: str, reason: str) -> Replica:
    replica = _locked(replica_id)
    if (replica.draining, replica.drain_ordered) != (draining, draining):
        was = replica.draining
        replica.draining = replica.drain_ordered = draining
        replica.save(update_fields=["draining", "drain_ordered"])
        announce(
            Change(
                action="replica.drained" if draining else "replica.undrained",
                kind="replica",
                subject=replica_id,
                model=replica.version.model.name,
                actor=actor,
                reason=reason,
                before={"draining": was},
                after={"draining": draining},
            )
        )
    return replica


def _locked(replica_id: str) -> Replica:
    replica = (
        Replica.objects.select_for_update(of=("self",))
        .select_related("version__model")
        .filter(pk=replica_id)
        .first()
    )
    if replica is None:
        known = Replica.objects.values_list("replica_id", flat=True)[:8]
        raise UnknownName("replica", replica_id, known)
    return replica


def _note_start(replica: Replica, started_at: datetime) -> None:
    if started_at > timezone.now() + timedelta(minutes=5):
        raise InvalidInput("startedAt", started_at.isoformat(), "lies in the future")
    replica.started_at = started_at


def _verb(is_new: bool, was: dict[str, object], became: dict[str, object]) -> str:
    if is_new:
        return "replica.registered"
    if "address" in became:
        return "replica.moved"
    return "replica.changed"
