"""`manage.py rollout`: give a new version its traffic step by step, or take it away."""

import json
import socket
import time
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from engine.errors import InvalidInput
from engine.rollout.verdict import Phase
from fleet.management.command import FleetCommand, actor
from fleet.models import Model
from rollouts import selectors, services
from rollouts.api.serializers.rollouts import document_of
from rollouts.audit import origin
from rollouts.models import Rollout
from rollouts.policy import FIELDS
from rollouts.selectors import Status
from rollouts.services.locking import latest_rollout

POLL_S = 0.5


class Command(FleetCommand):
    help = "Start, watch and steer rollouts. `start --explain` says what a policy would do."
    subcommands = {
        "start": "Start replacing a model's stable version by another.",
        "status": "Where the rollouts are, and what was decided last.",
        "watch": "Print each decision as it is made, until the rollout ends.",
        "promote": "Give the canary everything now.",
        "abort": "Take the canary's traffic away now. Works without Celery.",
        "pause": "Hold the split and judge nothing.",
        "resume": "Judge again.",
    }

    def start_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model")
        parser.add_argument("canary", metavar="VERSION")
        parser.add_argument(
            "--policy",
            default="{}",
            metavar="JSON|FILE",
            help=f"any of {', '.join(field.name for field in FIELDS)}",
        )
        parser.add_argument("--steps", metavar="1,5,25,50,100", help="percent, ascending")
        parser.add_argument("--interval", type=int, metavar="S", help="length of a window (30)")
        parser.add_argument("--shadow", action="store_true", help="copies only, answers dropped")
        parser.add_argument("--supersede", action="store_true", help="end what is under way")
        parser.add_argument("--explain", action="store_true", help="say what it would do, and stop")
        _reason(parser, required=False)

    def do_start(self, model: str, canary: str, reason: str, **options: Any) -> None:
        policy = read_policy_argument(options["policy"])
        if options["steps"]:
            policy["steps"] = percentages(options["steps"])
        if options["interval"] is not None:
            policy["intervalS"] = options["interval"]
        if options["explain"]:
            self._explain(model, policy)
            return
        with origin(socket.gethostname()):
            rollout = services.start(
                model,
                canary,
                policy=policy,
                shadow=options["shadow"],
                supersede_active=options["supersede"],
                actor=actor(),
                reason=reason,
            )
        self._say_status(rollout)

    def status_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", nargs="?", help="all models where not given")
        parser.add_argument("--all", action="store_true", help="ended ones too")

    def do_status(self, model: str | None = None, **options: Any) -> None:
        if model is not None and not options["all"]:
            self._say_status(latest_rollout(model))
            return
        found = selectors.recent_rollouts(200, model=model)
        shown = [status for status in found if status.active or options["all"]]
        if self.as_json:
            self.print_json([document_of(status) for status in shown])
            return
        self.show(
            [_line(status) for status in shown],
            empty="no rollout is under way: `manage.py rollout start MODEL VERSION --reason WHY`",
        )

    def watch_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model")
        parser.add_argument("--timeout", type=float, metavar="S", help="give up after this long")

    def do_watch(self, model: str, timeout: float | None = None, **_: Any) -> None:
        rollout = latest_rollout(model)
        seen, started = 0, time.monotonic()
        warned = False
        while True:
            for decision in rollout.decisions.filter(seq__gt=seen).order_by("seq"):
                seen = decision.seq
                self._say_decision(selectors.stored_decision(decision))
            rollout.refresh_from_db()
            if not rollout.is_active or rollout.phase == Phase.INCONCLUSIVE.value:
                break
            status = selectors.status_of(rollout)
            if status.overdue_s is not None and not warned:
                warned = True
                self.stderr.write(
                    f"the next verdict is {status.overdue_s:.0f} s late: "
                    "does a Celery worker run? `rollout abort` works without one"
                )
            if timeout is not None and time.monotonic() - started > timeout:
                self.stderr.write(f"still {rollout.phase} after {timeout:g} s")
                raise SystemExit(1)
            time.sleep(POLL_S)
        if not self.as_json:
            self.stdout.write(f"{rollout.model} {rollout.canary}: {rollout.phase}")

    def promote_arguments(self, parser: CommandParser) -> None:
        _model_and_reason(parser)

    def do_promote(self, **options: Any) -> None:
        self._operate(services.promote, **options)

    def abort_arguments(self, parser: CommandParser) -> None:
        _model_and_reason(parser)

    def do_abort(self, **options: Any) -> None:
        self._operate(services.abort, **options)

    def pause_arguments(self, parser: CommandParser) -> None:
        _model_and_reason(parser)

    def do_pause(self, **options: Any) -> None:
        self._operate(services.pause, **options)

    def resume_arguments(self, parser: CommandParser) -> None:
        _model_and_reason(parser)

    def do_resume(self, **options: Any) -> None:
        self._operate(services.resume, **options)

    def _operate(self, act: Any, *, model: str, reason: str, **_: Any) -> None:
        with origin(socket.gethostname()):
            self._say_status(act(model, actor=actor(), reason=reason))

    def _say_status(self, rollout: Rollout) -> None:
        status = selectors.status_of(rollout)
        if self.as_json:
            self.print_json(document_of(status))  # what the control API answers
        else:
            self.show_one(_line(status) | _more(status))

    def _say_decision(self, decision: dict[str, Any]) -> None:
        if self.as_json:
            self.stdout.write(json.dumps(decision, default=str))
            return
        at = decision["at"].strftime("%H:%M:%S")
        before, after = decision["percentBefore"], decision["percent"]
        share = f"{before:g} %" if before == after else f"{before:g} -> {after:g} %"
        self.stdout.write(f"{at}  {share:<12} {decision['verdict']:<24} {decision['text']}")

    def _explain(self, model: str, policy: dict[str, Any]) -> None:
        row = Model.objects.filter(name=model).first()
        seen = selectors.preview(policy, slo_ms=None if row is None else row.slo_ms)
        if self.as_json:
            self.print_json({"policy": seen.policy.written, "sentences": seen.sentences})
            return
        for sentence in seen.sentences:
            self.stdout.write(sentence)
        self.stdout.write(f"At the soonest it is promoted after {seen.soonest_s / 60:.0f} min.")


def read_policy_argument(given: str) -> dict[str, Any]:
    """JSON, or the name of a file that holds it."""
    text = given
    if not given.lstrip().startswith("{"):
        try:
            text = Path(given).read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidInput("policy", given, f"is neither JSON nor a file: {error}") from None
    try:
        policy = json.loads(text)
    except ValueError as error:
        raise InvalidInput("policy", given, f"is not JSON: {error}") from None
    if not isinstance(policy, dict):
        raise InvalidInput("policy", given, "must be a JSON object")
    return policy


def percentages(given: str) -> list[float]:
    try:
        return [float(step) for step in given.split(",")]
    except ValueError:
        raise InvalidInput("steps", given, "must be percentages such as 1,5,25,100") from None


def _model_and_reason(parser: CommandParser) -> None:
    parser.add_argument("model")
    _reason(parser, required=True)


def _reason(parser: CommandParser, *, required: bool) -> None:
    parser.add_argument("--reason", default="", required=required, help="kept in the history")


def _line(status: Status) -> dict[str, Any]:
    return {
        "model": status.model,
        "canary": status.canary,
        "baseline": status.baseline,
        "phase": status.phase,
        "percent": status.percent,
        "verdict": status.verdict or None,
        "decided": status.decided_at,
        "next": status.next_evaluation_at,
    }


def _more(status: Status) -> dict[str, Any]:
    more: dict[str, Any] = {
        "step": f"{status.step + 1} of {len(status.steps)}",
        "streaks": f"{status.healthy} healthy, {status.unhealthy} unhealthy",
        "why": status.text or None,
        "started": f"{status.started_at:%Y-%m-%d %H:%M:%S} by {status.started_by}",
    }
    if status.overdue_s is not None:
        more["late"] = f"{status.overdue_s:.0f} s: does a Celery worker run?"
    return more
