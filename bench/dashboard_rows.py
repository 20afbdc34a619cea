"""Run as a script: the servers of the dashboard's benchmark, or the rows of its fleet.

`serve` starts PostgreSQL and Valkey and stops them when its standard input ends.
"""

import argparse
import os
import sys
from pathlib import Path


def serve() -> None:
    from halcyon_site.embedded import EmbeddedServices

    services = EmbeddedServices(Path(os.environ["HALCYON_VAR"]), durable=False)
    services.start()
    try:
        print("ready", flush=True)
        sys.stdin.read()
    finally:
        services.stop()


def fill(replicas: int, models: int, tenants: int) -> None:
    """What the played gateway speaks of, and the small fixed past beside it."""
    import django

    django.setup()
    from django.core.management import call_command
    from django.utils import timezone

    from fleet.models import ModelVersion, Replica, Tenant
    from fleet.services import create_model, create_version, set_split
    from tests.browser import past

    call_command("migrate", verbosity=0)
    now = timezone.now()
    past.people()
    past.configuration()
    past.windows(now)
    past.usage(now)
    past.rollout(now)
    actor = "the benchmark"
    for number in range(models):
        made = create_model(f"model-{number:03d}", slo_ms=1000, actor=actor)
        for version in ("v1", "v2"):
            create_version(made, version, actor=actor)
        set_split(made, baseline="v1", canary="v2", canary_percent=10.0, actor=actor)
    versions = {(row.model.name, row.name): row for row in ModelVersion.objects.select_related()}
    Replica.objects.bulk_create(
        Replica(
            replica_id=f"gpu-{number:04d}",
            version=versions[f"model-{number % models:03d}", "v1" if number % 10 else "v2"],
            address=f"http://127.0.0.1:{20_000 + number}",
            accelerator="a100",
            registered_at=now,
        )
        for number in range(replicas)
    )
    Replica.objects.update(heartbeat_at=None)
    Tenant.objects.bulk_create(
        Tenant(name=f"tenant-{number:03d}", tokens_per_minute=60_000) for number in range(tenants)
    )


def main() -> None:
    if sys.argv[1:] == ["serve"]:
        serve()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("replicas", "models", "tenants"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    fill(options.replicas, options.models, options.tenants)


if __name__ == "__main__":
    main()
