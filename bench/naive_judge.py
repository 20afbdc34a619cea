"""The judge that most tools ship: this window's p95 against that one's, times 1.2.

A window is unhealthy where the canary's p95 exceeds `factor` times the baseline's, healthy
otherwise, and says nothing below `minimum_requests`. Three unhealthy windows in a row roll
back, three healthy ones take the next step. It is here to be compared with: it rolls back
identical versions (each window is a fresh chance to err), promotes true regressions (so is
each step), and at low traffic never reaches its minimum.
"""

from dataclasses import dataclass

from bench.rollout_world import Fleet


@dataclass(slots=True, frozen=True, kw_only=True)
class NaivePolicy:
    """`factor` on the p95, and how many windows in a row decide."""

    steps: tuple[float, ...] = (0.01, 0.05, 0.25, 0.5, 1.0)
    factor: float = 1.2
    minimum_requests: int = 20
    healthy_windows: int = 3
    unhealthy_windows: int = 3


@dataclass(slots=True, frozen=True, kw_only=True)
class Outcome:
    """How a simulated rollout ended: promoted, rolled_back or undecided, after how long."""

    end: str
    windows: int
    reason: str = ""


def judge_naively(fleet: Fleet, policy: NaivePolicy, max_windows: int) -> Outcome:
    """One rollout from its first step to its end."""
    step = healthy = unhealthy = 0
    for window in range(1, max_windows + 1):
        ratio = policy.steps[step]
        canary_n, baseline_n, canary, baseline = fleet.p95s(ratio)
        if canary is None or canary_n < policy.minimum_requests:
            continue
        if ratio < 1.0 and (baseline is None or baseline_n < policy.minimum_requests):
            continue
        if ratio < 1.0 and baseline is not None and canary > policy.factor * baseline:
            healthy, unhealthy = 0, unhealthy + 1
        else:
            healthy, unhealthy = healthy + 1, 0
        if unhealthy >= policy.unhealthy_windows:
            return Outcome(end="rolled_back", windows=window, reason="latency")
        if healthy >= policy.healthy_windows:
            step, healthy = step + 1, 0
            if step == len(policy.steps):
                return Outcome(end="promoted", windows=window)
    return Outcome(end="undecided", windows=max_windows)
