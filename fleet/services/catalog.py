"""Models and versions. Neither of these gives anybody traffic: that is the split's job."""

from typing import Any

from django.db import transaction
from django.db.models import ProtectedError

from engine.errors import InvalidInput
from fleet.events import Change, announce
from fleet.models import Model, ModelVersion
from fleet.services.conflict import Conflict
from fleet.services.writing import check, difference, facts

MODEL_FIELDS = frozenset({"strategy", "slo_ms", "description"})


@transaction.atomic
def create_model(name: str, *, actor: str, reason: str = "", **fields: Any) -> Model:
    """Create a model with `strategy`, `slo_ms`, `description`, or their defaults."""
    _require_known(fields)
    model = Model(name=name, **fields)
    check(model)
    model.save()
    announce(
        Change(
            action="model.created",
            kind="model",
            subject=name,
            model=name,
            actor=actor,
            reason=reason,
            after=facts(model),
        )
    )
    return model


@transaction.atomic
def update_model(model: Model, *, actor: str, reason: str = "", **fields: Any) -> Model:
    _require_known(fields)
    model = Model.objects.select_for_update().get(pk=model.pk)
    before = facts(model)
    for name, value in fields.items():
        setattr(model, name, value)
    check(model)
    was, became = difference(before, facts(model))
    if became:
        model.save()
        announce(
            Change(
                action="model.changed",
                kind="model",
                subject=model.name,
                model=model.name,
                actor=actor,
                reason=reason,
                before=was,
                after=became,
            )
        )
    return model


@transaction.atomic
def remove_model(model: Model, *, actor: str, reason: str = "") -> None:
    """Remove a model with its versions and split, once no replica serves it."""
    before, name = facts(model), model.name
    if hasattr(model, "split"):
        model.split.delete()
    try:
        model.delete()
    except ProtectedError as error:
        holders = sorted(str(row) for row in error.protected_objects)[:5]
        raise Conflict(
            f"{name} is still used by {', '.join(holders)}: remove those first"
        ) from None
    announce(
        Change(
            action="model.removed",
            kind="model",
            subject=name,
            model=name,
            actor=actor,
            reason=reason,
            before=before,
        )
    )


@transaction.atomic
def create_version(
    model: Model, name: str, *, notes: str = "", actor: str, reason: str = ""
) -> ModelVersion:
    version = ModelVersion(model=model, name=name, notes=notes)
    check(version)
    version.save()
    announce(
        Change(
            action="version.created",
            kind="version",
            subject=name,
            model=model.name,
            actor=actor,
            reason=reason,
            after=facts(version),
        )
    )
    return version


@transaction.atomic
def ensure_version(model_name: str, version_name: str, *, actor: str) -> ModelVersion:
    """The version, made (with its model) where it does not exist: safe for two at once."""
    model = Model.objects.filter(name=model_name).first()
    if model is None:
        _lock_names()
        model = Model.objects.filter(name=model_name).first() or create_model(
            model_name, actor=actor
        )
    version = ModelVersion.objects.filter(model=model, name=version_name).first()
    if version is None:
        _lock_names()
        version = ModelVersion.objects.filter(model=model, name=version_name).first()
    return version or create_version(model, version_name, actor=actor)


def _lock_names() -> None:
    """Let one transaction at a time invent names; it is released with the transaction."""
    with transaction.get_connection().cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('fleet.names'))")


def _require_known(fields: dict[str, Any]) -> None:
    for name in fields:
        if name not in MODEL_FIELDS:
            raise InvalidInput(name, fields[name], f"a model has {', '.join(sorted(MODEL_FIELDS))}")
