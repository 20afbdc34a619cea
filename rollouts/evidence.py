"""From what the gateways recorded to what the judge is asked: one window, a dozen counts."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from engine.rollout.calibration import Calibration, calibrate
from engine.rollout.counts import ArmSum, WindowCounts, count_window
from engine.rollout.policy import RolloutPolicy
from engine.stats.histogram import LogHistogram
from engine.types import Arm
from fleet.selectors import window_points
from fleet.selectors.evidence import ArmSums
from rollouts.models import Rollout

CALIBRATION_WINDOWS = 60
CALIBRATION_AT_MOST = timedelta(minutes=55)  # rows older than an hour are rolled up


def counts_of(
    rollout: Rollout,
    seq: int,
    sums: Sequence[ArmSums],
    calibration: Calibration | None,
    rules: RolloutPolicy,
) -> WindowCounts:
    """The window's counts. An arm without any row is None: nobody saw it."""
    baseline = [s for s in sums if s.version == rollout.baseline and s.arm == Arm.BASELINE]
    canary = [s for s in sums if s.version == rollout.canary and s.arm == Arm.CANARY]
    return count_window(
        seq,
        _whole(baseline, shadow=rollout.shadow),
        _whole(canary, shadow=rollout.shadow),
        _whole([s for s in baseline if s.half == 0], shadow=rollout.shadow),
        None if calibration is None else calibration.threshold,
        rules,
    )


def calibration_before(
    rollout: Rollout, end: datetime, windows: int = CALIBRATION_WINDOWS
) -> Calibration | None:
    """The calibration that the baseline's last `windows` windows before `end` support."""
    step = timedelta(seconds=rollout.interval_s)
    start = end - min(step * windows, max(CALIBRATION_AT_MOST, step))
    points = window_points(start, end, step, model=rollout.model, version=rollout.baseline)
    histograms = [
        LogHistogram.from_sparse(point.execution)
        for point in points
        if point.arm == Arm.BASELINE and point.execution
    ]
    return calibrate(histograms)


def _whole(parts: Sequence[ArmSums], *, shadow: bool) -> ArmSum | None:
    """The halves put together. A shadow's copies say nothing of how sessions were split."""
    if not parts:
        return None
    whole = ArmSum()
    for part in parts:
        whole.served += part.served
        whole.faults += part.faults
        whole.sheds += part.sheds
        whole.misses += part.misses
        whole.execution.merge(LogHistogram.from_sparse(part.execution))
        whole.latency.merge(LogHistogram.from_sparse(part.latency))
        if shadow:
            continue
        if part.assigned is not None:
            whole.requests = (whole.requests or 0) + part.assigned
        if part.sessions is not None:
            whole.sessions = max(whole.sessions or 0.0, part.sessions)
    return whole
