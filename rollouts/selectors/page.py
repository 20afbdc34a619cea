"""All that the page of one rollout shows: the ladder, the evidence over time, the decisions."""

from dataclasses import dataclass
from datetime import datetime
from math import log
from typing import Any

from engine.rollout.capacity import CapacityFacts, largest_ratio, replicas_needed
from engine.rollout.policy import RolloutPolicy
from rollouts.models import Decision, Rollout
from rollouts.policy import rules_of
from rollouts.selectors.explain import Change, what_would_change
from rollouts.selectors.status import Status, status_of


@dataclass(slots=True, frozen=True, kw_only=True)
class Point:
    """One judged window, ready to be drawn. None where nobody could say."""

    seq: int
    at: datetime
    percent: float
    verdict: str
    text: str
    canary_requests: int | None
    baseline_requests: int | None
    canary_slow_ratio: float | None
    baseline_slow_ratio: float | None
    canary_failure_ratio: float | None
    baseline_failure_ratio: float | None
    canary_miss_ratio: float | None
    baseline_miss_ratio: float | None
    canary_share: float | None
    latency_log_e: float | None
    failures_log_e: float | None
    misses_log_e: float | None
    promotion_log_e: float | None
    largest_percent: float | None


@dataclass(slots=True, frozen=True, kw_only=True)
class Capacity:
    """What the canary's replicas can carry, against what the next step wants. Percent."""

    ready: int | None
    canary_per_s: float | None
    offered_per_s: float | None
    largest_percent: float | None
    wanted_percent: float | None
    replicas_needed: int | None


@dataclass(slots=True, frozen=True, kw_only=True)
class RolloutPage:
    """`points` are oldest first; `limits` are the log E at which each evidence decides."""

    status: Status
    policy: dict[str, Any]
    rules: RolloutPolicy
    limits: dict[str, float]
    threshold: float | None
    points: list[Point]
    decisions: list[Decision]
    capacity: Capacity
    changes: list[Change]


def rollout_page(rollout_id: int, *, points: int = 600, decisions: int = 100) -> RolloutPage:
    """Raises `Rollout.DoesNotExist` where there is none of that number."""
    rollout = Rollout.objects.get(pk=rollout_id)
    rules = rules_of(rollout.policy)
    rows = list(rollout.decisions.order_by("-seq")[:points])
    calibration = (rollout.state or {}).get("calibration")
    last = rows[0] if rows else None
    return RolloutPage(
        status=status_of(rollout),
        policy=rollout.policy,
        rules=rules,
        limits={
            **{name: rules.log_limit(name) for name in ("latency", "failures", "misses")},
            "promotion": _promotion_limit(rules),
        },
        threshold=calibration["threshold"] if calibration else None,
        points=[_point(row) for row in reversed(rows)],
        decisions=rows[:decisions],
        capacity=_capacity(rollout, rules, last),
        changes=what_would_change(last) if last is not None and rollout.is_active else [],
    )


def _point(row: Decision) -> Point:
    counts, numbers = row.counts, row.verdict["numbers"]
    sent, kept = counts.get("canary_requests"), counts.get("baseline_requests")
    largest = numbers.get("largestRatio")
    return Point(
        seq=row.seq,
        at=row.window_end,
        percent=row.percent_before,
        verdict=row.name,
        text=row.text,
        canary_requests=counts.get("canary_ended"),
        baseline_requests=counts.get("baseline_ended"),
        canary_slow_ratio=_ratio(counts, "slow_canary", "canary_timed"),
        baseline_slow_ratio=_ratio(counts, "slow_baseline", "baseline_timed"),
        canary_failure_ratio=_ratio(counts, "canary_faults", "canary_ended", "canary_sheds"),
        baseline_failure_ratio=_ratio(
            counts, "baseline_faults", "baseline_ended", "baseline_sheds"
        ),
        canary_miss_ratio=_ratio(counts, "canary_misses", "canary_ended"),
        baseline_miss_ratio=_ratio(counts, "baseline_misses", "baseline_ended"),
        canary_share=sent / (sent + kept) if sent is not None and kept else None,
        latency_log_e=numbers.get("latencyLogE"),
        failures_log_e=numbers.get("failuresLogE"),
        misses_log_e=numbers.get("missesLogE"),
        promotion_log_e=numbers.get("promotionLogE"),
        largest_percent=None if largest is None else largest * 100.0,
    )


def _ratio(counts: dict[str, Any], part: str, whole: str, more: str = "") -> float | None:
    total, found = counts.get(whole), counts.get(part)
    if not total or found is None:
        return None
    return float((found + (counts.get(more) or 0)) / total)


def _capacity(rollout: Rollout, rules: RolloutPolicy, last: Decision | None) -> Capacity:
    facts = CapacityFacts() if last is None else CapacityFacts.from_json(last.facts)
    steps: list[float] = rollout.policy["steps"]
    ahead = steps[min(rollout.step + 1, len(steps) - 1)] if rollout.is_active else None
    largest = largest_ratio(facts, rules)
    return Capacity(
        ready=facts.canary_ready,
        canary_per_s=facts.canary_per_s,
        offered_per_s=facts.offered_per_s,
        largest_percent=None if largest is None else largest * 100.0,
        wanted_percent=ahead,
        replicas_needed=None if ahead is None else replicas_needed(ahead / 100.0, facts, rules),
    )


def _promotion_limit(rules: RolloutPolicy) -> float:
    return -log(rules.promotion_alpha)
