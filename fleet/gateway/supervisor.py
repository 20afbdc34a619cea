"""Several processes on one port: start them, restart what crashes, stop them together.

Each child binds the port itself (SO_REUSEPORT), so the kernel spreads connections and the
supervisor is on nobody's path. A child that dies is replaced, at once the first time and
more slowly when it keeps dying. Children hold the read end of a pipe: should the supervisor
be killed, they see it close, answer what they hold and leave.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from types import FrameType

import msgspec

from fleet.gateway.config import GatewayConfig, to_child
from fleet.gateway.server import listening_socket

CHECK_S = 0.1
STEADY_S = 10.0  # a child that lived this long is not in a crash loop
MAX_PAUSE_S = 5.0
LIFELINE_VARIABLE = "HALCYON_GATEWAY_LIFELINE"

log = logging.getLogger("halcyon.gateway")


class Child:
    """One process and its history."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.started_s = 0.0
        self.pause_s = 0.0
        self.not_before_s = 0.0


class Supervisor:
    """Keeps `config.processes` children alive until a signal says stop."""

    def __init__(self, config: GatewayConfig) -> None:
        private = tempfile.mkdtemp(prefix="halcyon-gw-")
        self._config = msgspec.structs.replace(config, private_dir=private)
        self._children = [Child(number) for number in range(config.processes)]
        self._stop = threading.Event()
        self._lifeline, self._lifeline_end = os.pipe()
        self.restarts = 0

    def run(self) -> int:
        """Until SIGTERM or SIGINT. 0 if every child left in order."""
        try:
            with listening_socket(self._config.host, self._config.port, shared=False):
                pass
        except OSError as error:
            print(
                f"gateway: cannot listen on {self._config.host}:{self._config.port}:"
                f" {error.strerror}. Stop what holds the port, or choose another with --port.",
                file=sys.stderr,
            )
            return 1
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        try:
            while not self._stop.is_set():
                for child in self._children:
                    self._tend(child)
                self._stop.wait(CHECK_S)
            return self._end()
        finally:
            shutil.rmtree(self._config.private_dir, ignore_errors=True)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_set():
            for child in self._children:
                if child.process is not None:
                    child.process.terminate()
        self._stop.set()

    def _tend(self, child: Child) -> None:
        now_s = time.monotonic()
        if child.process is not None:
            code = child.process.poll()
            if code is None:
                return
            lived_s = now_s - child.started_s
            log.error("process %d ended with %s after %.1f s", child.number, code, lived_s)
            child.pause_s = (
                0.0 if lived_s >= STEADY_S else min(max(child.pause_s * 2.0, 0.2), MAX_PAUSE_S)
            )
            child.not_before_s = now_s + child.pause_s
            child.process = None
            self.restarts += 1
        if now_s >= child.not_before_s:
            self._start(child)

    def _start(self, child: Child) -> None:
        environment = to_child(self._config, child.number)
        environment[LIFELINE_VARIABLE] = str(self._lifeline)
        child.started_s = time.monotonic()
        child.process = subprocess.Popen(
            [sys.executable, "-m", "fleet.gateway"],
            env=environment,
            pass_fds=(self._lifeline,),
            start_new_session=True,  # a Ctrl-C reaches the supervisor alone, which passes it on
        )

    def _end(self) -> int:
        alive = [child.process for child in self._children if child.process is not None]
        for process in alive:
            process.terminate()
        limit_s = time.monotonic() + self._config.drain_s + self._config.grace_s + 15.0
        worst = 0
        for process in alive:
            try:
                code = process.wait(max(limit_s - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                log.error("pid %d did not end in time and is killed", process.pid)
                process.kill()
                code = process.wait()
            worst = worst or _severity(code)
        os.close(self._lifeline)
        os.close(self._lifeline_end)
        return worst


def _severity(code: int) -> int:
    """What a child's exit code adds to the supervisor's own. A child that was told to stop
    while it was starting has no handler yet and dies of the signal: it held nothing."""
    return 0 if code == -signal.SIGTERM else abs(code)
