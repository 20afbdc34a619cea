"""What a gateway under test stands on: a PostgreSQL and a Valkey of its own, and how to start it.

with private_servers(directory) as environment: ...    in a process that seeds the fleet
gateway_command(port, state_dir)                       what is started with that environment
wait_until_healthy(url, count)                         it knows its replicas and probed them
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.children import apart
from engine.errors import InvalidInput

PLENTY = 2_000_000_000  # a quota that no benchmark meets
_GATEWAY = """
import sys
from fleet.gateway.main import run
sys.exit(run(port=int(sys.argv[1]), state_dir=sys.argv[2]))
"""
_LOOK_S = 0.1


@contextmanager
def private_servers(directory: Path) -> Iterator[dict[str, str]]:
    """Run both under `directory`, with Django set up in this process and every table made.
    Yields what the environment of a gateway in front of them needs."""
    environment = apart(directory)
    needed = {name: environment[name] for name in ("DJANGO_SETTINGS_MODULE", "HALCYON_VAR")}
    needed |= {"HALCYON_SECRET_KEY": "only-for-a-benchmark", "HALCYON_LOG_LEVEL": "WARNING"}
    needed |= dict.fromkeys(("DATABASE_URL", "VALKEY_URL"), "")  # unset, whoever adds these
    os.environ.clear()
    os.environ.update(environment | needed)
    import django

    from halcyon_site.embedded import EmbeddedServices

    services = EmbeddedServices(directory, durable=False)
    services.start()
    try:
        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield needed
    finally:
        services.stop()


def gateway_command(port: int, state_dir: Path) -> list[str]:
    """The command line of a gateway with one process."""
    return [sys.executable, "-c", _GATEWAY, str(port), str(state_dir)]


def wait_until_healthy(
    url: str, count: int, model: str, *, total: int | None = None, within_s: float = 60.0
) -> None:
    """Until the gateway at `url` knows `count` replicas of `model`, `total` of all models (None:
    no others), and finds them healthy. Raises `InvalidInput` where that does not come about."""
    total = count if total is None else total
    limit_s = time.monotonic() + within_s
    while time.monotonic() < limit_s:
        try:
            with urllib.request.urlopen(f"{url}/v1/control/state", timeout=5.0) as answer:
                replicas = json.load(answer)["replicas"]
        except (urllib.error.URLError, OSError):
            replicas = []
        serving = sum(replica["model"] == model for replica in replicas)
        healthy = sum(replica["status"] == "healthy" for replica in replicas)
        if serving == count and healthy == len(replicas) == total:
            return
        time.sleep(_LOOK_S)
    raise InvalidInput("gateway", url, f"did not find {count} healthy replicas of {model}")
