"""`manage.py web`: dashboard, websockets, control API and admin, served by daphne.

The process is replaced by daphne's own, with HALCYON_DB_POOL set: only web processes pool
their database connections.
"""

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from fleet.management.command import FleetCommand
from fleet.ports import complaint

ENVIRONMENT = {"HALCYON_DB_POOL": "1"}


class Command(FleetCommand):
    help = "Serve the dashboard, the control API and the admin."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="interface to bind (127.0.0.1)")
        parser.add_argument("--port", type=int, default=8000, help="port to bind (8000)")
        parser.add_argument(
            "--proxy-headers",
            action="store_true",
            help="believe X-Forwarded-For: only behind a proxy that sets it",
        )

    def act(self, host: str, port: int, proxy_headers: bool, **options: Any) -> None:
        if problem := complaint(host, port, "choose another with --port"):
            raise CommandError(problem)
        os.environ.update(ENVIRONMENT)
        extra = ["--proxy-headers"] if proxy_headers else []
        os.execv(sys.executable, daphne(host, port, *extra))


def daphne(host: str, port: int, *extra: str) -> list[str]:
    """The command that serves the site; it wants `ENVIRONMENT` beside it."""
    module, name = str(settings.ASGI_APPLICATION).rsplit(".", 1)
    command = [sys.executable, "-m", "daphne", "--bind", host, "--port", str(port)]
    command += ["--verbosity", "0", "--no-server-name", "--ping-interval", "20"]
    command += ["--application-close-timeout", "5", "--http-timeout", "60"]
    return [*command, *extra, f"{module}:{name}"]
