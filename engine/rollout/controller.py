"""The judge: one window in, one verdict out, and nothing else happens.

    judge(state, counts, policy, facts) -> (next state, verdict)

It is a pure function, so the audit can replay any verdict bit for bit, two evaluators that
judge the same window say the same, and the simulator runs the very code that production
does. In order: a window seen before changes nothing; a silent one moves no streak; harm is
looked for before health; invalid evidence holds; capacity holds; then health is counted and
promotion has to be earned. Out of patience is `inconclusive`: still watched for harm, and
never promoted by a timer.
"""

from dataclasses import replace
from math import log

from engine.rollout.account import Numbers, harm_text, numbers_of, row_of, verdict_of
from engine.rollout.capacity import UNKNOWN, CapacityFacts, largest_ratio, replicas_needed
from engine.rollout.counts import WindowCounts
from engine.rollout.noninferiority import MIN_WINDOWS
from engine.rollout.policy import RolloutPolicy
from engine.rollout.regression import PATTERN_WINDOWS
from engine.rollout.state import JudgeState
from engine.rollout.validity import AA_LOG_LIMIT, SRM_WINDOWS, share_is_off
from engine.rollout.verdict import Act, Phase, Reason, Verdict
from engine.rollout.weigh import WATCH_LOG_E, Weights, weigh

SEVERE_LOG_E = log(1e6)  # beyond doubt: no minimum number of windows applies


def judge(
    state: JudgeState,
    counts: WindowCounts,
    policy: RolloutPolicy,
    facts: CapacityFacts = UNKNOWN,
) -> tuple[JudgeState, Verdict]:
    """Judge one window. `counts.seq` must grow; a window at or below the last is a duplicate."""
    if state.last_seq is not None and counts.seq <= state.last_seq:
        text = f"window {counts.seq} was judged before, the last is {state.last_seq}"
        return state, verdict_of(state, policy, Act.HOLD, Reason.DUPLICATE, text, {})
    state = replace(state, last_seq=counts.seq, windows=state.windows + 1)
    if not counts.canary_ended:
        return _silent(state, policy, facts)
    ratio = policy.steps[state.step]
    ceiling = largest_ratio(facts, policy)
    limited = ceiling is not None and ceiling > 0.0 and ratio > ceiling + 1e-9
    off = share_is_off(counts, ratio)
    state = replace(
        state,
        silent=0,
        step_windows=state.step_windows + 1,
        waited=state.waited + 1,
        step_requests=state.step_requests + counts.canary_ended,
        srm=state.srm if off is None else state.srm + 1 if off else 0,
        columns=state.with_row(row_of(state, counts, limited)),
    )
    weights = weigh(state, policy)
    numbers = numbers_of(state, counts, policy, weights, ceiling)
    state, verdict = _decide(state, counts, policy, facts, weights, numbers, limited, ceiling)
    return state, verdict


def _decide(
    state: JudgeState,
    counts: WindowCounts,
    policy: RolloutPolicy,
    facts: CapacityFacts,
    weights: Weights,
    numbers: Numbers,
    limited: bool,
    ceiling: float | None,
) -> tuple[JudgeState, Verdict]:
    suspicion = weights.suspicion()
    unhealthy = state.unhealthy + 1 if suspicion >= WATCH_LOG_E else 0
    state = replace(state, unhealthy=unhealthy)
    untrusted = None
    if weights.halves_log_e >= AA_LOG_LIMIT:
        untrusted = Reason.INVALID_AA
    elif state.srm >= SRM_WINDOWS:
        untrusted = Reason.INVALID_SRM
    harm = _harm(state, policy, weights, trusted=untrusted is None)
    if harm is not None:
        state = replace(state, phase=Phase.ROLLED_BACK, healthy=0)
        text = harm_text(harm, policy, weights)
        return state, verdict_of(state, policy, Act.ROLLBACK, harm, text, numbers)
    ratio = policy.steps[state.step]
    if untrusted is Reason.INVALID_AA:
        text = "the baseline's even seconds differ from its odd ones: latency cannot be judged"
        return _hold(state, policy, untrusted, text, numbers)
    if untrusted is Reason.INVALID_SRM:
        text = f"the realised share contradicts {ratio:.1%} in {state.srm} windows in a row"
        return _hold(state, policy, untrusted, text, numbers)
    if limited:
        return _limited(state, policy, facts, ratio, ceiling, numbers)
    if not counts.canary_timed and counts.canary_answered:
        text = "every timing came from a replica that is still warming up"
        return _hold(state, policy, Reason.WARMING_UP, text, numbers)
    if state.calibration is None:
        text = "too few baseline timings yet to know its 95th percentile"
        return _hold(state, policy, Reason.CALIBRATING, text, numbers)
    if suspicion >= WATCH_LOG_E:
        text = f"something looks worse (log E {suspicion:.2f}), not surely so: no advance"
        return _hold(replace(state, healthy=0), policy, Reason.WATCHING, text, numbers)
    if weights.slo_ok is False:
        text = (
            f"{weights.over_slo_ratio:.1%} of the canary's requests took longer than "
            f"{policy.slo_ms:g} ms; at most 5 % may"
        )
        return _hold(replace(state, healthy=0), policy, Reason.SLO_MISSED, text, numbers)
    if _errors_above_tolerance(policy, weights):
        text = (
            f"{weights.failure_ratio:.2%} of the canary's requests fail against "
            f"{weights.baseline_failure_ratio:.2%}, factor {policy.error_tolerance_factor:g}"
        )
        return _hold(
            replace(state, healthy=0), policy, Reason.ERRORS_ABOVE_TOLERANCE, text, numbers
        )
    state = replace(state, healthy=state.healthy + 1)
    few = state.step_requests < policy.few_requests * state.step_windows
    needed = 1 if few else policy.healthy_windows
    if state.healthy < needed or state.step_requests < policy.minimum_requests:
        text = f"{state.healthy} of {needed} healthy windows"
        if policy.minimum_requests:
            text += f" and {state.step_requests} of {policy.minimum_requests} requests"
        text += f" at {ratio:.0%}"
        return _hold(state, policy, Reason.COLLECTING, text, numbers)
    return _forward(state, policy, facts, weights, numbers, ceiling)


def _forward(
    state: JudgeState,
    policy: RolloutPolicy,
    facts: CapacityFacts,
    weights: Weights,
    numbers: Numbers,
    ceiling: float | None,
) -> tuple[JudgeState, Verdict]:
    """Healthy: take the next step, or earn promotion."""
    reason = Reason.HEALTHY
    plural = "" if state.healthy == 1 else "s"
    text = f"{state.healthy} healthy window{plural} at {policy.steps[state.step]:.0%}"
    if state.step == policy.judged_step:
        needed = -log(policy.promotion_alpha)
        shown = weights.promotion.log_e
        leaning = weights.latency.log_e > 0.0  # both may look likely for a while: no promotion
        if state.step_windows < MIN_WINDOWS or shown < needed or leaning:
            text = (
                f"healthy, but +{policy.non_inferiority_ratio:.0%} is not excluded yet: "
                f"log E' {shown:.2f} of {needed:.2f}"
            )
            return _hold(state, policy, Reason.COLLECTING, text, numbers)
        reason = Reason.NON_INFERIOR
        text = (
            f"+{policy.non_inferiority_ratio:.0%} is excluded: log E' {shown:.2f} >= {needed:.2f} "
            f"over {weights.promotion.windows} windows"
        )
    last = len(policy.steps) - 1
    if state.phase is Phase.INCONCLUSIVE:
        text = "inconclusive: an operator must promote or abort"
        return state, verdict_of(state, policy, Act.HOLD, Reason.INCONCLUSIVE, text, numbers)
    if state.step == last:
        if reason is Reason.HEALTHY:
            reason = Reason.CONFIRMED
        state = replace(state, phase=Phase.PROMOTED)
        return state, verdict_of(state, policy, Act.PROMOTE, reason, text, numbers)
    ahead = policy.steps[state.step + 1]
    if ceiling is not None and ahead > ceiling + 1e-9:
        return _limited(state, policy, facts, ahead, ceiling, numbers)
    state = replace(
        state,
        step=state.step + 1,
        step_windows=0,
        waited=0,
        step_requests=0,
        healthy=0,
        unhealthy=0,
    )
    return state, verdict_of(state, policy, Act.ADVANCE, reason, text, numbers)


def _harm(
    state: JudgeState, policy: RolloutPolicy, weights: Weights, *, trusted: bool
) -> Reason | None:
    """The metric that rolls back, if any. Latency and misses need trusted evidence."""
    hasty = (
        state.unhealthy < policy.unhealthy_windows or state.step_requests < policy.minimum_requests
    )
    for reason, evidence, least in (
        (Reason.FAILURES, weights.failures, PATTERN_WINDOWS),
        (Reason.LATENCY, weights.latency, policy.min_windows),
        (Reason.MISSES, weights.misses, policy.min_windows),
    ):
        if not trusted and reason is not Reason.FAILURES:
            continue
        alone = reason is not Reason.LATENCY and evidence.windows < PATTERN_WINDOWS
        if evidence.log_e >= SEVERE_LOG_E and not alone:
            return reason
        if evidence.log_e >= policy.log_limit(reason) and evidence.windows >= least and not hasty:
            return reason
    return None


def _silent(
    state: JudgeState, policy: RolloutPolicy, facts: CapacityFacts
) -> tuple[JudgeState, Verdict]:
    """No canary request ended in this window: no streak moves, patience does."""
    state = replace(state, silent=state.silent + 1)
    numbers: Numbers = {"silentWindows": state.silent, "canaryReady": facts.canary_ready}
    if state.silent >= policy.silent_windows:
        text = f"the canary had no traffic for {state.silent} windows in a row"
        return _give_up(state, policy, text, numbers)
    text = "no canary request ended in this window"
    if facts.canary_ready == 0:
        text += ": it has no ready replica"
    return _hold(state, policy, Reason.NO_DATA, text, numbers)


def _limited(
    state: JudgeState,
    policy: RolloutPolicy,
    facts: CapacityFacts,
    ratio: float,
    ceiling: float | None,
    numbers: Numbers,
) -> tuple[JudgeState, Verdict]:
    needed = replicas_needed(ratio, facts, policy)
    numbers = {**numbers, "replicasNeeded": needed, "canaryReady": facts.canary_ready}
    text = f"the canary's replicas can carry {ceiling or 0.0:.0%} of the traffic, not {ratio:.0%}"
    if needed is not None:
        text += f": {needed} replicas would, {facts.canary_ready} are ready"
    return _hold(state, policy, Reason.CAPACITY_LIMITED, text, numbers)


def _hold(
    state: JudgeState, policy: RolloutPolicy, reason: Reason, text: str, numbers: Numbers
) -> tuple[JudgeState, Verdict]:
    """Stay, unless patience is at its end."""
    if state.waited >= policy.max_wait_windows:
        return _give_up(state, policy, f"no decision in {state.waited} windows; {text}", numbers)
    if policy.max_windows is not None and state.windows >= policy.max_windows:
        return _give_up(
            state, policy, f"the rollout has lasted {state.windows} windows; {text}", numbers
        )
    return state, verdict_of(state, policy, Act.HOLD, reason, text, numbers)


def _give_up(
    state: JudgeState, policy: RolloutPolicy, text: str, numbers: Numbers
) -> tuple[JudgeState, Verdict]:
    state = replace(state, phase=Phase.INCONCLUSIVE)
    return state, verdict_of(state, policy, Act.HOLD, Reason.INCONCLUSIVE, text, numbers)


def _errors_above_tolerance(policy: RolloutPolicy, weights: Weights) -> bool:
    factor, failed = policy.error_tolerance_factor, weights.failure_ratio
    if factor is None or failed is None:
        return False
    allowed = (weights.baseline_failure_ratio or 0.0) * factor + policy.failure_allowance_ratio
    return failed > allowed
