"""The processes of `bench overhead`: the servers behind the gateway, and what runs beside them."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil

from bench.children import apart, end

TENANTS = 10_000
RELOADS = 7


class Stand:
    """The servers and the fleet behind the gateway (`overhead_stand`)."""

    def __init__(self, process: "subprocess.Popen[str]", var: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout
        self.environment = apart(var) | json.loads(self._out.readline() or "{}")

    def say(self, words: str, *ports: int) -> None:
        """Give a command and wait until it is done."""
        self._in.write(" ".join([words, *map(str, ports)]) + "\n")
        self._in.flush()
        self._out.readline()


@contextmanager
def standing(directory: Path, ports: Sequence[int]) -> Iterator[Stand]:
    """PostgreSQL and Valkey with 10,000 tenants, where the replicas on `ports` serve."""
    var = directory / "var"
    process = subprocess.Popen(
        [*python("bench.overhead_stand"), str(var), str(TENANTS), *map(str, ports)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Stand(process, var)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[psutil.Process]:
    """A process for as long as the block lasts."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield psutil.Process(process.pid)
    finally:
        end(process, 15.0)


def python(module: str, *arguments: object) -> list[str]:
    """The command line of one of our modules."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def reloads(directory: Path, stand: Stand) -> list[dict[str, float]]:
    """Change one tenant, `RELOADS` times, before a gateway that watches its own loop."""
    process = subprocess.Popen(
        python("bench.overhead_reload", directory / "reload", RELOADS),
        env=stand.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    found: list[dict[str, float]] = []
    with process.stdout as lines:
        lines.readline()
        for _ in range(RELOADS):
            stand.say("touch")
            found.append(json.loads(lines.readline()))
    process.wait(30)
    return found
