"""Children that a killed `up` left behind, found by a mark in their environment.

Every child inherits `HALCYON_UP=<var>`, and so do its own children. Nothing has to be written
down, so there is no moment at which a process runs and is not known; and a mark cannot, like
a process id, come to mean somebody else.
"""

import os
import signal
from pathlib import Path

import psutil

from halcyon_site.embedded.process import end

MARK = "HALCYON_UP"


def marked(var: Path) -> dict[str, str]:
    """What goes into the environment of each child."""
    return {MARK: str(var)}


def end_leftovers(var: Path) -> list[int]:
    """End every process that bears the mark of this directory. Returns their pids."""
    found = [process for process in psutil.process_iter() if _is_marked(process, var)]
    for process in found:
        end(process, (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))
    return [process.pid for process in found]


def _is_marked(process: psutil.Process, var: Path) -> bool:
    try:
        return process.pid != os.getpid() and process.environ().get(MARK) == str(var)
    except (psutil.Error, OSError):
        return False
