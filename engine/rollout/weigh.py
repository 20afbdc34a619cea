"""All the evidence on a rollout's table, weighed at once: what `controller` then acts on.

Two questions are put only where their answer would count: non-inferiority where nothing is
suspicious, and the baseline's agreement with itself where a latency verdict is near.
"""

from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from engine.rollout import noninferiority
from engine.rollout.noise import COLD
from engine.rollout.policy import RolloutPolicy
from engine.rollout.regression import (
    FAILURE_NOISE,
    MISS_NOISE,
    NOTHING,
    Evidence,
    column,
    latency_evidence,
    rate_evidence,
)
from engine.rollout.state import JudgeState
from engine.rollout.validity import halves_differ

SLO_TAIL_RATIO = 0.05
WATCH_LOG_E = log(10.0)  # looks worse: no advance
_SLO_SIGMAS = 2.0
_SLO_ENOUGH = 20


@dataclass(slots=True, frozen=True, kw_only=True)
class Weights:
    """log E of each hypothesis, and the absolute comparisons of the current step."""

    latency: Evidence
    failures: Evidence
    misses: Evidence
    promotion: Evidence
    halves_log_e: float  # 0.0 where it was not asked
    slo_ok: bool | None
    over_slo_ratio: float | None
    failure_ratio: float | None
    baseline_failure_ratio: float | None

    def suspicion(self) -> float:
        """The strongest log E that something is worse."""
        return max(self.latency.log_e, self.failures.log_e, self.misses.log_e)


def weigh(state: JudgeState, policy: RolloutPolicy) -> Weights:
    """Weigh every judged window of `state`."""
    columns = state.columns
    prior = COLD if state.calibration is None else state.calibration.noise
    first = len(columns["step"]) - state.step_windows
    nc, nb = column(columns["canary_timed"]), column(columns["baseline_timed"])
    slow, base = column(columns["slow_canary"]), column(columns["slow_baseline"])
    latency = latency_evidence(slow, base, nc, nb, prior)
    failures = _failures(state, policy, first) if any(columns["canary_failures"]) else NOTHING
    misses = _misses(state, policy) if any(columns["canary_misses"]) else NOTHING
    promotion = NOTHING
    suspicious = max(latency.log_e, failures.log_e, misses.log_e) >= WATCH_LOG_E
    if (
        not suspicious
        and state.step == policy.judged_step
        and state.step_windows >= noninferiority.MIN_WINDOWS
    ):
        promotion = noninferiority.evidence_for(
            column(columns["slower_canary"][first:]), base[first:], nc[first:], nb[first:], prior
        )
    halves = 0.0
    if latency.log_e >= WATCH_LOG_E or promotion.log_e >= -log(policy.promotion_alpha):
        halves = halves_differ(
            column(columns["half_slow"]), column(columns["half_timed"]), base, nb, prior
        )
    over, answered = sum(columns["over_slo"][first:]), sum(columns["answered"][first:])
    slo_ok: bool | None = None
    if policy.slo_ms is not None and answered >= _SLO_ENOUGH:
        expected = answered * SLO_TAIL_RATIO
        slo_ok = over <= expected + _SLO_SIGMAS * sqrt(expected * (1.0 - SLO_TAIL_RATIO))
    return Weights(
        latency=latency,
        failures=failures,
        misses=misses,
        promotion=promotion,
        halves_log_e=halves,
        slo_ok=slo_ok,
        over_slo_ratio=over / answered if answered and policy.slo_ms is not None else None,
        failure_ratio=_share(state, "canary_failures", "canary_ended", first),
        baseline_failure_ratio=_share(state, "baseline_failures", "baseline_ended", first),
    )


def _failures(state: JudgeState, policy: RolloutPolicy, first: int) -> Evidence:
    columns = state.columns
    ended, base_ended = column(columns["canary_ended"]), column(columns["baseline_ended"])
    failed, base_failed = column(columns["canary_failures"]), column(columns["baseline_failures"])
    if policy.steps[state.step] >= 1.0:
        # no baseline traffic any more: the one of the step before is carried along
        carried = column(columns["step"]) == state.step - 1
        shares = np.full(state.step_windows, 1.0 / state.step_windows)
        base_ended = np.concatenate([base_ended[:first], base_ended[carried].sum() * shares])
        base_failed = np.concatenate([base_failed[:first], base_failed[carried].sum() * shares])
    return rate_evidence(
        failed, base_failed, ended, base_ended, policy.failure_allowance_ratio, FAILURE_NOISE
    )


def _misses(state: JudgeState, policy: RolloutPolicy) -> Evidence:
    columns = state.columns
    return rate_evidence(
        column(columns["canary_misses"]),
        column(columns["baseline_misses"]),
        column(columns["canary_missable"]),
        column(columns["baseline_missable"]),
        policy.miss_allowance_ratio,
        MISS_NOISE,
    )


def _share(state: JudgeState, part: str, whole: str, first: int) -> float | None:
    total = sum(state.columns[whole][first:])
    return sum(state.columns[part][first:]) / total if total else None
