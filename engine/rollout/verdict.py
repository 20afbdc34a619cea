"""What the judge decided about one window, with the numbers it compared.

The same object becomes the decision row, the log line, the API's answer and the panel.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """Where a rollout is. The judge moves between the first three; operators do the rest."""

    PENDING = "pending"
    PROGRESSING = "progressing"
    INCONCLUSIVE = "inconclusive"
    PAUSED = "paused"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    ABORTED = "aborted"
    SUPERSEDED = "superseded"

    @property
    def is_final(self) -> bool:
        """True where the traffic split is no longer this rollout's business."""
        return self in (Phase.PROMOTED, Phase.ROLLED_BACK, Phase.ABORTED, Phase.SUPERSEDED)


class Act(StrEnum):
    """What happens to the traffic."""

    ADVANCE = "advance"
    HOLD = "hold"
    PROMOTE = "promote"
    ROLLBACK = "rollback"


class Reason(StrEnum):
    """Why: a closed set."""

    HEALTHY = "healthy"  # advance: enough healthy windows, no suspicion
    NON_INFERIOR = "non_inferior"  # advance or promote: +20 % is excluded
    CONFIRMED = "confirmed"  # promote: held at full traffic
    COLLECTING = "collecting"  # hold: not enough windows or requests at this step yet
    CALIBRATING = "calibrating"  # hold: the baseline's 95th percentile is not known yet
    WATCHING = "watching"  # hold: something looks worse, not surely so
    NO_DATA = "no_data"  # hold: the canary saw no traffic
    WARMING_UP = "warming_up"  # hold: every timing came from a replica still warming up
    CAPACITY_LIMITED = "capacity_limited"  # hold: the canary's replicas could not carry it
    INVALID_SRM = "invalid_srm"  # hold: the realised split is not the one configured
    INVALID_AA = "invalid_aa"  # hold: the baseline differs from itself
    SLO_MISSED = "slo_missed"  # hold: 95 % of the canary's requests must meet the SLO
    ERRORS_ABOVE_TOLERANCE = "errors_above_tolerance"  # hold: the observed failure ratio
    DUPLICATE = "duplicate"  # hold: this window was judged before
    INCONCLUSIVE = "inconclusive"  # hold: out of patience; an operator must decide
    LATENCY = "latency"  # rollback
    FAILURES = "failures"  # rollback
    MISSES = "misses"  # rollback


Number = float | int | str | bool | None


@dataclass(slots=True, frozen=True, kw_only=True)
class Verdict:
    """One judgement. `ratio` is the canary share that follows from it."""

    act: Act
    reason: Reason
    phase: Phase
    step: int
    ratio: float
    text: str
    numbers: dict[str, Number] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`advance`, `promote`, `hold:no_data`, `rollback:latency`."""
        if self.act in (Act.HOLD, Act.ROLLBACK):
            return f"{self.act}:{self.reason}"
        return str(self.act)

    def to_json(self) -> dict[str, object]:
        """What the audit keeps. Floats survive JSON bit for bit."""
        return {
            "act": str(self.act),
            "reason": str(self.reason),
            "phase": str(self.phase),
            "step": self.step,
            "ratio": self.ratio,
            "text": self.text,
            "numbers": dict(self.numbers),
        }
