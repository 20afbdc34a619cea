"""Doing the steps: each through the service that an operator would have used."""

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from fleet import services
from fleet.fleet_file.compare import Step
from fleet.fleet_file.keys import demo_key
from fleet.models import Model, Replica, Tenant


@transaction.atomic
def apply(steps: Sequence[Step], *, actor: str, reason: str = "") -> None:
    """Do all steps, or, where one is refused, none."""
    for step in steps:
        _do(step, actor, reason)


def _do(step: Step, actor: str, reason: str) -> None:
    who: dict[str, Any] = {"actor": actor, "reason": reason}
    match step.kind, step.verb:
        case "model", "create":
            services.create_model(step.name, **step.after, **who)
        case "model", "change":
            services.update_model(Model.objects.get(name=step.name), **step.after, **who)
        case "version", "create":
            model = Model.objects.get(name=step.after["model"])
            services.create_version(model, step.after["version"], **who)
        case "split", _:
            services.set_split(step.name, **step.after, **who)
        case "tenant", "create":
            services.create_tenant(step.name, **step.after, **who)
        case "tenant", "change":
            services.update_tenant(Tenant.objects.get(name=step.name), **step.after, **who)
        case "key", "create":
            _issue(step.after["tenant"], step.after["key"], who)
        case "replica", "remove":
            services.remove_replica(step.name, **who)
        case "replica", _:
            _register(step, who)


def _issue(tenant: str, name: str, who: dict[str, Any]) -> None:
    row = Tenant.objects.get(name=tenant)
    secret = demo_key(tenant, name)
    services.issue_key(row, name, secret=secret, may_choose_version=True, **who)


def _register(step: Step, who: dict[str, Any]) -> None:
    words = dict(step.after)
    present = Replica.objects.select_related("version__model").filter(pk=step.name).first()
    if present is not None:
        row = {
            "model": present.version.model.name,
            "version": present.version.name,
            "address": present.address,
            "protocol": present.protocol,
            "weight": present.weight,
            "accelerator": present.accelerator,
            "runtime": present.runtime,
            "work_unit": present.work_unit,
            "max_batch_size": present.max_batch_size,
            "max_batch_tokens": present.max_batch_tokens,
            "max_concurrency": present.max_concurrency,
            "loaded_models": present.loaded_models,
        }
        words = row | words
    registration = services.Registration(replica_id=step.name, **words)
    services.register_replica(registration, heartbeat=False, **who)
