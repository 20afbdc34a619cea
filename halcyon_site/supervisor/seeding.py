"""What a fresh installation needs before it can serve: tables, the fleet file, people, a token.

Only what is missing is added. Keys, the fleet token and the first passwords are derived from
the installation's SECRET_KEY, so they are the same after each restart and stored nowhere.
A password that somebody changed is neither reset nor shown.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils.module_loading import import_string

from fleet import fleet_file
from fleet.fleet_file import FleetFile, ReplicaWords
from fleet.fleet_file.keys import demo_key
from fleet.models import AccessToken
from fleet.replica.runtimes import RUNTIMES
from fleet.secret import FLEET_TOKEN, Secret, derived_secret, digest_of
from fleet.services import Registration, issue_token, register_replica
from halcyon_site.supervisor.plan import HOST, Ports, local_replicas

ACTOR = "up"
PASSWORD_LENGTH = 16


@dataclass(slots=True, frozen=True, kw_only=True)
class Seeded:
    """What to print, and what to hand to the replicas."""

    fleet_token: str
    keys: dict[str, str]  # "tenant/key" -> the key
    steps: int


def seed(fleet: FleetFile, ports: Ports) -> Seeded:
    """Have everything there. The local replicas are written down before they start: their
    addresses are known, so that gateways need not wait for them to register."""
    migrate()
    steps = fleet_file.differences(fleet, only_missing=True)
    fleet_file.apply(steps, actor=ACTOR, reason="first start")
    for words, port in local_replicas(fleet, ports):
        register_replica(_registration(words, port), actor=ACTOR)
    token = _fleet_token()
    return Seeded(
        fleet_token=token.text,
        keys={
            f"{tenant}/{key}": demo_key(tenant, key).text
            for tenant, words in fleet.tenants.items()
            for key in words.keys
        },
        steps=len(steps),
    )


def _registration(words: ReplicaWords, port: int) -> Registration:
    runtime = import_string(RUNTIMES[words.runtime].replace(":", "."))
    return Registration(
        replica_id=words.id,
        model=words.model,
        version=words.version,
        address=f"http://{HOST}:{port}",
        weight=words.weight,
        accelerator=words.accelerator or runtime.accelerator,
        runtime=words.runtime,
        work_unit=runtime.work_unit.value,
        max_batch_size=words.max_batch_size,
        max_batch_tokens=words.max_batch_tokens,
        max_concurrency=words.max_concurrency,
        loaded_models=[words.model],
        draining=False,
    )


def people(fleet: FleetFile, var: Path) -> dict[str, str | None]:
    """The file's users with their first passwords; None where somebody changed it since.

    Hashing a password is slow on purpose, three would delay a start by a second: so what is
    compared is a digest of the stored hash, kept beside the data when the user was made.
    """
    path = var / "first_passwords.json"
    first: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    try:
        found = {name: _user(name, role, first) for name, role in fleet.users.items()}
    finally:
        connections.close_all()
    path.write_text(json.dumps(first))
    return found


def migrate() -> None:
    """Migrate if anything is to be done: looking costs a tenth of running `migrate`."""
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", verbosity=0, interactive=False)


def _fleet_token() -> Secret:
    secret = derived_secret(FLEET_TOKEN, "up")
    token = AccessToken.objects.filter(digest=secret.digest).first()
    if token is None:
        issue_token("local replicas", actor=ACTOR, secret=secret)
    return secret


@transaction.atomic
def _user(name: str, role: str, first: dict[str, str]) -> str | None:
    password = derived_secret("pw", name).text.rsplit("_", 1)[1][:PASSWORD_LENGTH]
    user = User.objects.filter(username=name).first()
    if user is None:
        make = User.objects.create_superuser if role == "admin" else User.objects.create_user
        user = make(name, password=password)
        user.is_staff = True
        user.save(update_fields=["is_staff"])
        user.groups.add(Group.objects.get(name=role.capitalize()))
        first[name] = digest_of(user.password)
    return password if first.get(name) == digest_of(user.password) else None
