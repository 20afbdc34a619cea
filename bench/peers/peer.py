"""Installing, starting and stopping a peer, and reading what its process tree used."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

_ROOT = Path(__file__).resolve().parents[2]
_READY_S = 90.0


@dataclass(slots=True, frozen=True, kw_only=True)
class Peer:
    """`command(bin, port, upstreams, folder)` is the command line that starts it."""

    name: str
    packages: Sequence[str]
    command: Callable[[Path, int, Sequence[str], Path], list[str]]
    ready_path: str = "/health"
    env: Mapping[str, str] = field(default_factory=dict)

    def folder(self) -> Path:
        return Path(os.environ.get("HALCYON_VAR", _ROOT / "var")) / "peers" / self.name

    def install(self) -> Path:
        """Create its environment once; returns its `bin`."""
        folder = self.folder()
        if not (folder / ".ready").exists():
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, *self.packages], check=True, stdout=subprocess.DEVNULL)
            (folder / ".ready").touch()
        return folder / "bin"

    def start(self, port: int, upstreams: Sequence[str], folder: Path) -> "Process":
        """Start it in front of `upstreams` and wait until it answers."""
        command = self.command(self.install(), port, upstreams, folder)
        return Process(self.name, command, port, self.ready_path, folder, self.env)


class Process:
    """A server under test and its children, in a session of their own."""

    key = "none"  # what its clients say after `Bearer`

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        port: int,
        ready_path: str,
        folder: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / f"{name}-{port}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **(env or {})},
                cwd=_ROOT,
            )
        try:
            self._wait_until_ready(ready_path)
        except BaseException:
            self.stop()
            raise

    def _wait_until_ready(self, path: str) -> None:
        until = time.monotonic() + _READY_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(self.url + path, timeout=1.0):
                    return
            except urllib.error.HTTPError:
                return  # it answers, if only to say no
            except OSError:
                time.sleep(0.1)  # nothing tells when a foreign server begins to listen
        tail = self.log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self.name} did not become ready at {self.url}{path}:\n{tail}")

    def _tree(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_s(self) -> float:
        """User and system seconds of the whole tree so far."""
        total = 0.0
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def memory_mb(self) -> float:
        """Resident memory of the whole tree, in MB."""
        total = 0
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total / 1e6

    def stop(self) -> None:
        """Terminate the whole session, by force after ten seconds."""
        for step in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, step)
            try:
                self._process.wait(10.0)
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
