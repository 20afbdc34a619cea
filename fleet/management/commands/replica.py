"""`manage.py replica`: become a replica process.

The process is replaced by `python -m fleet.replica`: no Django in its memory, signals go
straight to it, and it starts in a few hundred milliseconds.
"""

import os
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from fleet.replica.options import add_arguments


class Command(BaseCommand):
    help = "Serve one model version: in a fleet, or alone with --standalone."
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        # --version is the model's here; Django's own is `manage.py version`.
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        add_arguments(parser)

    def run_from_argv(self, argv: list[str]) -> None:
        root = str(Path(__file__).resolve().parents[3])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        os.environ["HALCYON_PROG"] = "manage.py replica"
        command = [sys.executable, "-m", "fleet.replica", *argv[2:]]
        os.execv(sys.executable, command)

    def handle(self, *args: Any, **options: Any) -> None:
        raise NotImplementedError("a replica is a process of its own: use `manage.py replica`")
