"""`manage.py explain`: the decision record of a recent request, from the gateway that took it."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from engine.errors import InvalidInput
from fleet.management.command import FleetCommand


class Command(FleetCommand):
    help = (
        "Print each comparison that was made for a request, as JSON. Only the tenant that sent "
        "it may read it, so its key is needed."
    )

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("request_id", help="as x-request-id of the answer says")
        parser.add_argument(
            "--key", default=os.environ.get("HALCYON_KEY", ""), help="API key (HALCYON_KEY)"
        )
        parser.add_argument(
            "--gateway", metavar="URL", default=settings.HALCYON_GATEWAY_URL.split(",")[0]
        )

    def act(self, request_id: str, key: str, gateway: str, **_: Any) -> None:
        if not key:
            raise InvalidInput("--key", key, "must be the API key of the request's tenant")
        url = f"{gateway.rstrip('/')}/v1/requests/{urllib.parse.quote(request_id, safe='')}/explain"
        request = urllib.request.Request(url, headers={"x-api-key": key})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                self.print_json(json.load(answer))
        except urllib.error.HTTPError as error:
            raise CommandError(_told(error)) from None
        except OSError as error:
            raise CommandError(
                f"{gateway} does not answer ({error}): start a gateway with `manage.py up`, or "
                "name one with --gateway or HALCYON_GATEWAY_URL"
            ) from None


def _told(error: urllib.error.HTTPError) -> str:
    """The envelope's sentence, or the status where there is none."""
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the gateway answered {error.code}"
