"""What waits to be written: closed windows in bounded memory, and the batch on its way.

A batch is frozen when it is made and keeps its sequence until Postgres has it; the table of
sequences makes a repeated write count once, even when the answer to a commit got lost.
Windows that close meanwhile wait behind it. Past `MAX_WINDOWS`, neighbours of the same arm
are summed two by two: time grows coarser, totals stay exact.
"""

from collections import deque
from datetime import datetime

import msgspec

from engine.rollout.evidence import WindowRecord
from fleet.gateway.clock import MonotonicClock
from fleet.gateway.usage import Key, UsageBook, UsageRow

MAX_WINDOWS = 20_000
BATCH_WINDOWS = 2_000

Receipt = list[tuple[int, Key, int]]
Sums = dict[str, int]


class WindowRow(msgspec.Struct, array_like=True):
    """A `WindowStat` row but for its gateway and resolution."""

    window_start: datetime
    model: str
    version: str
    arm: str
    served: int
    faults: int
    sheds: int
    misses: int
    cancelled: int
    client_errors: int
    refused: Sums
    execution: Sums
    latency: Sums
    batches: int
    items: int
    busy_ms: float
    prompt_tokens: int
    completion_tokens: int
    assigned: int | None
    sessions: float | None


class Batch(msgspec.Struct):
    """Rows that are written together or not at all."""

    gateway: str
    sequence: int
    windows: list[WindowRow]
    usage: list[UsageRow]


class Outbox:
    """Collects, freezes, forgets."""

    def __init__(self, gateway: str, clock: MonotonicClock, usage: UsageBook) -> None:
        self._gateway = gateway
        self._clock = clock
        self._usage = usage
        self._windows: deque[WindowRecord] = deque()
        self._sequence = 0
        self._batch: Batch | None = None
        self._receipt: Receipt = []
        self.merged = 0

    def __len__(self) -> int:
        return len(self._windows) + (len(self._batch.windows) if self._batch else 0)

    @property
    def has_windows(self) -> bool:
        """Whether closed windows wait for a batch."""
        return bool(self._windows)

    def add(self, records: list[WindowRecord]) -> None:
        """Take in closed windows."""
        self._windows.extend(records)
        if len(self._windows) > MAX_WINDOWS:
            self._condense()

    def batch(self) -> Batch | None:
        """The batch to write now: the same one until `written`, None where nothing waits."""
        if self._batch is None:
            usage, receipt = self._usage.collect()
            if not usage and not self._windows:
                return None
            taken = [self._windows.popleft() for _ in range(min(BATCH_WINDOWS, len(self._windows)))]
            self._sequence += 1
            rows = [self._row(record) for record in taken]
            self._batch = Batch(self._gateway, self._sequence, rows, usage)
            self._receipt = receipt
        return self._batch

    def written(self) -> None:
        """The batch is in the database."""
        self._usage.written(self._receipt)
        self._batch = None
        self._receipt = []

    def _row(self, record: WindowRecord) -> WindowRow:
        return WindowRow(
            self._clock.wall(record.start_ms),
            record.model,
            record.version,
            str(record.arm),
            record.served,
            record.faults,
            record.sheds,
            record.misses,
            record.cancelled,
            record.client_errors,
            {str(code): count for code, count in record.refused.items()},
            {str(bucket): count for bucket, count in record.execution.items()},
            {str(bucket): count for bucket, count in record.latency.items()},
            record.batches,
            record.items,
            record.busy_ms,
            record.prompt_tokens,
            record.completion_tokens,
            record.assigned,
            record.sessions,
        )

    def _condense(self) -> None:
        """Sum pairs of neighbours of the same arm: half the records, the same totals."""
        open_pairs: dict[tuple[str, str, str], WindowRecord] = {}
        kept: deque[WindowRecord] = deque()
        for record in self._windows:
            arm = (record.model, record.version, str(record.arm))
            first = open_pairs.pop(arm, None)
            if first is None:
                open_pairs[arm] = record
                kept.append(record)
            else:
                absorb(first, record)
                self.merged += 1
        self._windows = kept


_COUNTS = (
    "served",
    "faults",
    "sheds",
    "misses",
    "cancelled",
    "client_errors",
    "batches",
    "items",
    "busy_ms",
    "prompt_tokens",
    "completion_tokens",
)


def absorb(into: WindowRecord, other: WindowRecord) -> None:
    """Add the counts and histograms of `other`. A session seen in both counts twice."""
    for name in _COUNTS:
        setattr(into, name, getattr(into, name) + getattr(other, name))
    into.assigned = _sum(into.assigned, other.assigned)
    into.sessions = _sum(into.sessions, other.sessions)
    for code, count in other.refused.items():
        into.refused[code] = into.refused.get(code, 0) + count
    for mine, theirs in ((into.execution, other.execution), (into.latency, other.latency)):
        for bucket, count in theirs.items():
            mine[bucket] = mine.get(bucket, 0) + count


def _sum[N: (int, float)](left: N | None, right: N | None) -> N | None:
    if left is None or right is None:
        return right if left is None else left
    return left + right
