"""What slow means for this model, fixed before any of the evidence was seen.

The threshold is the baseline's 95th percentile of execution / predicted time over the
windows before the canary's first request. Were it taken from the windows that are judged,
it would move with the very difference it should measure. The same windows tell how much the
baseline scatters by itself (`noise.from_history`).

A history that was disturbed (a deployment, a neighbour, a cost model still learning) puts the
threshold where nothing lies above it later, and no rollout would ever be decided. So it is
fixed anew, for the windows to come, once the baseline's own slow share is a third or three
times of what it should be. That looks at the baseline alone and only backwards, so each
window is still compared at a threshold that was known before it began.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.rollout.noise import COLD, NoisePrior, from_history
from engine.stats.histogram import LogHistogram

TAIL_RATIO = 0.05
_ENOUGH = 100  # timings for a 95th percentile that five lie above
RECENT_WINDOWS = 20
_LEAST_WINDOWS = 5  # one odd window is noise
_EXPECTED = 20.0  # slow ones, of which a third is no accident: p < 1e-3
_OFF_FACTOR = 3.0


@dataclass(slots=True, frozen=True, kw_only=True)
class Calibration:
    """The threshold (execution / predicted), the timings it rests on, and the noise prior."""

    threshold: float
    timed: int
    windows: int
    noise: NoisePrior

    def to_json(self) -> dict[str, object]:
        return {
            "threshold": self.threshold,
            "timed": self.timed,
            "windows": self.windows,
            "noise": self.noise.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Calibration":
        noise = data["noise"]
        assert isinstance(noise, Mapping)
        return cls(
            threshold=float(data["threshold"]),  # type: ignore[arg-type]
            timed=int(data["timed"]),  # type: ignore[call-overload]
            windows=int(data["windows"]),  # type: ignore[call-overload]
            noise=NoisePrior.from_json(noise),
        )


def calibrate(windows: Sequence[LogHistogram]) -> Calibration | None:
    """The calibration that these baseline windows support; None while they are too few."""
    whole = LogHistogram()
    for histogram in windows:
        whole.merge(histogram)
    if whole.count < _ENOUGH:
        return None
    threshold = whole.quantile(1.0 - TAIL_RATIO)
    if threshold is None or threshold <= 0.0:
        return None
    slow = np.array([float(h.count_above(threshold)) for h in windows])
    total = np.array([float(h.count) for h in windows])
    noise = from_history(slow, total) if len(windows) >= 3 else COLD
    return Calibration(threshold=threshold, timed=whole.count, windows=len(windows), noise=noise)


def is_off(slow: Sequence[int], timed: Sequence[int]) -> bool:
    """Whether a threshold that let these baseline windows show so few, or so many, slow
    executions is not their 95th percentile any more. The oldest come first."""
    expected = sum(timed[-RECENT_WINDOWS:]) * TAIL_RATIO
    seen = sum(slow[-RECENT_WINDOWS:])
    enough = expected >= _EXPECTED and len(timed) >= _LEAST_WINDOWS
    return enough and not expected / _OFF_FACTOR <= seen <= expected * _OFF_FACTOR
