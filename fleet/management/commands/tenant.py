"""`manage.py tenant`: who may ask for how much."""

import argparse
from typing import Any

from django.core.management.base import CommandParser

from engine.errors import UnknownName
from engine.types import Priority
from fleet import services
from fleet.management.command import FleetCommand, actor, number_or_none
from fleet.models import Tenant

LIMITS = (
    ("requests_per_minute", "requests per minute"),
    ("requests_burst", "requests at once"),
    ("tokens_per_minute", "tokens per minute"),
    ("tokens_burst", "tokens at once"),
    ("max_in_flight", "requests in flight"),
)


def find(name: str) -> Tenant:
    tenant = Tenant.objects.filter(name=name).first()
    if tenant is None:
        raise UnknownName("tenant", name, Tenant.objects.values_list("name", flat=True)[:8])
    return tenant


class Command(FleetCommand):
    help = "List, create and change tenants and their limits."
    subcommands = {
        "list": "List tenants with their limits.",
        "show": "Show one tenant.",
        "create": "Create a tenant. A limit that is not given does not apply.",
        "set": "Change what is given, leave the rest.",
        "remove": "Remove a tenant and its keys. Its usage stays.",
    }

    def do_list(self, **_: Any) -> None:
        self.show(
            [row_of(tenant) for tenant in Tenant.objects.order_by("name")],
            empty="there is no tenant: create one with `manage.py tenant create NAME`",
        )

    def show_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")

    def do_show(self, name: str, **_: Any) -> None:
        self.show_one(row_of(find(name)))

    def create_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="lower-case letters, digits, - and _")
        limits(parser)

    def do_create(self, name: str, reason: str, **options: Any) -> None:
        tenant = services.create_tenant(name, actor=actor(), reason=reason, **given(options))
        self.say(
            f"created {name}; give it a key with `manage.py key issue {name} NAME`",
            **row_of(tenant),
        )

    def set_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        limits(parser)

    def do_set(self, name: str, reason: str, **options: Any) -> None:
        tenant = services.update_tenant(find(name), actor=actor(), reason=reason, **given(options))
        self.show_one(row_of(tenant))

    def remove_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--reason", default="", help="kept in the history")

    def do_remove(self, name: str, reason: str, **_: Any) -> None:
        services.remove_tenant(find(name), actor=actor(), reason=reason)
        self.say(f"removed {name}", removed=name)


def limits(parser: CommandParser) -> None:
    for field, meaning in LIMITS:
        parser.add_argument(
            f"--{field.replace('_', '-')}",
            type=number_or_none,
            default=argparse.SUPPRESS,
            metavar="N",
            help=f"{meaning}, or none",
        )
    parser.add_argument(
        "--priority",
        choices=[priority.name.lower() for priority in Priority],
        default=argparse.SUPPRESS,
        help="under contention the highest is refused last",
    )
    parser.add_argument(
        "--weight", type=float, default=argparse.SUPPRESS, help="share within a priority"
    )
    parser.add_argument(
        "--enabled",
        choices=["yes", "no"],
        default=argparse.SUPPRESS,
        help="no: every request is refused",
    )
    parser.add_argument("--reason", default="", help="kept in the history")


def given(options: dict[str, Any]) -> dict[str, Any]:
    names = {field for field, _ in LIMITS} | {"weight"}
    found = {name: value for name, value in options.items() if name in names}
    if "priority" in options:
        found["priority"] = Priority[options["priority"].upper()].value
    if "enabled" in options:
        found["enabled"] = options["enabled"] == "yes"
    return found


def row_of(tenant: Tenant) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "priority": Priority(tenant.priority).name.lower(),
        "weight": tenant.weight,
        **{field: getattr(tenant, field) for field, _ in LIMITS},
        "enabled": tenant.enabled,
    }
