"""Processes that a benchmark starts: apart from everybody's servers, and surely ended."""

import os
import signal
import subprocess
from pathlib import Path


def apart(var: Path) -> dict[str, str]:
    """An environment whose embedded servers live under `var`: not those that DATABASE_URL and
    VALKEY_URL name, nor those of a test run that the benchmark may be part of."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "halcyon_site.settings",
        "HALCYON_VAR": str(var),
    }
    for name in ("DATABASE_URL", "VALKEY_URL"):
        environment.pop(name, None)
    return environment


def end(
    process: "subprocess.Popen[bytes]", within_s: float, politely: int = signal.SIGTERM
) -> None:
    """Ask it to end, and kill it where it has not within `within_s`."""
    if process.poll() is None:
        process.send_signal(politely)
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
