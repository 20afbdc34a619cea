"""Progress of long work: a bar on a terminal's stderr, silence everywhere else.

with progress.task("simulating", total=10) as task:
    for rate in rates:
        ...
        task.advance()
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress


class Task:
    """One bar. `advance` moves it, `say` changes its text."""

    def __init__(self, bars: RichProgress | None, task_id: int) -> None:
        self._bars = bars
        self._id = task_id

    def advance(self, by: float = 1.0) -> None:
        if self._bars is not None:
            self._bars.advance(self._id, by)  # type: ignore[arg-type]

    def say(self, text: str) -> None:
        if self._bars is not None:
            self._bars.update(self._id, description=text)  # type: ignore[arg-type]


class Progress:
    """The bars of one run. Use it as a context manager."""

    def __init__(self, *, visible: bool | None = None) -> None:
        show = sys.stderr.isatty() if visible is None else visible
        self._bars = (
            RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            if show
            else None
        )

    def __enter__(self) -> "Progress":
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    @contextmanager
    def task(self, description: str, total: float) -> Iterator[Task]:
        """A bar of `total` steps that disappears when the block ends."""
        if self._bars is None:
            yield Task(None, 0)
            return
        task_id = self._bars.add_task(description, total=total)
        try:
            yield Task(self._bars, task_id)
        finally:
            self._bars.remove_task(task_id)
