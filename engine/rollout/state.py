"""Everything the judge remembers of a rollout between two windows, as JSON.

The counts of every judged window are kept, not the running products: E is a function of
them, so it resumes exactly after a restart, is recomputed as the noise becomes better known,
and can be replayed by anyone from the audit. `judge` never changes a state, it returns the
next one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.rollout.calibration import Calibration, is_off
from engine.rollout.verdict import Phase

COLUMNS = (
    "step",
    "slow_canary",
    "slower_canary",
    "slow_baseline",
    "canary_timed",
    "baseline_timed",
    "half_slow",
    "half_timed",
    "canary_failures",
    "baseline_failures",
    "canary_ended",
    "baseline_ended",
    "canary_misses",
    "baseline_misses",
    "canary_missable",  # ended, where capacity does not explain a miss; else 0
    "baseline_missable",
    "over_slo",
    "answered",
)


@dataclass(slots=True, frozen=True, kw_only=True)
class JudgeState:
    """A rollout between two windows.

    `columns` holds one list per name in `COLUMNS`, one entry per judged window.
    `calibrated_at` is how many there were when the calibration came into force.
    `step_windows` and `step_requests` count since this step began; `windows` and `waited`
    are patience: since the rollout, or this step, began or was resumed.
    """

    phase: Phase = Phase.PROGRESSING
    step: int = 0
    last_seq: int | None = None
    calibration: Calibration | None = None
    calibrated_at: int = 0
    windows: int = 0
    waited: int = 0
    step_windows: int = 0
    step_requests: int = 0
    healthy: int = 0
    unhealthy: int = 0
    silent: int = 0
    srm: int = 0
    columns: Mapping[str, list[int]] = field(default_factory=lambda: {name: [] for name in COLUMNS})

    def with_row(self, row: Mapping[str, int]) -> dict[str, list[int]]:
        """The columns with one more window."""
        return {name: [*values, row[name]] for name, values in self.columns.items()}

    def calibrated(self, calibration: Calibration | None) -> "JudgeState":
        """This state with a calibration that comes into force with the next window, if any."""
        if calibration is None:
            return self
        judged = len(self.columns["step"])
        return replace(self, calibration=calibration, calibrated_at=judged)

    @property
    def wants_calibration(self) -> bool:
        """Whether what slow means is not known, or was fixed from a history unlike today."""
        if self.calibration is None:
            return True
        since = self.calibrated_at
        return is_off(self.columns["slow_baseline"][since:], self.columns["baseline_timed"][since:])

    def resumed(self) -> "JudgeState":
        """This state after an operator resumed it: the evidence stays, patience begins anew."""
        return replace(self, phase=Phase.PROGRESSING, windows=0, waited=0, silent=0)

    def to_json(self) -> dict[str, object]:
        return {
            "phase": str(self.phase),
            "step": self.step,
            "last_seq": self.last_seq,
            "calibration": None if self.calibration is None else self.calibration.to_json(),
            "calibrated_at": self.calibrated_at,
            "windows": self.windows,
            "waited": self.waited,
            "step_windows": self.step_windows,
            "step_requests": self.step_requests,
            "healthy": self.healthy,
            "unhealthy": self.unhealthy,
            "silent": self.silent,
            "srm": self.srm,
            "columns": {name: list(values) for name, values in self.columns.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "JudgeState":
        calibration = data.get("calibration")
        columns = data.get("columns") or {}
        assert isinstance(columns, Mapping)
        last_seq = data.get("last_seq")
        return cls(
            phase=Phase(str(data.get("phase", Phase.PROGRESSING))),
            last_seq=last_seq if isinstance(last_seq, int) else None,
            calibration=(
                Calibration.from_json(calibration) if isinstance(calibration, Mapping) else None
            ),
            columns={name: list(columns.get(name, ())) for name in COLUMNS},
            **{
                name: value if isinstance(value := data.get(name), int) else 0
                for name in (
                    "step",
                    "calibrated_at",
                    "windows",
                    "waited",
                    "step_windows",
                    "step_requests",
                    "healthy",
                    "unhealthy",
                    "silent",
                    "srm",
                )
            },
        )
