"""A large fleet's rows in a database of its own, and a web process that hears its gateway."""

import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.children import apart, end
from bench.ports import free_ports

ROOT = Path(__file__).resolve().parents[1]
START_TIMEOUT_S = 120.0
PAGES = {
    "overview": "/",
    "models": "/models/",
    "model": "/models/model-001/",
    "fleet": "/fleet/",
    "replica": "/fleet/gpu-0001/",
    "rollouts": "/rollouts/",
    "rollout": "/rollouts/1/",
    "history": "/history/",
    "tenants": "/tenants/",
    "tenant": "/tenants/tenant-001/",
    "requests": "/requests/",
    "engine": "/engine/",
    "system": "/system/",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    replicas: int
    models: int
    tenants: int

    def options(self) -> list[str]:
        names = ("replicas", "models", "tenants")
        return [word for name in names for word in (f"--{name}", str(getattr(self, name)))]


class DashboardSite:
    """Servers, rows and, inside `serving`, a web process and a played gateway."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self._directory = Path(tempfile.mkdtemp(prefix="halcyon-bench-dashboard-"))
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.environment = {
            **apart(self._directory / "var"),
            "HALCYON_SECRET_KEY": "only-for-a-benchmark",
            "HALCYON_LOG_LEVEL": "WARNING",
            "HALCYON_GATEWAY_URL": "http://127.0.0.1:9",
            "HALCYON_WEB_URL": self.url,
            "PYTHONPATH": str(ROOT),
        }
        self.web: subprocess.Popen[bytes] | None = None
        self._services: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._services = subprocess.Popen(
                [sys.executable, "-m", "bench.dashboard_rows", "serve"],
                env=self.environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            assert self._services.stdout is not None
            if self._services.stdout.readline().strip() != b"ready":
                raise RuntimeError("PostgreSQL and Valkey did not start")
            list(self.script("-m", "bench.dashboard_rows", *self.size.options()))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._services is not None:
            assert self._services.stdin is not None
            self._services.stdin.close()  # it ends its servers, then itself
            self._services.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def script(self, *words: str) -> Iterator[str]:
        """Run python with these words; each line as it is printed."""
        with (self._directory / "script.log").open("w+") as log:
            running = subprocess.Popen(
                [sys.executable, *words],
                env=self.environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
            assert running.stdout is not None
            with running:
                yield from running.stdout
            if running.returncode:
                log.seek(0)
                raise RuntimeError(f"{' '.join(words)} failed:\n{log.read()[-3000:]}")

    @contextmanager
    def serving(self) -> Iterator[None]:
        """A web process that answers, and a gateway that speaks once a second."""
        port = self.url.rsplit(":", 1)[1]
        web = [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", port, "-v0"]
        stage = [sys.executable, str(ROOT / "tests" / "browser" / "stage.py")]
        with (self._directory / "web.log").open("wb") as log:
            self.web = subprocess.Popen(
                [*web, "halcyon_site.asgi:application"],
                env=self.environment, cwd=ROOT, stdout=log, stderr=log,
            )  # fmt: skip
            playing = subprocess.Popen(
                [*stage, *self.size.options()], env=self.environment, cwd=ROOT
            )
            try:
                self._until_it_answers()
                yield
            finally:
                for process in (playing, self.web):
                    end(process, 10.0)

    def _until_it_answers(self) -> None:
        began_s = time.monotonic()
        while time.monotonic() - began_s < START_TIMEOUT_S:
            assert self.web is not None
            if self.web.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}/sign-in/", timeout=10):
                    return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError((self._directory / "web.log").read_text()[-3000:])
