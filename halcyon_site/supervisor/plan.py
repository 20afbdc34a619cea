"""Which processes make up a running fleet on one machine, and on which ports.

Ports follow from `--port-base B`: web B, gateway B + 80, replicas from B + 1101. The default
base 8000 gives the ports that the documents name: 8000, 8080, 9101 and up.
"""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import InvalidInput
from fleet.fleet_file import FleetFile, ReplicaWords
from fleet.management.commands.web import ENVIRONMENT, daphne
from fleet.ports import complaint
from halcyon_site.supervisor.leftovers import marked

HOST = "127.0.0.1"
DEFAULT_BASE = 8000
GATEWAY_OFFSET = 80
REPLICA_OFFSET = 1101


@dataclass(slots=True, frozen=True, kw_only=True)
class Ports:
    """The ports of one `up`."""

    base: int = DEFAULT_BASE

    def __post_init__(self) -> None:
        if not 1024 <= self.base <= 60_000:
            raise InvalidInput("--port-base", self.base, "use a number from 1024 to 60000")

    @property
    def web(self) -> int:
        return self.base

    @property
    def gateway(self) -> int:
        return self.base + GATEWAY_OFFSET

    def replica(self, index: int) -> int:
        return self.base + REPLICA_OFFSET + index

    @property
    def web_url(self) -> str:
        return f"http://{HOST}:{self.web}"

    @property
    def gateway_url(self) -> str:
        return f"http://{HOST}:{self.gateway}"


@dataclass(slots=True, frozen=True, kw_only=True)
class Plan:
    """One process to run. `ready_url` answers 200 once it does its job; None: no way to ask."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    port: int | None = None
    ready_url: str | None = None
    stop_s: float = 10.0
    is_background: bool = False  # starts once the fleet serves


def plans(fleet: FleetFile, ports: Ports, fleet_token: str, var: Path, root: Path) -> list[Plan]:
    """The processes in the order in which they start; stopping goes the other way."""
    manage = [sys.executable, str(root / "manage.py")]
    celery = [sys.executable, "-m", "celery", "-A", "halcyon_site"]
    common = {
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
        "HALCYON_VAR": str(var),
        **marked(var),
        "HALCYON_GATEWAY_URL": ports.gateway_url,
        "HALCYON_WEB_URL": ports.web_url,
        "HALCYON_CONTROL_URL": ports.web_url,
    }
    made = [
        Plan(
            name="gateway",
            command=[*manage, "gateway", "--host", HOST, "--port", str(ports.gateway)],
            environment=common,
            port=ports.gateway,
            ready_url=f"{ports.gateway_url}/readyz",
            stop_s=35.0,
        ),
        Plan(
            name="web",
            # without `manage.py web` in front: Django would be loaded twice
            command=daphne(HOST, ports.web),
            environment=common | ENVIRONMENT,
            port=ports.web,
            ready_url=f"{ports.web_url}/readyz",
        ),
    ]
    for words, port in local_replicas(fleet, ports):
        made.append(
            Plan(
                name=words.id,
                command=_replica_command(words, port, var),
                environment={**common, "HALCYON_FLEET_TOKEN": fleet_token},
                port=port,
                ready_url=f"http://{HOST}:{port}/readyz",
            )
        )
    beat_file = str(var / "run" / "beat")
    for name, arguments in (
        ("worker", ["--pool", "solo", "--without-gossip", "--without-mingle"]),
        ("beat", ["--pidfile", "", "--schedule", beat_file]),
    ):
        command = [*celery, name, "--loglevel", "WARNING", *arguments]
        made.append(Plan(name=name, command=command, environment=common, is_background=True))
    return made


def local_replicas(fleet: FleetFile, ports: Ports) -> list[tuple[ReplicaWords, int]]:
    """The replicas that `up` starts by itself, each with its port."""
    local = [words for words in fleet.replicas if words.is_local]
    return [(words, ports.replica(index)) for index, words in enumerate(local)]


def _replica_command(words: ReplicaWords, port: int, var: Path) -> list[str]:
    command = [sys.executable, "-m", "fleet.replica", "--host", HOST, "--port", str(port)]
    command += ["--model", words.model, "--version", words.version, "--id", words.id]
    command += ["--runtime", words.runtime, "--speed", f"{words.speed:g}"]
    command += ["--weight", f"{words.weight:g}", "--state-dir", str(var)]
    command += ["--max-batch-size", str(words.max_batch_size)]
    command += ["--max-batch-tokens", str(words.max_batch_tokens)]
    command += ["--max-concurrency", str(words.max_concurrency)]
    for flag, value in (
        ("--jitter", words.jitter),
        ("--seed", words.seed),
        ("--accelerator", words.accelerator or None),
    ):
        if value is not None:
            command += [flag, str(value)]
    return command + words.options


def complaints(made: list[Plan]) -> list[str]:
    """What to say of ports that are taken, all at once."""
    remedy = "stop that, or choose others with --port-base"
    found = (complaint(HOST, plan.port, remedy) for plan in made if plan.port is not None)
    return [sentence for sentence in found if sentence]
