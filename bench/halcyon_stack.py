"""Halcyon as a user starts it: a gateway in front of some upstreams, with everything on.

    with HalcyonStack(folder, upstream URLs) as stack:
        stack.start(port, folder) -> a running gateway, as often as wanted

Behind it stand a private PostgreSQL and Valkey with one model (`tiny`, one version), the
upstreams as its replicas of protocol `openai`, and one tenant with quotas far above what a
benchmark sends, so that key, buckets, shared quota and limiter all work for every request.

What `Process` reads (CPU, memory) is the gateway's own: the servers behind it live in a
process of their own (`python -m bench.halcyon_stack`), which ends with its input.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from bench.peers import Process

MODEL = "tiny"
KEY = "hk_proxykey_0123456789abcdef0123456789abcdef"
MAX_CONCURRENCY = 256
_PLENTY = 2_000_000_000
_PROBED_S = 15.0
_GATEWAY = """
import sys
from fleet.gateway.main import run
sys.exit(run(port=int(sys.argv[1]), state_dir=sys.argv[2]))
"""


class HalcyonStack:
    """The servers behind the gateways, in a process of their own."""

    def __init__(self, folder: Path, upstreams: Sequence[str]) -> None:
        self._upstreams = upstreams
        self._log = folder / "halcyon-stack.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.halcyon_stack", str(folder / "var"), *upstreams],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in: IO[str] = self._process.stdin
        self._out: IO[str] = self._process.stdout
        self._environment: dict[str, str] = {}

    def start(self, port: int, folder: Path) -> Process:
        """A fresh gateway that has probed every upstream."""
        gateway = Process(
            "halcyon",
            [sys.executable, "-c", _GATEWAY, str(port), str(folder / f"state-{port}")],
            port,
            "/healthz",
            folder,
            self._environment,
        )
        gateway.key = KEY
        try:
            _wait_until_probed(gateway, len(self._upstreams))
        except BaseException:
            gateway.stop()
            raise
        return gateway

    def __enter__(self) -> Self:
        line = self._out.readline()
        if not line:
            self.__exit__()
            raise RuntimeError(self._log.read_text()[-2000:])
        self._environment = json.loads(line)
        return self

    def __exit__(self, *_: object) -> None:
        self._in.close()
        self._process.wait(60)
        self._out.close()


def _wait_until_probed(gateway: Process, count: int) -> None:
    until = time.monotonic() + _PROBED_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"{gateway.url}/v1/control/state", timeout=2.0) as answer:
                replicas = json.load(answer)["replicas"]
        except (urllib.error.URLError, OSError):
            replicas = []
        if len(replicas) == count and all(r["status"] == "healthy" for r in replicas):
            return
        time.sleep(0.1)
    raise RuntimeError(f"halcyon did not find its {count} upstreams healthy: {gateway.log}")


def main(directory: str, *upstreams: str) -> None:
    """Start the servers, seed, say how to reach them, and stop when the input ends."""
    for name in ("DATABASE_URL", "VALKEY_URL"):
        os.environ.pop(name, None)
    ours = {
        "HALCYON_VAR": directory,
        "HALCYON_SECRET_KEY": "only-for-a-benchmark",
        "DJANGO_SETTINGS_MODULE": "halcyon_site.settings",
        "HALCYON_LOG_LEVEL": "WARNING",
    }
    os.environ.update(ours)
    import django

    from halcyon_site.embedded import EmbeddedServices

    services = EmbeddedServices(Path(directory), durable=False)
    services.start()
    try:
        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        _seed(upstreams)
        print(json.dumps(ours), flush=True)
        sys.stdin.read()
    finally:
        services.stop()


def _seed(upstreams: Sequence[str]) -> None:
    from django.utils import timezone

    from fleet.models import ApiKey, Model, ModelVersion, Replica, Tenant, TrafficSplit

    model = Model.objects.create(name=MODEL)
    version = ModelVersion.objects.create(model=model, name="v1")
    TrafficSplit.objects.create(model=model, baseline=version)
    now = timezone.now()
    for number, address in enumerate(upstreams):
        Replica.objects.create(
            replica_id=f"upstream-{number}",
            version=version,
            address=address,
            protocol="openai",
            max_concurrency=MAX_CONCURRENCY,
            started_at=now - timezone.timedelta(hours=1),
            heartbeat_at=now,
        )
    tenant = Tenant.objects.create(
        name="bench", requests_per_minute=_PLENTY, tokens_per_minute=_PLENTY
    )
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    ApiKey.objects.create(tenant=tenant, name="bench", prefix="proxykey", digest=digest)


if __name__ == "__main__":
    main(*sys.argv[1:])
