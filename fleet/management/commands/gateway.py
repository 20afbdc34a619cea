"""`manage.py gateway`: the data plane, until SIGTERM or Ctrl-C."""

import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from fleet.management.command import FleetCommand
from fleet.ports import complaint


class Command(FleetCommand):
    help = "Serve inference: /v1/infer, the OpenAI endpoints, /healthz, /readyz, /metrics."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="interface to bind (127.0.0.1)")
        parser.add_argument("--port", type=int, default=8080, help="port to bind (8080)")
        parser.add_argument(
            "--processes", type=int, default=1, help="processes that share the port (1)"
        )

    def act(self, host: str, port: int, processes: int, **options: Any) -> None:
        from fleet.gateway.main import run

        if problem := complaint(host, port, "choose another with --port"):
            raise CommandError(problem)
        sys.exit(run(host, port, processes))
