"""The manners that all of Halcyon's commands share.

`--json` prints one document on standard output, else a table. A wrong value ends with exit
code 2 and one line that names it; what the present state forbids, or a database that is
away, with exit code 1 and a line that says what to do. Subcommands are methods named after
them; each change is announced as made by `cli:<account>`.
"""

import getpass
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError
from rich import box
from rich.console import Console
from rich.table import Table

from engine.errors import InvalidInput
from fleet.services import Conflict

NO_DATABASE = (
    "the database does not answer ({why}).\n"
    "Start everything with `manage.py up`, or name a server with DATABASE_URL."
)


def actor() -> str:
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"


class FleetCommand(BaseCommand):
    """A command with `--json`, errors in one line, and perhaps subcommands."""

    requires_system_checks: list[str] = []
    subcommands: Mapping[str, str] = {}

    def add_arguments(self, parser: CommandParser) -> None:
        if not self.subcommands:
            self._common(parser)
            self.arguments(parser)
            return
        chosen = parser.add_subparsers(dest="subcommand", metavar="ACTION", required=True)
        for name, help_text in self.subcommands.items():
            sub = chosen.add_parser(name, help=help_text, description=help_text)
            self._common(sub)
            declare: Callable[[CommandParser], None] | None = getattr(
                self, f"{name}_arguments", None
            )
            if declare is not None:
                declare(sub)

    def arguments(self, parser: CommandParser) -> None:
        """Declare a plain command's own arguments."""

    def handle(self, *args: Any, **options: Any) -> None:
        self.as_json: bool = options.get("json", False)
        name = options.pop("subcommand", None)
        act: Callable[..., None] = getattr(self, f"do_{name}") if name else self.act
        try:
            act(**options)
            self.stdout.flush()
        except BrokenPipeError:  # the reader had enough, as `| head` has
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        except InvalidInput as error:
            raise CommandError(str(error), returncode=2) from None
        except Conflict as error:
            raise CommandError(str(error)) from None
        except OperationalError as error:
            why = str(error).strip().splitlines()[0]
            raise CommandError(NO_DATABASE.format(why=why)) from None

    act: Callable[..., None]  # a plain command's work, by its arguments' names

    def show(
        self, rows: Sequence[Mapping[str, Any]], *, title: str = "", empty: str = "there is none"
    ) -> None:
        """A list: JSON, or a table, or the sentence for nothing."""
        if self.as_json:
            self.print_json(list(rows))
        elif rows:
            self.table(rows[0].keys(), [row.values() for row in rows], title=title)
        else:
            self.stdout.write(empty)

    def show_one(self, row: Mapping[str, Any]) -> None:
        """One thing: JSON, or name and value in lines."""
        if self.as_json:
            self.print_json(dict(row))
            return
        width = max(map(len, row), default=0)
        for name, value in row.items():
            self.stdout.write(f"{name:<{width}}  {text(value)}")

    def say(self, sentence: str, **facts: Any) -> None:
        """What was done: a sentence, or its facts as JSON."""
        if self.as_json:
            self.print_json(facts)
        else:
            self.stdout.write(sentence)

    def print_json(self, document: Any) -> None:
        self.stdout.write(json.dumps(document, default=str, indent=2))

    def table(
        self, columns: Iterable[str], rows: Iterable[Iterable[Any]], *, title: str = ""
    ) -> None:
        table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left")
        for column in columns:
            table.add_column(column)
        for row in rows:
            table.add_row(*(text(value) for value in row))
        self.console().print(table)

    def console(self) -> Console:
        target: Any = getattr(self.stdout, "_out", sys.stdout)
        return Console(file=target, width=None if target.isatty() else 160)

    @staticmethod
    def _common(parser: CommandParser) -> None:
        if not any("--json" in action.option_strings for action in parser._actions):
            parser.add_argument("--json", action="store_true", help="print JSON")


def text(value: Any) -> str:
    """A value for people: absent is a dash, not zero."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(str(item) for item in value) or "–"
    return str(value)


def number_or_none(given: str) -> int | None:
    """A limit on the command line: a whole number, or `none` to lift it."""
    return None if given.lower() in {"none", "-"} else int(given)
