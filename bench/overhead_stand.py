"""What the gateway under test stands on: a private PostgreSQL and Valkey with a fleet inside.

    python -m bench.overhead_stand DIRECTORY TENANTS PORT...

prints one line of JSON (the environment of the gateway) when all is ready, obeys the
words it reads (`touch`: change one tenant; `ports PORT...`: these replicas serve and no others;
`beside PORT...`: these are registered too, for other models) and stops everything when its
input ends.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from bench.servers import PLENTY, private_servers

MODEL = "bench"
KEY = "hk_benchkey_0123456789abcdef0123456789abcdef"


def main(directory: str, tenants: str, *ports: str) -> None:
    """Start, seed, obey, stop."""
    with private_servers(Path(directory)) as environment:
        _seed(int(tenants))
        _replicas(ports)
        print(json.dumps(environment), flush=True)
        for line in sys.stdin:
            word, *rest = line.split()
            if word == "touch":
                _touch()
            elif word == "ports":
                _replicas(tuple(rest))
            elif word == "beside":
                _beside(tuple(rest))
            print("done", flush=True)


def _seed(tenants: int) -> None:
    from fleet.models import ApiKey, Model, ModelVersion, Tenant, TrafficSplit

    model = Model.objects.create(name=MODEL)
    version = ModelVersion.objects.create(model=model, name="v1")
    TrafficSplit.objects.create(model=model, baseline=version)
    rows = [
        Tenant(name=f"tenant-{n}", requests_per_minute=PLENTY, tokens_per_minute=PLENTY)
        for n in range(max(tenants, 1))
    ]
    Tenant.objects.bulk_create(rows, batch_size=1000)
    keys = [
        ApiKey(
            tenant=tenant,
            name="bench",
            prefix=f"{n:08x}",
            digest=hashlib.sha256(f"{KEY}{n}".encode() if n else KEY.encode()).hexdigest(),
        )
        for n, tenant in enumerate(rows)
    ]
    ApiKey.objects.bulk_create(keys, batch_size=1000)


def _replicas(ports: tuple[str, ...]) -> None:
    from fleet.models import ModelVersion, Replica

    Replica.objects.all().delete()
    _register(ModelVersion.objects.get(model__name=MODEL), ports)


def _beside(ports: tuple[str, ...]) -> None:
    from fleet.models import Model, ModelVersion, TrafficSplit

    for start in range(0, len(ports), 27):
        model = Model.objects.create(name=f"beside-{start}")
        version = ModelVersion.objects.create(model=model, name="v1")
        TrafficSplit.objects.create(model=model, baseline=version)
        _register(version, ports[start : start + 27])


def _register(version: Any, ports: tuple[str, ...]) -> None:
    from django.utils import timezone

    from fleet.models import Replica

    started = timezone.now() - timezone.timedelta(hours=1)
    Replica.objects.bulk_create(
        Replica(
            replica_id=f"replica-{port}",
            version=version,
            address=f"http://127.0.0.1:{port}",
            max_batch_size=16,
            started_at=started,
            heartbeat_at=timezone.now(),
        )
        for port in ports
    )


def _touch() -> None:
    from fleet.models import Tenant

    tenant = Tenant.objects.get(name="tenant-0")
    tenant.weight = 3.0 - tenant.weight
    tenant.save(update_fields=["weight"])


if __name__ == "__main__":
    main(*sys.argv[1:])
