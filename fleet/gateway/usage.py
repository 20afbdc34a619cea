"""What each tenant used, minute by minute: the rows that bills and charts are made of.

A cell holds the *absolute* counts of its (tenant, model, minute); this process is the only
writer under its gateway id, so writing a cell twice changes nothing. Refused requests for
models that nothing defines are counted under `unknown`, or any client could grow the table
with made-up names.

While Postgres is away cells pile up. Past `MAX_CELLS` the oldest minute is folded into the
next one (but for cells whose row may exist already): time grows coarser, totals stay exact.
"""

import itertools
from datetime import UTC, datetime

from fleet.gateway.clock import MonotonicClock

MAX_CELLS = 50_000
UNKNOWN_MODEL = "unknown"


class Cell:
    """One tenant's use of one model in one minute."""

    __slots__ = (
        "completion_tokens",
        "dirty",
        "prompt_tokens",
        "refused",
        "requests",
        "sent",
        "served",
    )

    def __init__(self) -> None:
        self.requests = self.served = self.prompt_tokens = self.completion_tokens = 0
        self.refused: dict[str, int] = {}
        self.dirty = False  # it holds counts that no batch has carried
        self.sent = False  # a batch carried it once: its row may exist

    def absorb(self, other: "Cell") -> None:
        """Add another cell's counts."""
        self.requests += other.requests
        self.served += other.served
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        for code, count in other.refused.items():
            self.refused[code] = self.refused.get(code, 0) + count
        self.dirty = True


Key = tuple[str, str]  # tenant, model
UsageRow = tuple[str, str, datetime, int, int, dict[str, int], int, int]


class UsageBook:
    """The cells of one process."""

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._minutes: dict[int, dict[Key, Cell]] = {}
        self._minute = 0
        self._ends_ms = -1.0
        self._cells: dict[Key, Cell] = {}
        self.folded = 0

    def served(self, tenant: str, model: str, prompt: int, completion: int, now_ms: float) -> None:
        """A request was answered."""
        cell = self._cell(tenant, model, now_ms)
        cell.requests += 1
        cell.served += 1
        cell.prompt_tokens += prompt
        cell.completion_tokens += completion

    def spent(self, tenant: str, model: str, prompt: int, completion: int, now_ms: float) -> None:
        """Tokens of a request that ended before its answer did."""
        cell = self._cell(tenant, model, now_ms)
        cell.prompt_tokens += prompt
        cell.completion_tokens += completion

    def refused(self, tenant: str, model: str, code: str, now_ms: float) -> None:
        """A request was refused, or failed."""
        cell = self._cell(tenant, model, now_ms)
        cell.requests += 1
        cell.refused[code] = cell.refused.get(code, 0) + 1

    def collect(self) -> tuple[list[UsageRow], list[tuple[int, Key, int]]]:
        """The rows that changed since they were last written, and a receipt for `written`."""
        rows: list[UsageRow] = []
        receipt: list[tuple[int, Key, int]] = []
        for minute, cells in self._minutes.items():
            at = datetime.fromtimestamp(minute * 60, UTC)
            for key, cell in cells.items():
                if cell.dirty:
                    cell.sent = True
                    rows.append(
                        (
                            *key,
                            at,
                            cell.requests,
                            cell.served,
                            dict(cell.refused),
                            cell.prompt_tokens,
                            cell.completion_tokens,
                        )
                    )
                    receipt.append((minute, key, cell.requests))
        return rows, receipt

    def written(self, receipt: list[tuple[int, Key, int]]) -> None:
        """Those rows are in the database: forget closed minutes, keep what moved since."""
        for minute, key, requests in receipt:
            cell = self._minutes.get(minute, {}).get(key)
            if cell is not None and cell.requests == requests:
                cell.dirty = False
        for minute in [m for m in self._minutes if m < self._minute]:
            if not any(cell.dirty for cell in self._minutes[minute].values()):
                del self._minutes[minute]

    def __len__(self) -> int:
        return sum(len(cells) for cells in self._minutes.values())

    def _cell(self, tenant: str, model: str, now_ms: float) -> Cell:
        if now_ms >= self._ends_ms:
            self._turn(now_ms)
        cell = self._cells.get((tenant, model))
        if cell is None:
            cell = self._cells[(tenant, model)] = Cell()
        cell.dirty = True
        return cell

    def _turn(self, now_ms: float) -> None:
        """A new minute begins."""
        seconds = self._clock.wall(now_ms).timestamp()
        self._minute = max(int(seconds // 60), self._minute)
        self._ends_ms = now_ms + ((self._minute + 1) * 60 - seconds) * 1000.0
        self._cells = self._minutes.setdefault(self._minute, {})
        while len(self) > MAX_CELLS and self._fold():
            self.folded += 1

    def _fold(self) -> bool:
        """Fold the oldest minute that can be folded into the one after it."""
        minutes = sorted(self._minutes)[:-1]
        for oldest, following in itertools.pairwise(minutes):
            cells, into = self._minutes[oldest], self._minutes[following]
            movable = [key for key, cell in cells.items() if not cell.sent]
            for key in movable:
                into.setdefault(key, Cell()).absorb(cells.pop(key))
            if movable:
                if not cells:
                    del self._minutes[oldest]
                return True
        return False
