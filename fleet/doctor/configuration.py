"""Can anybody be served: does every model have a split, replicas behind it, and a caller?"""

from collections.abc import Iterator

from fleet.doctor.finding import Finding
from fleet.models import ApiKey, Model, Replica


def every_model_is_served() -> Iterator[Finding]:
    models = Model.objects.select_related("split__baseline", "split__canary").order_by("name")
    if not models:
        yield Finding(
            "traffic",
            "down",
            "no model is defined",
            "Every request is refused: model not found.",
            "Apply a fleet file: `manage.py replicas apply fleet/demo.yaml`.",
        )
        return
    ready = set(Replica.objects.filter(draining=False).values_list("version_id", flat=True))
    sound = True
    for model in models:
        split = getattr(model, "split", None)
        if split is None:
            sound = False
            yield Finding(
                f"traffic of {model.name}",
                "down",
                "no version of it gets traffic",
                "Its requests are refused.",
                f"Set its split: PUT /v1/control/models/{model.name}/split, or in the admin.",
            )
            continue
        arms = [split.baseline] if split.canary_percent < 100 else []
        if split.canary is not None and split.canary_percent > 0:
            arms.append(split.canary)
        for version in arms:
            if version.pk not in ready:
                sound = False
                yield Finding(
                    f"traffic of {model.name}",
                    "down",
                    f"{version.name} gets traffic and has no replica that takes it",
                    "Its share of the requests is refused: no capacity.",
                    f"Start one: `manage.py replica --model {model.name} "
                    f"--version {version.name}`, or change the split.",
                )
    if sound:
        yield Finding("traffic", "healthy", f"{len(models)} models, each with replicas behind it")


def somebody_may_ask() -> Iterator[Finding]:
    keys = ApiKey.objects.select_related("tenant").filter(revoked_at=None, tenant__enabled=True)
    active = [key for key in keys if key.status() == "active"]
    if active:
        tenants = {key.tenant_id for key in active}
        yield Finding("keys", "healthy", f"{len(active)} keys of {len(tenants)} tenants")
    else:
        yield Finding(
            "keys",
            "down",
            "no enabled tenant has a key that is valid",
            "Every request is refused: unauthorized.",
            "`manage.py tenant create NAME`, then `manage.py key issue NAME main`.",
        )
