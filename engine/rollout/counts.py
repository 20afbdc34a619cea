"""One window as the judge sees it: a dozen integers.

The thresholds come from the calibration (`Calibration.threshold`, the baseline's 95th
percentile of execution / predicted time, fixed before the window was counted). Counting
against a fixed threshold turns two histograms into binomial counts that can be tested
exactly, summed, stored in a decision row, and judged again years later.

    slow_canary    canary executions above threshold x (1 + tolerated slow-down)
    slower_canary  canary executions above threshold x (1 + non-inferiority margin)
    slow_baseline  baseline executions above threshold

A count that is missing, negative or not a number reads as None, never as 0, and a window
without canary requests is silent, which is neither healthy nor unhealthy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isfinite

from engine.rollout.policy import RolloutPolicy
from engine.stats.histogram import LogHistogram


@dataclass(slots=True, kw_only=True)
class ArmSum:
    """One arm, summed over every gateway and second of a window."""

    served: int = 0
    faults: int = 0
    sheds: int = 0
    misses: int = 0
    execution: LogHistogram = field(default_factory=LogHistogram)
    latency: LogHistogram = field(default_factory=LogHistogram)
    requests: int | None = None  # what the splitter sent here; None where it was not counted
    sessions: float | None = None  # how many independent sessions they came from, at least

    @property
    def ended(self) -> int:
        """Ends that say something of this arm: not cancellations, not clients' mistakes."""
        return self.served + self.faults + self.sheds + self.misses


@dataclass(slots=True, frozen=True, kw_only=True)
class WindowCounts:
    """One window, ready to be judged. None means that nobody could count it."""

    seq: int
    canary_ended: int | None = None
    baseline_ended: int | None = None
    canary_faults: int | None = None
    baseline_faults: int | None = None
    canary_sheds: int | None = None
    baseline_sheds: int | None = None
    canary_misses: int | None = None
    baseline_misses: int | None = None
    canary_timed: int | None = None
    baseline_timed: int | None = None
    slow_canary: int | None = None
    slower_canary: int | None = None
    slow_baseline: int | None = None
    half_timed: int | None = None  # every other second of the baseline, for the A/A guard
    half_slow: int | None = None
    canary_over_slo: int | None = None
    canary_answered: int | None = None
    canary_requests: int | None = None
    baseline_requests: int | None = None
    canary_sessions: float | None = None
    baseline_sessions: float | None = None

    def to_json(self) -> dict[str, object]:
        """Every field that has a value."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "WindowCounts":
        """Read what `to_json` wrote; anything that is not a count >= 0 becomes None."""
        seq = data.get("seq")
        known: dict[str, int | None] = {"seq": seq if isinstance(seq, int) else 0}
        for f in fields(cls):
            if f.name != "seq":
                known[f.name] = counted(data.get(f.name), whole="sessions" not in f.name)  # type: ignore[assignment]
        return cls(**known)  # type: ignore[arg-type]


def counted(value: object, *, whole: bool = True) -> float | int | None:
    """`value` where it is a finite count >= 0, else None: typed no-data."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not isfinite(value) or value < 0:
        return None
    return int(value) if whole else value


def count_window(
    seq: int,
    baseline: ArmSum | None,
    canary: ArmSum | None,
    half: ArmSum | None,
    threshold: float | None,
    policy: RolloutPolicy,
) -> WindowCounts:
    """Reduce the sums of a window to counts. `half` is every other second of the baseline."""
    tolerated = non_inferior = None
    if threshold is not None:
        tolerated = threshold * (1.0 + policy.tolerated_slowdown_ratio)
        non_inferior = threshold * (1.0 + policy.non_inferiority_ratio)
    return WindowCounts(
        seq=seq,
        canary_ended=None if canary is None else canary.ended,
        baseline_ended=None if baseline is None else baseline.ended,
        canary_faults=None if canary is None else canary.faults,
        baseline_faults=None if baseline is None else baseline.faults,
        canary_sheds=None if canary is None else canary.sheds,
        baseline_sheds=None if baseline is None else baseline.sheds,
        canary_misses=None if canary is None else canary.misses,
        baseline_misses=None if baseline is None else baseline.misses,
        canary_timed=None if canary is None else canary.execution.count,
        baseline_timed=None if baseline is None else baseline.execution.count,
        slow_canary=_above(canary, tolerated),
        slower_canary=_above(canary, non_inferior),
        slow_baseline=_above(baseline, threshold),
        half_timed=None if half is None else half.execution.count,
        half_slow=_above(half, threshold),
        canary_over_slo=(
            None
            if canary is None or policy.slo_ms is None
            else canary.latency.count_above(policy.slo_ms)
        ),
        canary_answered=None if canary is None else canary.latency.count,
        canary_requests=None if canary is None else canary.requests,
        baseline_requests=None if baseline is None else baseline.requests,
        canary_sessions=None if canary is None else canary.sessions,
        baseline_sessions=None if baseline is None else baseline.sessions,
    )


def _above(arm: ArmSum | None, threshold: float | None) -> int | None:
    if arm is None or threshold is None:
        return None
    return arm.execution.count_above(threshold)
