"""What the judge writes down: a window as a row of its state, a verdict with its arithmetic.

Every number that was compared travels with the verdict, so that a decision row, a log line
and a panel can show it, and an operator can check it by hand.
"""

from math import log

from engine.rollout.counts import WindowCounts
from engine.rollout.policy import RolloutPolicy
from engine.rollout.state import JudgeState
from engine.rollout.verdict import Act, Number, Reason, Verdict
from engine.rollout.weigh import Weights

Numbers = dict[str, Number]


def row_of(state: JudgeState, counts: WindowCounts, limited: bool) -> dict[str, int]:
    """This window as a row of the state. Where something was not counted, so is its total."""
    timed = counts.slow_canary is not None and counts.slow_baseline is not None
    ended, base_ended = counts.canary_ended or 0, counts.baseline_ended or 0
    # beyond capacity, sheds and misses say nothing of the version
    canary_sheds = 0 if limited else counts.canary_sheds or 0
    baseline_sheds = 0 if limited else counts.baseline_sheds or 0
    missable = not limited and counts.canary_misses is not None
    return {
        "step": state.step,
        "slow_canary": counts.slow_canary or 0,
        "slower_canary": counts.slower_canary or 0,
        "slow_baseline": counts.slow_baseline or 0,
        "canary_timed": (counts.canary_timed or 0) if timed else 0,
        "baseline_timed": (counts.baseline_timed or 0) if timed else 0,
        "half_slow": counts.half_slow or 0,
        "half_timed": (counts.half_timed or 0) if timed else 0,
        "canary_failures": (counts.canary_faults or 0) + canary_sheds,
        "baseline_failures": (counts.baseline_faults or 0) + baseline_sheds,
        "canary_ended": ended,
        "baseline_ended": base_ended,
        "canary_misses": (counts.canary_misses or 0) if missable else 0,
        "baseline_misses": (counts.baseline_misses or 0) if missable else 0,
        "canary_missable": ended if missable else 0,
        "baseline_missable": base_ended if missable else 0,
        "over_slo": counts.canary_over_slo or 0,
        "answered": counts.canary_answered or 0,
    }


def numbers_of(
    state: JudgeState,
    counts: WindowCounts,
    policy: RolloutPolicy,
    weights: Weights,
    ceiling: float | None,
) -> Numbers:
    """What was compared, for the row, the log line and the panel."""
    noise = weights.latency.noise
    return {
        "windows": state.step_windows,
        "canaryRequests": counts.canary_ended,
        "baselineRequests": counts.baseline_ended,
        "slowCanary": counts.slow_canary,
        "slowBaseline": counts.slow_baseline,
        "threshold": None if state.calibration is None else state.calibration.threshold,
        "latencyLogE": weights.latency.log_e,
        "latencyLimit": policy.log_limit("latency"),
        "failuresLogE": weights.failures.log_e,
        "failuresLimit": policy.log_limit("failures"),
        "missesLogE": weights.misses.log_e,
        "missesLimit": policy.log_limit("misses"),
        "promotionLogE": weights.promotion.log_e if weights.promotion.windows else None,
        "promotionLimit": -log(policy.promotion_alpha),
        "failureRatio": weights.failure_ratio,
        "baselineFailureRatio": weights.baseline_failure_ratio,
        "overSloRatio": weights.over_slo_ratio,
        "noiseTau2": None if noise is None else noise.tau2,
        "noiseRho": None if noise is None else noise.rho,
        "largestRatio": ceiling,
    }


def harm_text(harm: Reason, policy: RolloutPolicy, weights: Weights) -> str:
    evidence = {
        Reason.LATENCY: weights.latency,
        Reason.FAILURES: weights.failures,
        Reason.MISSES: weights.misses,
    }[harm]
    compared = {
        Reason.LATENCY: f"slower by more than {policy.tolerated_slowdown_ratio:.0%}",
        Reason.FAILURES: "failing more often",
        Reason.MISSES: "missing deadlines more often",
    }[harm]
    return (
        f"{compared}: log E {evidence.log_e:.2f} >= {policy.log_limit(harm):.2f} "
        f"over {evidence.windows} windows"
    )


def verdict_of(
    state: JudgeState, policy: RolloutPolicy, act: Act, reason: Reason, text: str, numbers: Numbers
) -> Verdict:
    if act is Act.ROLLBACK:
        ratio = 0.0
    elif act is Act.PROMOTE:
        ratio = 1.0
    else:
        ratio = policy.steps[state.step]
    return Verdict(
        act=act,
        reason=reason,
        phase=state.phase,
        step=state.step,
        ratio=ratio,
        text=text,
        numbers=numbers,
    )
