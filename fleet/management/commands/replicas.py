"""`manage.py replicas`: who serves, and the fleet as a file."""

from pathlib import Path
from typing import Any

import msgspec
from django.core.management.base import CommandParser
from django.utils import timezone

from engine.errors import UnknownName
from fleet import fleet_file, services
from fleet.management.command import FleetCommand, actor
from fleet.models import Replica


class Command(FleetCommand):
    help = "List, register, drain and remove replicas; compare the fleet with a file."
    subcommands = {
        "list": "List replicas as they are written down.",
        "show": "Show one replica.",
        "register": "Write down a server that will not register by itself (vLLM, llama.cpp).",
        "drain": "Send a replica no new work.",
        "undrain": "Let a replica have work again.",
        "remove": "Forget a replica. One that still runs will register again.",
        "apply": "Make the fleet equal to a file, for what the file names.",
    }

    def do_list(self, **_: Any) -> None:
        rows = Replica.objects.select_related("version__model").order_by("replica_id")
        self.show(
            [row_of(replica) for replica in rows],
            empty="no replica is written down: start one with `manage.py replica --help`",
        )

    def show_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id")

    def do_show(self, id: str, **_: Any) -> None:  # noqa: A002
        replica = Replica.objects.select_related("version__model").filter(replica_id=id).first()
        if replica is None:
            known = Replica.objects.values_list("replica_id", flat=True)[:8]
            raise UnknownName("replica", id, known)
        limits = ("max_batch_size", "max_batch_tokens", "max_concurrency", "work_unit")
        details = {name.replace("_", " "): getattr(replica, name) for name in limits}
        self.show_one({**row_of(replica), **details, "accelerator": replica.accelerator})

    def register_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id")
        parser.add_argument("--model", required=True)
        parser.add_argument("--model-version", required=True, metavar="VERSION")
        parser.add_argument("--address", required=True, help="http(s)://host:port")
        parser.add_argument("--protocol", choices=["batch", "openai"], default="openai")
        parser.add_argument("--weight", type=float, default=1.0)
        parser.add_argument("--accelerator", default="")
        parser.add_argument("--max-batch-size", type=int, default=32)
        parser.add_argument("--max-batch-tokens", type=int, default=16_384)
        parser.add_argument(
            "--max-concurrency",
            type=int,
            help="batches at once (1); of an OpenAI server the most that is learned (256)",
        )
        parser.add_argument("--reason", default="", help="kept in the history")

    def do_register(self, id: str, model_version: str, reason: str, **options: Any) -> None:  # noqa: A002
        names = (
            "model",
            "address",
            "protocol",
            "weight",
            "accelerator",
            "max_batch_size",
            "max_batch_tokens",
            "max_concurrency",
        )
        registration = services.Registration(
            replica_id=id, version=model_version, **{name: options[name] for name in names}
        )
        replica, is_new = services.register_replica(
            registration, actor=actor(), reason=reason, heartbeat=False
        )
        self.say(f"{'registered' if is_new else 'updated'} {id}", **row_of(replica))

    def drain_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id")
        parser.add_argument("--reason", default="", help="kept in the history")

    undrain_arguments = remove_arguments = drain_arguments

    def do_drain(self, id: str, reason: str, **_: Any) -> None:  # noqa: A002
        replica = services.drain_replica(id, actor=actor(), reason=reason)
        self.say(f"{id} drains", **row_of(replica))

    def do_undrain(self, id: str, reason: str, **_: Any) -> None:  # noqa: A002
        replica = services.undrain_replica(id, actor=actor(), reason=reason)
        self.say(f"{id} may have work again", **row_of(replica))

    def do_remove(self, id: str, reason: str, **_: Any) -> None:  # noqa: A002
        services.remove_replica(id, actor=actor(), reason=reason)
        self.say(f"removed {id}", removed=id)

    def apply_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
        parser.add_argument(
            "--prune",
            action="store_true",
            help="also remove replicas of the file's models that the file does not name",
        )
        parser.add_argument("--reason", default="", help="kept in the history")

    def do_apply(self, file: Path, dry_run: bool, prune: bool, reason: str, **_: Any) -> None:
        steps = fleet_file.differences(fleet_file.read(file), prune=prune)
        if not dry_run:
            fleet_file.apply(steps, actor=actor(), reason=reason or f"replicas apply {file}")
        if self.as_json:
            self.print_json({"applied": not dry_run, "steps": msgspec.to_builtins(steps)})
            return
        for step in steps:
            self.stdout.write(step.sentence())
        if not steps:
            self.stdout.write("the fleet is as the file says")
        elif dry_run:
            self.stdout.write(f"{len(steps)} differences; nothing was changed (--dry-run)")


def row_of(replica: Replica) -> dict[str, Any]:
    seen = replica.heartbeat_at
    age = None if seen is None else round((timezone.now() - seen).total_seconds(), 1)
    return {
        "id": replica.replica_id,
        "model": replica.version.model.name,
        "version": replica.version.name,
        "address": replica.address,
        "protocol": replica.protocol,
        "runtime": replica.runtime,
        "weight": replica.weight,
        "draining": replica.draining,
        "heartbeat age (s)": age,
    }
