"""`manage.py model`: what is served, in which versions, and who gets the traffic."""

from typing import Any

from django.core.management.base import CommandParser

from engine.errors import UnknownName
from fleet.management.command import FleetCommand
from fleet.models import Model, TrafficSplit


class Command(FleetCommand):
    help = "List models and show one. Fleet files, the API and the admin create and change them."
    subcommands = {
        "list": "List models with their versions and split.",
        "show": "Show one model.",
    }

    def do_list(self, **_: Any) -> None:
        self.show(
            [row_of(model) for model in _models()],
            empty="no model is defined: apply a fleet file with `manage.py replicas apply FILE`",
        )

    def show_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")

    def do_show(self, name: str, **_: Any) -> None:
        model = _models().filter(name=name).first()
        if model is None:
            raise UnknownName("model", name, Model.objects.values_list("name", flat=True)[:8])
        self.show_one({**row_of(model), "description": model.description})


def _models() -> Any:
    return Model.objects.select_related("split__baseline", "split__canary").prefetch_related(
        "versions__replicas"
    )


def row_of(model: Model) -> dict[str, Any]:
    split: TrafficSplit | None = getattr(model, "split", None)
    canary = None if split is None else split.canary
    return {
        "model": model.name,
        "strategy": model.strategy,
        "SLO (ms)": model.slo_ms,
        "versions": ", ".join(version.name for version in model.versions.all()),
        "replicas": sum(version.replicas.count() for version in model.versions.all()),
        "baseline": None if split is None else split.baseline.name,
        "canary": None if canary is None else canary.name,
        "canary (%)": None if split is None or canary is None else split.canary_percent,
        "shadow": split is not None and split.shadow,
    }
