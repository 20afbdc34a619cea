"""A whole Halcyon for a benchmark: `manage.py up` in a directory of its own, thrown away after.

with LiveStack(fleet_text) as stack:
    figures = stack.loadtest("--clients", "32", "--duration", "20")
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.children import apart, end
from fleet.ports import is_free

ROOT = Path(__file__).resolve().parents[1]
MANAGE = [sys.executable, str(ROOT / "manage.py")]
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0
BASES = (10_000, 30_000)
OFFSETS = (0, 80, *range(1101, 1109))  # web, gateway, replicas


class LiveStack:
    """Every process of a real system, as a user runs it."""

    def __init__(
        self,
        fleet: Path | str,
        *,
        with_load: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="halcyon-live-"))
        self._fleet = fleet if isinstance(fleet, Path) else self._written(fleet)
        self._with_load = with_load
        self._base = _free_base()
        self.environment = {
            **apart(self._directory / "var"),
            **(settings or {}),
            "HALCYON_GATEWAY_URL": f"http://127.0.0.1:{self._base + 80}",
            "HALCYON_WEB_URL": f"http://127.0.0.1:{self._base}",
        }
        self.started_in_s: float | None = None

    def __enter__(self) -> Self:
        arguments = ["--fleet", str(self._fleet), "--port-base", str(self._base)]
        if not self._with_load:
            arguments.append("--no-load")
        self._log = (self._directory / "up.log").open("w")
        began_s = time.monotonic()
        self._process = subprocess.Popen(
            [*MANAGE, "up", *arguments],
            env=self.environment,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        while "up after" not in (text := (self._directory / "up.log").read_text()):
            if self._process.poll() is not None or time.monotonic() - began_s > START_TIMEOUT_S:
                self.close()
                raise RuntimeError(f"`up` did not come up:\n{text[-2000:]}")
            time.sleep(0.1)
        self.started_in_s = time.monotonic() - began_s
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        end(self._process, STOP_TIMEOUT_S, signal.SIGINT)
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def loadtest(self, *arguments: str) -> dict[str, Any]:
        """Run `manage.py loadtest` against it; its JSON summary."""
        done = subprocess.run(
            [*MANAGE, "loadtest", "--json", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.stdout:
            raise RuntimeError(f"loadtest failed: {done.stderr[-2000:]}")
        summary: dict[str, Any] = json.loads(done.stdout)
        return summary

    def _written(self, text: str) -> Path:
        path = self._directory / "fleet.yaml"
        path.write_text(text)
        return path


def _free_base() -> int:
    """A base whose ports are all free. Below 32768, where no client's own port comes in between."""
    for _ in range(100):
        base = random.randrange(*BASES)
        if all(is_free("127.0.0.1", base + offset) for offset in OFFSETS):
            return base
    raise RuntimeError(f"no free ports between {BASES[0]} and {BASES[1]}")
