"""Judge what is due: gather the window, ask the engine, write down and do what it says.

One transaction a window, which holds the rollout's row from before the evidence is read
until the split has changed. A second evaluator finds the row held and goes on to the next
rollout; one that comes late finds the window judged. A process that dies in between leaves
nothing: the next one judges the same window and says the same. Windows missed while no
worker ran are judged in order, each once; more than `CATCH_UP` of them are skipped, because
a judge that is an hour behind should look at the present.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from engine.rollout.calibration import RECENT_WINDOWS
from engine.rollout.controller import judge
from engine.rollout.state import JudgeState
from engine.rollout.verdict import Phase
from fleet.models import TrafficSplit
from fleet.selectors.evidence import arm_sums
from rollouts.capacity import capacity_facts
from rollouts.evidence import CALIBRATION_WINDOWS, calibration_before, counts_of
from rollouts.models import Decision, Rollout
from rollouts.policy import rules_of
from rollouts.services.apply import JUDGE, apply_verdict, supersede
from rollouts.timing import due_at, window_end

CATCH_UP = 10
JUDGED = (Phase.PROGRESSING.value, Phase.INCONCLUSIVE.value)

log = logging.getLogger(__name__)


@dataclass(slots=True, frozen=True)
class Outcome:
    """What became of one rollout in a tick."""

    rollout: int
    decisions: int
    error: str = ""


def evaluate_due(now: datetime | None = None) -> list[Outcome]:
    """Judge every window that is due, of every rollout. One that fails hides no other."""
    moment = now or timezone.now()
    due = Rollout.objects.filter(phase__in=JUDGED, due_at__lte=moment).order_by("due_at")
    outcomes = []
    for pk in due.values_list("pk", flat=True):
        decisions, error = 0, ""
        try:
            while decisions < CATCH_UP and evaluate(pk, now=now) is not None:
                decisions += 1
        except Exception as problem:
            log.exception("rollout %s cannot be judged", pk)
            error = f"{type(problem).__name__}: {problem}"
        outcomes.append(Outcome(pk, decisions, error))
    return outcomes


@transaction.atomic
def evaluate(pk: int, *, now: datetime | None = None) -> Decision | None:
    """Judge the window of this rollout that is due; None where none is, or another has it."""
    rollout = Rollout.objects.select_for_update(skip_locked=True).filter(pk=pk).first()
    now = now or timezone.now()
    if rollout is None or rollout.phase not in JUDGED:
        return None
    if rollout.due_at is None or rollout.due_at > now:
        return None
    if not _owns_split(rollout):
        supersede(rollout, actor=JUDGE, reason="the split was changed by hand", now=now)
        return None
    _skip_what_is_too_old(rollout, now)
    rules = rules_of(rollout.policy)
    state = JudgeState.from_json(rollout.state)
    if rollout.resumed:
        state = state.resumed()
    fresh = None
    if state.wants_calibration:
        at_most = CALIBRATION_WINDOWS
        if state.calibration is not None:  # not from the history that was unlike today
            at_most = min(RECENT_WINDOWS, len(state.columns["step"]) - state.calibrated_at)
        fresh = calibration_before(rollout, rollout.window_start, at_most)
        state = state.calibrated(fresh)
    end = window_end(rollout.window_start, rollout.interval_s)
    sums = arm_sums(rollout.model, rollout.window_start, end)
    counts = counts_of(rollout, (state.last_seq or 0) + 1, sums, state.calibration, rules)
    facts = capacity_facts(
        rollout.model,
        rollout.baseline,
        rollout.canary,
        sums,
        float(rollout.interval_s),
        end,
        rules.slo_ms,
    )
    state, verdict = judge(state, counts, rules, facts)
    return apply_verdict(
        rollout,
        state,
        verdict,
        counts=counts,
        facts=facts,
        calibration=fresh,
        now=now,
    )


def _owns_split(rollout: Rollout) -> bool:
    """Whether the split is as this rollout left it."""
    split = (
        TrafficSplit.objects.select_related("baseline", "canary")
        .filter(model__name=rollout.model)
        .first()
    )
    return (
        split is not None
        and split.canary is not None
        and split.baseline.name == rollout.baseline
        and split.canary.name == rollout.canary
        and split.salt == rollout.salt
        and abs(split.canary_percent - rollout.percent) < 1e-9
    )


def _skip_what_is_too_old(rollout: Rollout, now: datetime) -> None:
    assert rollout.due_at is not None
    behind = int((now - rollout.due_at).total_seconds() // rollout.interval_s)
    if behind > CATCH_UP:
        log.warning("rollout %s: %d windows were never judged", rollout.pk, behind - CATCH_UP)
        rollout.window_start += timedelta(seconds=(behind - CATCH_UP) * rollout.interval_s)
        rollout.due_at = due_at(rollout.window_start, rollout.interval_s)
