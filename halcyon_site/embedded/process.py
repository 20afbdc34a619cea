"""Finding and ending a server process that may have been left behind.

A pid file can lie: its process may be gone, and its number may by now belong to somebody
else. So a pid counts only where the process bears the right name *and* works in the right
directory. What breaks without it: a restart that refuses to start because of a stale file,
or, worse, one that kills a stranger.
"""

import atexit
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

POLL_S = 0.02

_started: list[subprocess.Popen[bytes]] = []


def launch(
    command: list[str], log: Path, *, working_directory: str = "/", **arguments: Any
) -> subprocess.Popen[bytes]:
    """Start a server that outlives this process, in a session of its own (no Ctrl-C reaches it).

    The handle is kept, because one that is dropped while its process runs raises a warning.
    """
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=working_directory,
            start_new_session=True,
            **arguments,
        )
    _started.append(child)
    return child


@atexit.register
def _let_go() -> None:
    """The servers go on without this process: their handles shall not complain of it."""
    for child in _started:
        child.returncode = child.poll() or 0


def reap() -> None:
    """Collect the exit codes of started servers that have ended."""
    _started[:] = [child for child in _started if child.poll() is None]


def log_tail(log: Path, lines: int = 15) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(there is no log)"


def server_process(pid: int | None, name: str, directory: Path) -> psutil.Process | None:
    """The living process `pid` if it is called `name` and works in `directory`, else None."""
    if pid is None or pid <= 1:
        return None
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or not process.name().startswith(name):
            return None
        return process if Path(process.cwd()) == directory else None
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
        return None


def first_pid(path: Path) -> int | None:
    """The number in the first line of a pid file, or None."""
    try:
        return int(path.read_text().split("\n", 1)[0].strip())
    except (OSError, ValueError):
        return None


def is_gone(process: psutil.Process) -> bool:
    """True once the process has ended, even where nobody has reaped it yet."""
    with suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def end(process: psutil.Process, *signals: tuple[signal.Signals, float]) -> None:
    """Send each signal in turn, allowing each its seconds, until the process is gone."""
    for number, patience_s in signals:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
        if wait_until(lambda: is_gone(process), patience_s):
            reap()
            return


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll `condition` until it holds (True) or `timeout_s` is over (False)."""
    give_up = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= give_up:
            return False
        time.sleep(POLL_S)
    return True
