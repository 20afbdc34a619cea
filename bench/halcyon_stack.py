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
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from bench.peers import Process
from bench.servers import PLENTY, gateway_command, private_servers, wait_until_healthy

MODEL = "tiny"
KEY = "hk_proxykey_0123456789abcdef0123456789abcdef"
MAX_CONCURRENCY = 256


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
            gateway_command(port, folder / f"state-{port}"),
            port,
            "/healthz",
            folder,
            self._environment,
        )
        gateway.key = KEY
        try:
            wait_until_healthy(gateway.url, len(self._upstreams), MODEL)
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


def main(directory: str, *upstreams: str) -> None:
    """Start the servers, seed, say how to reach them, and stop when the input ends."""
    with private_servers(Path(directory)) as environment:
        _seed(upstreams)
        print(json.dumps(environment), flush=True)
        sys.stdin.read()


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
        name="bench", requests_per_minute=PLENTY, tokens_per_minute=PLENTY
    )
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    ApiKey.objects.create(tenant=tenant, name="bench", prefix="proxykey", digest=digest)


if __name__ == "__main__":
    main(*sys.argv[1:])
