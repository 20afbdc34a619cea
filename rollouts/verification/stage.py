"""A model of its own on the running fleet, and its removal whatever happens.

Replicas are real processes (`python -m fleet.replica`) that register through the control
API, as anybody's do. Everything carries the stage's tag, so that two stages do not meet and
one that was killed can be told from the fleet's own.
"""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from django.conf import settings

from engine.errors import UnknownName
from fleet import services as fleet_services
from fleet.models import Model, Replica, Tenant
from fleet.services import Conflict
from rollouts import services
from rollouts.services.locking import active_rollout

PREFIX = "verify-"
ACTOR = "verify_rollout"
READY_WITHIN_S = 60.0
STOP_WITHIN_S = 10.0
SPEED = 0.0625  # of the simulated device: about 0.36 s a request
SLO_MS = 5000.0
NOISE = 0.2  # a long tail: a threshold that is a little off still has slow executions above it


class StageBroken(Exception):
    """The fleet does not offer what the scenes need. The message says what to start."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Part:
    """A replica to start: `at_once` requests at a time, each (18 ms + 0.022 ms a token) / `speed`.
    `faults` lets failures be injected into it."""

    version: str
    number: int = 0
    speed: float = SPEED
    at_once: int = 128
    faults: bool = False


class Stage:
    """A model named `verify-<tag>-<name>` with its replicas."""

    def __init__(self, name: str, parts: Sequence[Part]) -> None:
        self.model = f"{PREFIX}{secrets.token_hex(2)}-{name}"
        self.parts = parts
        self.key = ""
        self.addresses: dict[str, str] = {}  # of each version's first replica
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._said: dict[str, IO[bytes]] = {}
        self._started_s = 0.0

    @contextmanager
    def up(self) -> Iterator["Stage"]:
        """Have the model and its replicas for the length of the block."""
        token = fleet_services.issue_token(self.model, actor=ACTOR)
        try:
            self._found()
            for part in self.parts:
                self._start(part, token.secret)
            self._wait_until_ready()
            fleet_services.set_split(self.model, baseline="v1", actor=ACTOR, reason="the stage")
            yield self
        finally:
            fleet_services.revoke_token(token.token, actor=ACTOR)
            self._strike()

    def age_s(self) -> float:
        """How long the youngest replica has been ready."""
        return time.monotonic() - self._started_s

    def inject(self, version: str, fault: str, **numbers: float) -> None:
        """Make that version's first replica fail once; called from the traffic's thread."""
        body = json.dumps({"fault": fault, "duration_seconds": 5, **numbers}).encode()
        request = urllib.request.Request(
            f"{self.addresses[version]}/simulate",
            data=body,
            headers={"content-type": "application/json"},
        )
        with suppress(OSError), urllib.request.urlopen(request, timeout=2):
            pass

    def _found(self) -> None:
        model = fleet_services.create_model(self.model, slo_ms=SLO_MS, actor=ACTOR)
        for version in dict.fromkeys(part.version for part in self.parts):
            fleet_services.create_version(model, version, actor=ACTOR)
        tenant = fleet_services.create_tenant(self.model, actor=ACTOR)
        self.key = fleet_services.issue_key(tenant, "traffic", actor=ACTOR).secret

    def _start(self, part: Part, token: str) -> None:
        replica_id = f"{self.model}-{part.version}-{part.number}"
        command = [sys.executable, "-m", "fleet.replica", "--host", "127.0.0.1"]
        command += ["--port", "0", "--model", self.model, "--version", part.version]
        command += ["--id", replica_id, "--runtime", "simulated", "--speed", f"{part.speed:g}"]
        command += ["--jitter", "0", "--noise", f"{NOISE:g}"]
        command += ["--max-batch-size", "1", "--max-concurrency", str(part.at_once), "--static"]
        command += ["--control-url", settings.HALCYON_WEB_URL]
        environment = {
            **os.environ,
            "HALCYON_FLEET_TOKEN": token,
            "HALCYON_FAULTS": "1" if part.faults else "0",
            "PYTHONPATH": str(settings.BASE_DIR),
        }
        said = self._said[replica_id] = tempfile.TemporaryFile()  # noqa: SIM115
        self._processes[replica_id] = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )

    def _wait_until_ready(self) -> None:
        wanted = set(self._processes)

        def registered() -> bool:
            for replica_id, process in self._processes.items():
                if process.poll() is not None:
                    raise StageBroken(
                        f"replica {replica_id} ended with {process.returncode}: "
                        f"{self._last_line(replica_id)}"
                    )
            found = Replica.objects.filter(version__model__name=self.model)
            return wanted <= set(found.values_list("replica_id", flat=True))

        if not wait_until(registered, READY_WITHIN_S):
            raise StageBroken(
                f"the replicas did not register at {settings.HALCYON_WEB_URL} within "
                f"{READY_WITHIN_S:.0f} s: does the web process run?"
            )
        self._started_s = time.monotonic()
        rows = Replica.objects.filter(replica_id__in=wanted).order_by("replica_id")
        for version, address in rows.values_list("version__name", "address"):
            self.addresses.setdefault(version, address)

    def _last_line(self, replica_id: str) -> str:
        said = self._said[replica_id]
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _strike(self) -> None:
        """Take everything away: traffic first, then processes, then what was written down."""
        if active_rollout(self.model) is not None:
            services.abort(self.model, actor=ACTOR, reason="the stage is struck")
        with suppress(UnknownName):
            fleet_services.clear_split(self.model, actor=ACTOR, reason="the stage is struck")
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for said in self._said.values():
            said.close()
        for replica_id in self._processes:
            with suppress(UnknownName):
                fleet_services.remove_replica(replica_id, actor=ACTOR, reason="the stage is struck")
        for tenant in Tenant.objects.filter(name=self.model):
            fleet_services.remove_tenant(tenant, actor=ACTOR, reason="the stage is struck")
        for model in Model.objects.filter(name=self.model):
            with suppress(Conflict):
                fleet_services.remove_model(model, actor=ACTOR, reason="the stage is struck")


def gateway_answers(url: str) -> bool:
    """Whether a gateway is ready there."""
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/readyz", timeout=3) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def wait_until(condition: Callable[[], bool], within_s: float) -> bool:
    """Whether the condition came about in time."""
    give_up_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up_s:
            return False
        time.sleep(0.2)
    return True
