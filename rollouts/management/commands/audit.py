"""`manage.py audit`: who did what, is the history whole, does each verdict follow?"""

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from engine.errors import InvalidInput
from fleet.management.command import FleetCommand
from rollouts.audit import CONTENT, verify
from rollouts.models import AuditEvent, Rollout
from rollouts.replay import replay
from rollouts.selectors import audit_events


class Command(FleetCommand):
    help = "Read the history, verify its chain, and judge every decision again."
    subcommands = {
        "list": "The latest events.",
        "verify": "Walk the chains; name the first row that was altered or is missing.",
        "replay": "Judge again from the rows alone; name the first verdict that differs.",
        "export": "Write the history out, oldest first.",
    }

    def list_arguments(self, parser: CommandParser) -> None:
        _filters(parser)
        parser.add_argument("--seq", type=int, help="this one event")
        parser.add_argument("--limit", type=int, default=50, help="how many (50)")

    def do_list(self, limit: int, seq: int | None = None, **options: Any) -> None:
        events = audit_events(**_chosen(options))
        if seq is not None:
            events = events.filter(seq=seq)
        events = events[: max(limit, 1)]
        if self.as_json:
            self.print_json([_document(event) for event in events])
            return
        self.show([_line(event) for event in events], empty="nothing was recorded yet")

    def do_verify(self, **_: Any) -> None:
        found = verify()
        if not found.intact:
            if self.as_json:
                self.print_json({"intact": False, "fault": found.fault})
            raise CommandError(f"the history is not whole: {found.fault}")
        self.say(
            f"the history is whole: {found.events} events, {found.decisions} decisions",
            intact=True,
            events=found.events,
            decisions=found.decisions,
            fault=None,
        )

    def replay_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("rollout", nargs="?", type=int, help="its number; all if not given")

    def do_replay(self, rollout: int | None = None, **_: Any) -> None:
        rows = Rollout.objects.order_by("id")
        if rollout is not None:
            rows = rows.filter(pk=rollout)
            if not rows.exists():
                raise InvalidInput("rollout", rollout, "there is no rollout of that number")
        judged = 0
        for row in rows:
            for again in replay(row):
                judged += 1
                if not again.same:
                    if self.as_json:
                        self.print_json({"same": False, "seq": again.decision.seq})
                    raise CommandError(
                        f"rollout {row.pk}, window {again.decision.seq}: the row says "
                        f"{json.dumps(again.decision.verdict, sort_keys=True)}, "
                        f"judged again it is {json.dumps(again.verdict, sort_keys=True)}"
                    )
        self.say(f"{judged} verdicts judged again: each the same, bit for bit", same=True, n=judged)

    def export_arguments(self, parser: CommandParser) -> None:
        _filters(parser)
        parser.add_argument("--format", choices=["jsonl", "csv"], default="jsonl")
        parser.add_argument("--output", metavar="FILE", help="standard output if not given")

    def do_export(self, format: str, output: str | None, **options: Any) -> None:  # noqa: A002
        events = audit_events(**_chosen(options)).order_by("seq").iterator(chunk_size=1000)
        written = 0
        with self._opened(output) as target:
            writer = csv.DictWriter(target, [*CONTENT, "previous_hash", "hash"])
            if format == "csv":
                writer.writeheader()
            for event in events:
                written += 1
                row = _document(event)
                if format == "csv":
                    writer.writerow({name: _cell(value) for name, value in row.items()})
                else:
                    target.write(json.dumps(row, default=str) + "\n")
        if output is not None:
            self.say(f"wrote {written} events to {output}", events=written, file=output)

    @contextmanager
    def _opened(self, output: str | None) -> Iterator[IO[str]]:
        if output is None:
            target: Any = getattr(self.stdout, "_out", sys.stdout)
            yield target
            return
        try:
            with Path(output).open("w", encoding="utf-8", newline="") as target:
                yield target
        except OSError as error:
            raise InvalidInput("output", output, f"cannot be written: {error}") from None


def _filters(parser: CommandParser) -> None:
    parser.add_argument("--kind", help="rollout, split, tenant, key, replica, ...")
    parser.add_argument("--action", help="such as rollout.started")
    parser.add_argument("--model")
    parser.add_argument("--actor", help="part of it will do")
    parser.add_argument("--since", metavar="INSTANT", help="such as 2026-05-01T12:00:00Z")


def _chosen(options: dict[str, Any]) -> dict[str, Any]:
    chosen = {name: options[name] for name in ("kind", "action", "model", "actor")}
    since = options["since"]
    if since is not None:
        try:
            moment = parse_datetime(since)
        except ValueError:
            moment = None
        if moment is None:
            raise InvalidInput("since", since, "must be an instant such as 2026-05-01T12:00:00Z")
        zone = timezone.get_default_timezone()
        chosen["start"] = moment if moment.tzinfo else moment.replace(tzinfo=zone)
    return chosen


def _document(event: AuditEvent) -> dict[str, Any]:
    return {name: getattr(event, name) for name in (*CONTENT, "previous_hash", "hash")}


def _cell(value: object) -> object:
    return json.dumps(value, default=str) if isinstance(value, (dict, list)) else value


def _line(event: AuditEvent) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "at": event.at,
        "actor": event.actor,
        "action": event.action,
        "subject": event.subject,
        "reason": event.reason or None,
    }
