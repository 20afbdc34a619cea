"""What slow means for this model, fixed before any of the evidence was seen.

The threshold is the baseline's 95th percentile of execution / predicted time over the
windows before the canary's first request. Were it taken from the windows that are judged,
it would move with the very difference it should measure. The same windows tell how much the
baseline scatters by itself (`noise.from_history`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.rollout.noise import COLD, NoisePrior, from_history
from engine.stats.histogram import LogHistogram

TAIL_RATIO = 0.05
_ENOUGH = 100  # timings for a 95th percentile that five lie above


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
