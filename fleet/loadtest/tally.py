"""Counting what came back: by code, by second, by deadline class; quantiles from histograms."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from engine.stats.histogram import LogHistogram
from fleet.loadtest.sender import Ending

TIMELINE_LIMIT = 86_400


@dataclass(slots=True)
class Second:
    """The requests that were due in one second."""

    offered: int = 0
    ok: int = 0
    in_time: int = 0
    latency: LogHistogram = field(default_factory=LogHistogram)


class Tally:
    """Everything that was recorded. `keep` also keeps each ending, for CSV."""

    def __init__(self, *, keep: bool = False) -> None:
        self.offered = 0
        self.in_time = 0
        self.codes: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.versions: Counter[str] = Counter()
        self.replicas: Counter[str] = Counter()
        self.batch_sizes: Counter[int] = Counter()
        self.latency = LogHistogram()
        self.by_deadline: dict[float, Counter[str]] = defaultdict(Counter)
        self.seconds: dict[int, Second] = defaultdict(Second)
        self.endings: list[Ending] | None = [] if keep else None

    def record(self, ending: Ending) -> None:
        self.offered += 1
        self.codes[ending.code] += 1
        self.statuses[ending.status] += 1
        second = self.seconds[min(int(ending.started_s), TIMELINE_LIMIT)]
        second.offered += 1
        deadline = self.by_deadline[ending.deadline_ms]
        deadline["offered"] += 1
        if ending.code == "ok":
            self.latency.record(ending.latency_ms)
            second.ok += 1
            second.latency.record(ending.latency_ms)
            self.versions[ending.version] += 1
            self.replicas[ending.replica] += 1
            self.batch_sizes[ending.batch] += 1
        if ending.in_time:
            self.in_time += 1
            second.in_time += 1
            deadline["in_time"] += 1
        if self.endings is not None:
            self.endings.append(ending)

    @property
    def succeeded(self) -> int:
        return self.codes["ok"]

    @property
    def success_ratio(self) -> float | None:
        return self.succeeded / self.offered if self.offered else None

    def summary(self, duration_s: float) -> dict[str, Any]:
        """The result as JSON. Rates are over `duration_s`, in which requests were offered."""
        batches = sum(self.batch_sizes.values())
        return {
            "durationS": round(duration_s, 3),
            "offered": self.offered,
            "succeeded": self.succeeded,
            "inTime": self.in_time,
            "successRatio": self.success_ratio,
            "goodputRatio": self.in_time / self.offered if self.offered else None,
            "offeredPerS": round(self.offered / duration_s, 2),
            "throughputPerS": round(self.succeeded / duration_s, 2),
            "goodputPerS": round(self.in_time / duration_s, 2),
            "p50Ms": _rounded(self.latency.quantile(0.5)),
            "p95Ms": _rounded(self.latency.quantile(0.95)),
            "p99Ms": _rounded(self.latency.quantile(0.99)),
            "meanBatch": (
                round(sum(size * n for size, n in self.batch_sizes.items()) / batches, 2)
                if batches
                else None
            ),
            "codes": dict(self.codes.most_common()),
            "statuses": {str(status): n for status, n in sorted(self.statuses.items())},
            "attainment": {
                f"{deadline_ms:g}": counts["in_time"] / counts["offered"]
                for deadline_ms, counts in sorted(self.by_deadline.items())
            },
            "versions": dict(sorted(self.versions.items())),
            "replicas": dict(sorted(self.replicas.items())),
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
