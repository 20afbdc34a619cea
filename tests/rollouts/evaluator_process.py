"""A Celery worker's tick in a process of its own, which can be told to hang before it commits."""

import os
import signal
import subprocess
import sys
from typing import IO

_TICK = """
import sys, time
import django
django.setup()
from django.utils.dateparse import parse_datetime
from rollouts import evaluation

if "hang" in sys.argv:
    apply = evaluation.apply_verdict
    def apply_and_hang(*args, **options):
        decision = apply(*args, **options)
        print("decided", decision.name, flush=True)
        time.sleep(600)
    evaluation.apply_verdict = apply_and_hang

print("ready", flush=True)
sys.stdin.readline()
outcomes = evaluation.evaluate_due(parse_datetime(sys.argv[1]))
print("judged", sum(o.decisions for o in outcomes), *[o.error for o in outcomes], flush=True)
"""


class Evaluator:
    """One tick, held until `go`. Reads its lines one by one."""

    def __init__(self, environment: dict[str, str], now: str, *, hang: bool = False) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TICK, now, *(["hang"] if hang else [])],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "ready"

    def go(self) -> None:
        pipe = self._pipe(self.process.stdin)
        pipe.write("go\n")
        pipe.flush()

    def line(self) -> str:
        return self._pipe(self.process.stdout).readline().strip()

    def kill(self) -> None:
        """As the kernel's memory killer would: no chance to clean up."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        if self.process.poll() is None and self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe
