"""`manage.py key`: the keys that tenants show."""

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from engine.errors import InvalidInput, UnknownName
from fleet import services
from fleet.management.command import FleetCommand, actor
from fleet.management.commands.tenant import find
from fleet.models import ApiKey


class Command(FleetCommand):
    help = "List, issue and revoke API keys."
    subcommands = {
        "list": "List keys, of one tenant or of all.",
        "issue": "Issue a key. Its text is printed this once.",
        "revoke": "Revoke a key for good. Every gateway refuses it within two seconds.",
    }

    def list_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", nargs="?")

    def do_list(self, tenant: str | None, **_: Any) -> None:
        keys = ApiKey.objects.select_related("tenant")
        if tenant is not None:
            keys = keys.filter(tenant=find(tenant))
        self.show(
            [row_of(key) for key in keys.order_by("tenant__name", "-created_at")],
            empty="there is no key: issue one with `manage.py key issue TENANT NAME`",
        )

    def issue_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant")
        parser.add_argument("name", help="what tells it apart from the tenant's other keys")
        parser.add_argument("--days", type=float, help="expires after this many days (never)")
        parser.add_argument(
            "--may-choose-version",
            action="store_true",
            help="may send x-halcyon-version, and stays out of canary evidence then",
        )
        parser.add_argument("--reason", default="", help="kept in the history")

    def do_issue(
        self,
        tenant: str,
        name: str,
        days: float | None,
        may_choose_version: bool,
        reason: str,
        **_: Any,
    ) -> None:
        if days is not None and not 0 < days <= 36_500:
            raise InvalidInput("--days", days, "use a number above 0, at most 36500")
        expires_at = None if days is None else timezone.now() + timedelta(days=days)
        issued = services.issue_key(
            find(tenant),
            name,
            actor=actor(),
            expires_at=expires_at,
            may_choose_version=may_choose_version,
            reason=reason,
        )
        self.say(
            f"{issued.secret}\nIt is shown this once: keep it now.",
            **row_of(issued.key),
            key=issued.secret,
        )

    def revoke_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("prefix", help="as `key list` shows it, e.g. hk_a1B2c3D4")
        parser.add_argument("--reason", default="", help="kept in the history")

    def do_revoke(self, prefix: str, reason: str, **_: Any) -> None:
        found = list(ApiKey.objects.filter(prefix=prefix))
        if not found:
            raise UnknownName("prefix", prefix, ApiKey.objects.values_list("prefix", flat=True)[:8])
        for key in found:
            services.revoke_key(key, actor=actor(), reason=reason)
        self.say(f"revoked {prefix}", revoked=prefix)


def row_of(key: ApiKey) -> dict[str, Any]:
    return {
        "tenant": key.tenant.name,
        "name": key.name,
        "prefix": key.prefix,
        "status": key.status(),
        "created": key.created_at,
        "expires": key.expires_at,
        "last used": key.last_used_at,
        "may choose version": key.may_choose_version,
    }
