"""Judge again, from the rows alone: does each decision follow from what it wrote down?

Nothing is read but the rollout's policy and its decisions. Each one's counts, capacity and
calibration are given to the engine in order, and the verdict must come out bit for bit. A
difference means that a row was altered, or that the engine has changed its mind since: the
first decision that differs is named, with both verdicts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.rollout.calibration import Calibration
from engine.rollout.capacity import CapacityFacts
from engine.rollout.controller import judge
from engine.rollout.counts import WindowCounts
from engine.rollout.state import JudgeState
from rollouts.digest import canonical, stored
from rollouts.models import Decision, Rollout
from rollouts.policy import rules_of


@dataclass(slots=True, frozen=True, kw_only=True)
class Replayed:
    """One decision judged again."""

    decision: Decision
    verdict: dict[str, Any]
    same: bool


def replay(rollout: Rollout) -> Iterator[Replayed]:
    """Every decision of the rollout, oldest first, judged again."""
    rules = rules_of(rollout.policy)
    state = JudgeState()
    for decision in rollout.decisions.order_by("seq").iterator(chunk_size=500):
        if decision.resumed:
            state = state.resumed()
        if decision.calibration is not None:
            state = state.calibrated(Calibration.from_json(decision.calibration))
        state, verdict = judge(
            state,
            WindowCounts.from_json(decision.counts),
            rules,
            CapacityFacts.from_json(decision.facts),
        )
        again = stored(verdict.to_json())
        same = canonical(again) == canonical(decision.verdict)
        yield Replayed(decision=decision, verdict=again, same=same)
