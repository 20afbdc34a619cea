"""The split: which version serves a model, and which share a canary gets.

A salt belongs to one canary: a new canary gets a new salt, so that the sessions which try
it are drawn afresh, and widening the share of the same canary keeps everyone who is on it.
"""

import secrets

from django.db import transaction

from engine.errors import UnknownName, require_range
from fleet.events import Change, announce
from fleet.models import Model, ModelVersion, TrafficSplit
from fleet.services.writing import check, difference, facts

FIELDS = ("baseline", "canary", "canary_percent", "salt", "shadow")


@transaction.atomic
def set_split(
    model: Model | str,
    *,
    baseline: ModelVersion | str,
    canary: ModelVersion | str | None = None,
    canary_percent: float = 0.0,
    salt: str | None = None,
    shadow: bool = False,
    actor: str,
    reason: str = "",
    details: dict[str, object] | None = None,
) -> TrafficSplit:
    """Set a model's split whole. Names of versions are looked up in the model."""
    model = find_model(model)
    require_range("canaryPercent", canary_percent, 0.0, 100.0, unit="%")
    split = TrafficSplit.objects.select_for_update(of=("self",)).filter(model=model).first()
    before = {} if split is None else facts(split, FIELDS)
    old_canary = None if split is None else split.canary_id
    if split is None:
        split = TrafficSplit(model=model)
    split.baseline = find_version(model, baseline, "baseline")
    split.canary = None if canary is None else find_version(model, canary, "canary")
    split.canary_percent = canary_percent
    split.shadow = shadow
    if salt is not None:
        split.salt = salt
    elif split.canary_id is not None and split.canary_id != old_canary:
        split.salt = secrets.token_hex(8)
    check(split)
    was, became = difference(before, facts(split, FIELDS))
    if became:
        split.save()
        announce(
            Change(
                action="split.changed",
                kind="split",
                subject=model.name,
                model=model.name,
                actor=actor,
                reason=reason,
                before=was or None,
                after=became,
                details=details or {},
            )
        )
    return split


@transaction.atomic
def clear_split(model: Model | str, *, actor: str, reason: str = "") -> None:
    """Take the model out of service: no version gets traffic. Idempotent."""
    model = find_model(model)
    split = TrafficSplit.objects.select_for_update(of=("self",)).filter(model=model).first()
    if split is None:
        return
    before = facts(split, FIELDS)
    split.delete()
    announce(
        Change(
            action="split.cleared",
            kind="split",
            subject=model.name,
            model=model.name,
            actor=actor,
            reason=reason,
            before=before,
        )
    )


def find_model(model: Model | str) -> Model:
    if isinstance(model, Model):
        return model
    found = Model.objects.filter(name=model).first()
    if found is None:
        raise UnknownName("model", model, Model.objects.values_list("name", flat=True)[:8])
    return found


def find_version(model: Model, version: ModelVersion | str, field: str = "version") -> ModelVersion:
    """A version by its name; who is not found is told under the name of the `field`."""
    if isinstance(version, ModelVersion):
        if version.model_id == model.pk:
            return version
        raise UnknownName(field, str(version), [str(model)])
    name = version
    found = model.versions.filter(name=name).first()
    if found is None:
        raise UnknownName(field, name, model.versions.values_list("name", flat=True)[:8])
    return found
