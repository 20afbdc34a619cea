"""What came of the requests of each arm, counted as they end, closed window by window.

A gateway keeps one `EvidenceBook`; every finished window becomes one `WindowRecord` per
(model, version, arm), which the gateway writes to the database and the judge sums over all
gateways. Everything in a record adds up: counts, and histograms by bucket. Quantiles are
never stored, because the mean of two p95s is nobody's p95.

Execution is recorded as `execution_ms / predicted_ms`, where `predicted_ms` must come from
the *baseline's* cost model for that batch on that hardware, for both arms. Were a canary
measured against its own model, the model would learn its slowness and the ratio would read
1. The division takes batch size and request size out of the comparison, which otherwise
differ between an arm with 1 % of the traffic and one with 99 %.

`execution_ms=None` counts the request but not its timing: its replica is still warming up.
A batch of sixteen that fails is sixteen faults. A tester's override is never recorded.
Windows are aligned to multiples of `window_ms` on the engine's clock; one that saw nothing
produces no record, because no data is not zero. Recording costs about a microsecond: values
are kept as they come and bucketed together when the window closes, ten times cheaper each.
"""

from dataclasses import dataclass, field
from math import log

import numpy as np

from engine.errors import RefusalCode, require_range
from engine.stats.histogram import BOTTOM, RELATIVE_ERROR, TOP
from engine.types import Arm

SESSION_SLOTS = 1024
_PER_LOG = 1.0 / log((1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR))


@dataclass(slots=True, eq=False, kw_only=True)
class WindowRecord:
    """One arm of one version in one window of one gateway. Additive in every field.

    `execution` is the sparse histogram of execution / predicted time, `latency` that of
    end-to-end ms; `misses` counts requests answered too late or not at all because their
    time ran out while they ran, `sheds` those turned away after their arm was chosen.
    `assigned` and `sessions` are what the splitter sent here (None where nobody counted);
    `busy_ms` is the device time of `batches`.
    """

    model: str
    version: str
    arm: Arm
    seq: int
    start_ms: float
    served: int = 0
    faults: int = 0
    sheds: int = 0
    misses: int = 0
    cancelled: int = 0
    client_errors: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    execution: dict[int, int] = field(default_factory=dict)
    latency: dict[int, int] = field(default_factory=dict)
    batches: int = 0
    items: int = 0
    busy_ms: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    assigned: int | None = None
    sessions: float | None = None


class Cell:
    """One arm in the open window."""

    __slots__ = (
        "assigned",
        "batches",
        "busy_ms",
        "cancelled",
        "client_errors",
        "completion_tokens",
        "execution",
        "faults",
        "items",
        "latency",
        "misses",
        "prompt_tokens",
        "refused",
        "served",
        "sessions",
        "sheds",
    )

    def __init__(self) -> None:
        self.served = self.faults = self.sheds = self.misses = 0
        self.cancelled = self.client_errors = self.batches = self.items = 0
        self.prompt_tokens = self.completion_tokens = self.assigned = 0
        self.busy_ms = 0.0
        self.refused: dict[str, int] = {}
        self.execution: list[float] = []
        self.latency: list[float] = []
        self.sessions: set[int] = set()

    def answer(
        self,
        execution_ratio: float | None,
        latency_ms: float,
        in_time: bool,
        prompt_tokens: int,
        completion_tokens: int,
    ) -> None:
        """An answer came. Too late is a miss as well."""
        self.served += 1
        if not in_time:
            self.misses += 1
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens
        if execution_ratio is not None:
            self.execution.append(execution_ratio)
        self.latency.append(latency_ms)


class EvidenceBook:
    """The open window of one gateway, and the closed ones that nobody has collected yet."""

    __slots__ = ("_cells", "_closed", "_end_ms", "_seq", "_start_ms", "window_ms")

    def __init__(self, window_ms: float, now_ms: float = 0.0) -> None:
        self.window_ms = require_range("window_ms", window_ms, 1.0, unit="ms")
        self._closed: list[WindowRecord] = []
        self._cells: dict[tuple[str, str, Arm], Cell] = {}
        self._open(now_ms)

    def arrived(self, model: str, version: str, arm: Arm, point: float, now_ms: float) -> None:
        """The splitter sent a session's request here; `point` is what `assign` returned."""
        cell = self.cell(model, version, arm, now_ms)
        cell.assigned += 1
        cell.sessions.add(int(point * 9007199254740992.0) % SESSION_SLOTS)

    def served(
        self,
        model: str,
        version: str,
        arm: Arm,
        execution_ms: float | None,
        predicted_ms: float,
        latency_ms: float,
        in_time: bool,
        prompt_tokens: int,
        completion_tokens: int,
        now_ms: float,
    ) -> None:
        """An answer came. Too late is a miss as well."""
        self.cell(model, version, arm, now_ms).answer(
            execution_ratio(execution_ms, predicted_ms),
            latency_ms,
            in_time,
            prompt_tokens,
            completion_tokens,
        )

    def fault(self, model: str, version: str, arm: Arm, now_ms: float, n: int = 1) -> None:
        """The replica failed `n` members."""
        self.cell(model, version, arm, now_ms).faults += n

    def miss(self, model: str, version: str, arm: Arm, now_ms: float) -> None:
        """Time ran out while it was running, and there is no answer."""
        self.cell(model, version, arm, now_ms).misses += 1

    def shed(
        self, model: str, version: str, arm: Arm, code: RefusalCode | str, now_ms: float
    ) -> None:
        """Turned away after its arm was chosen. An invalid request is the client's doing."""
        cell = self.cell(model, version, arm, now_ms)
        if code == RefusalCode.INVALID_REQUEST:
            cell.client_errors += 1
        else:
            cell.sheds += 1
        reason = str(code)
        cell.refused[reason] = cell.refused.get(reason, 0) + 1

    def client_error(self, model: str, version: str, arm: Arm, now_ms: float) -> None:
        """The upstream found fault with the request itself."""
        self.cell(model, version, arm, now_ms).client_errors += 1

    def cancelled(self, model: str, version: str, arm: Arm, now_ms: float) -> None:
        """The client left."""
        self.cell(model, version, arm, now_ms).cancelled += 1

    def batch(
        self,
        model: str,
        version: str,
        arm: Arm,
        items: int,
        now_ms: float,
        busy_ms: float = 0.0,
    ) -> None:
        """A batch of `items` ended after `busy_ms` of device time."""
        cell = self.cell(model, version, arm, now_ms)
        cell.batches += 1
        cell.items += items
        cell.busy_ms += busy_ms

    def close_windows(self, now_ms: float) -> list[WindowRecord]:
        """The records of every window that has ended, once; the open window stays open."""
        if now_ms >= self._end_ms:
            self._roll(now_ms)
        closed = self._closed
        self._closed = []
        return closed

    def cell(self, model: str, version: str, arm: Arm, now_ms: float) -> Cell:
        """Where the open window counts this arm. Not to be kept: the window closes."""
        if now_ms >= self._end_ms:
            self._roll(now_ms)
        key = (model, version, arm)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = Cell()
        return cell

    def _open(self, now_ms: float) -> None:
        self._seq = int(now_ms // self.window_ms)
        self._start_ms = self._seq * self.window_ms
        self._end_ms = self._start_ms + self.window_ms

    def _roll(self, now_ms: float) -> None:
        for (model, version, arm), cell in self._cells.items():
            self._closed.append(
                WindowRecord(
                    model=model,
                    version=version,
                    arm=arm,
                    seq=self._seq,
                    start_ms=self._start_ms,
                    served=cell.served,
                    faults=cell.faults,
                    sheds=cell.sheds,
                    misses=cell.misses,
                    cancelled=cell.cancelled,
                    client_errors=cell.client_errors,
                    refused=cell.refused,
                    execution=sparse_of(cell.execution),
                    latency=sparse_of(cell.latency),
                    batches=cell.batches,
                    items=cell.items,
                    busy_ms=cell.busy_ms,
                    prompt_tokens=cell.prompt_tokens,
                    completion_tokens=cell.completion_tokens,
                    assigned=cell.assigned or None,
                    sessions=_distinct(len(cell.sessions)) if cell.assigned else None,
                )
            )
        self._cells = {}
        self._open(now_ms)


def execution_ratio(execution_ms: float | None, predicted_ms: float) -> float | None:
    """What is recorded of a timing; None where there is none, or nothing to measure it by."""
    return None if execution_ms is None or predicted_ms <= 0.0 else execution_ms / predicted_ms


def _distinct(occupied: int) -> float:
    """Linear counting: how many sessions fill `occupied` of the slots."""
    free = max(SESSION_SLOTS - occupied, 1)
    return SESSION_SLOTS * log(SESSION_SLOTS / free)


def sparse_of(values: list[float]) -> dict[int, int]:
    """The `LogHistogram` of these values, sparse. What is not a number >= 0 is left out."""
    if not values:
        return {}
    array = np.asarray(values, dtype=np.float64)
    array = array[np.isfinite(array) & (array >= 0.0)]
    with np.errstate(divide="ignore"):
        buckets = np.ceil(np.log(array) * _PER_LOG)
    buckets = np.clip(buckets, BOTTOM, TOP).astype(np.int64)
    indices, counts = np.unique(buckets, return_counts=True)
    return dict(zip(indices.tolist(), counts.tolist(), strict=True))
