"""Children that a killed `up` left behind: found by what it wrote down, ended before a start.

A pid alone may by now be somebody else's, so the time at which the process began is written
down with it and must agree.
"""

import contextlib
import json
import signal
from collections.abc import Iterable
from pathlib import Path

import psutil

from halcyon_site.embedded.process import end

SAME_START_S = 0.5


class Register:
    """The pids of the present children, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: list[list[float]] = []

    def write(self, pids: Iterable[int | None]) -> None:
        known = []
        for pid in pids:
            if pid is None:
                continue
            with contextlib.suppress(psutil.Error):
                known.append([pid, psutil.Process(pid).create_time()])
        if known != self._written:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".new")
            fresh.write_text(json.dumps(known))
            fresh.replace(self._path)
            self._written = known

    def end_leftovers(self) -> list[int]:
        """End every process of the file that still lives. Returns their pids."""
        ended = []
        for process in self._living():
            end(process, (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))
            ended.append(process.pid)
        self._path.unlink(missing_ok=True)
        return ended

    def _living(self) -> list[psutil.Process]:
        try:
            known = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return []
        living = []
        for pid, created in known:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(int(pid))
                if abs(process.create_time() - created) < SAME_START_S:
                    living.append(process)
        return living
