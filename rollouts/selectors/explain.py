"""Before: what would this policy do? After: what would have changed the verdict?"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from typing import Any

from engine.rollout.noninferiority import MIN_WINDOWS
from engine.rollout.verdict import Reason
from rollouts.models import Decision
from rollouts.policy import Policy, read_policy, rules_of


@dataclass(slots=True, frozen=True, kw_only=True)
class Preview:
    """A policy in plain sentences, and the soonest that it can promote."""

    policy: Policy
    soonest_s: float
    sentences: list[str]


@dataclass(slots=True, frozen=True, kw_only=True)
class Change:
    """One comparison of a decision: what it needed, what it had."""

    what: str
    needed: str
    had: str
    met: bool


def preview(policy: Mapping[str, Any] | None = None, *, slo_ms: float | None = None) -> Preview:
    """Raises `InvalidInput` naming the field, as starting would."""
    read = read_policy(policy, slo_ms=slo_ms)
    rules, interval = read.rules, read.interval_s
    windows = sum(
        max(rules.healthy_windows, MIN_WINDOWS if step == rules.judged_step else 1)
        for step in range(len(rules.steps))
    )
    shares = ", ".join(f"{step:g}" for step in read.written["steps"])
    sentences = [
        f"The canary gets {shares} % of the sessions, judged every {interval} s.",
        f"It is rolled back when it is surely slower than the baseline by more than "
        f"{rules.tolerated_slowdown_ratio:.0%}, fails or misses deadlines more often; a version "
        f"that is no worse is rolled back at most once in {1 / rules.alpha:.0f} rollouts.",
        f"It is promoted only when slower by {rules.non_inferiority_ratio:.0%} is excluded.",
        f"After {rules.max_wait_windows * interval / 60:.0f} min at one step without a decision "
        "it is inconclusive and holds: an operator decides.",
    ]
    if rules.slo_ms is not None:
        sentences.append(f"95 % of its requests must take less than {rules.slo_ms:g} ms.")
    return Preview(policy=read, soonest_s=float(windows * interval), sentences=sentences)


def what_would_change(decision: Decision) -> list[Change]:
    """Each comparison behind a decision, so that one sees what was short and by how much."""
    numbers = decision.verdict["numbers"]
    rules = rules_of(decision.rollout.policy)
    changes = []
    for metric, what in (
        ("latency", f"slower by more than {rules.tolerated_slowdown_ratio:.0%}"),
        ("failures", "failing more often"),
        ("misses", "missing deadlines more often"),
    ):
        found, limit = numbers.get(f"{metric}LogE"), rules.log_limit(metric)
        if found is not None:
            changes.append(_evidence(f"rollback: {what}", found, limit))
    found = numbers.get("promotionLogE")
    if found is not None:
        changes.append(
            _evidence(
                f"promotion: slower by {rules.non_inferiority_ratio:.0%} excluded",
                found,
                numbers["promotionLimit"],
            )
        )
    largest = numbers.get("largestRatio")
    if largest is not None:
        ahead = rules.steps[min(decision.step + 1, len(rules.steps) - 1)]
        changes.append(
            Change(
                what="next step: the canary's replicas can carry it",
                needed=f"{ahead:.0%}",
                had=f"{largest:.0%}",
                met=largest >= ahead,
            )
        )
    if decision.reason == Reason.SLO_MISSED and rules.slo_ms is not None:
        over = numbers.get("overSloRatio")
        changes.append(
            Change(
                what=f"advance: 95 % of its requests under {rules.slo_ms:g} ms",
                needed="at most 5 % over",
                had="–" if over is None else f"{over:.1%} over",
                met=False,
            )
        )
    return changes


def _evidence(what: str, found: float, limit: float) -> Change:
    return Change(
        what=what,
        needed=f"evidence {exp(limit):.0f}",
        had=f"evidence {exp(min(found, 700.0)):.3g}",
        met=found >= limit,
    )
