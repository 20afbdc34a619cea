"""What one run of the replica benchmark found, and what is made of it."""

import csv
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.replica_load import Pattern

SAMPLE_S = 1.0
_MINUTE_S = 60.0


@dataclass(slots=True, frozen=True, kw_only=True)
class Sample:
    """One second of a run. None is "no data"."""

    at_s: float
    offered_per_s: float
    throughput_per_s: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    cpu_ratio: float | None
    queue_depth: int
    max_workers: int
    batch_size: int
    admission_control: bool
    refused: int


@dataclass(slots=True, frozen=True, kw_only=True)
class Move:
    """The regulation moved a limit: where everything stands now, and why."""

    at_s: float
    max_workers: int
    batch_size: int
    admission_control: bool
    text: str


@dataclass(slots=True, kw_only=True)
class Run:
    """One pattern, static or adaptive."""

    pattern: Pattern
    mode: str
    slo_ms: float
    samples: list[Sample] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    offered: int = 0
    in_time: int = 0
    late: int = 0
    refused: int = 0
    expired: int = 0

    @property
    def with_data(self) -> list[Sample]:
        """The seconds in which something was measured."""
        return [sample for sample in self.samples if sample.p95_ms is not None]

    @property
    def kept_ratio(self) -> float | None:
        """Share of the time with p95 within the SLO."""
        kept = [sample.p95_ms <= self.slo_ms for sample in self.with_data if sample.p95_ms]
        return sum(kept) / len(kept) if kept else None

    @property
    def gate_off_after_s(self) -> float | None:
        """How long after the incident admission control went off for good. None: no incident."""
        if self.pattern.incident is None or self.mode == "static":
            return None
        end_s = self.pattern.incident.end_s
        if self.samples and self.samples[-1].admission_control:
            return self.samples[-1].at_s - end_s
        on_s = [sample.at_s for sample in self.samples if sample.admission_control]
        return max(0.0, max(on_s, default=end_s) + SAMPLE_S - end_s)

    @property
    def sign_changes_per_minute(self) -> float:
        """The most reversals of one limit's direction within any minute."""
        limits: list[Callable[[Move], float]] = [
            lambda move: move.max_workers,
            lambda move: move.batch_size,
            lambda move: move.admission_control,
        ]
        return float(max(self._reversals(limit) for limit in limits))

    def _reversals(self, limit: Callable[[Move], float]) -> int:
        at_s: list[float] = []
        last = direction = 0.0
        for index, move in enumerate(self.moves):
            step = limit(move) - last if index else 0.0
            last = limit(move)
            if step and direction and (step > 0) != (direction > 0):
                at_s.append(move.at_s)
            direction = step or direction
        return max((sum(0 <= t - start < _MINUTE_S for t in at_s) for start in at_s), default=0)

    def to_row(self) -> dict[str, object]:
        """The run as a row of the table."""
        peaks = [sample.p95_ms for sample in self.with_data if sample.p95_ms is not None]
        return {
            "pattern": self.pattern.name,
            "mode": self.mode,
            "offered": self.offered,
            "in_time": self.in_time,
            "in_time_ratio": self.in_time / self.offered if self.offered else None,
            "late": self.late,
            "refused": self.refused,
            "timed_out": self.expired,
            "p95_kept_ratio": self.kept_ratio,
            "worst_p95_ms": max(peaks, default=None),
            "moves": len(self.moves),
            "sign_changes_per_minute": self.sign_changes_per_minute,
            "gate_off_after_s": self.gate_off_after_s,
            "last_move": self.moves[-1].text if self.moves else None,
        }

    def write_csv(self, folder: Path) -> Path:
        """The seconds with data, one a row."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"replica-{self.pattern.name}-{self.mode}.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(Sample.__dataclass_fields__))
            writer.writeheader()
            writer.writerows(asdict(sample) for sample in self.with_data)
        return path
