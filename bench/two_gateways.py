"""A whole Halcyon with a second gateway, on which `manage.py verify_rollout` plays its scenes."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bench.children import end
from bench.live_stack import MANAGE, START_TIMEOUT_S, STOP_TIMEOUT_S, LiveStack
from bench.ports import free_ports

EMPTY_FLEET = "models: {}\n"  # the scenes bring their own


class TwoGateways:
    """`environment` names both gateways, so that traffic goes to them in turn."""

    def __init__(self, stack: LiveStack, second_url: str) -> None:
        first_url = stack.environment["HALCYON_GATEWAY_URL"]
        self.urls = (first_url, second_url)
        self.environment = {**stack.environment, "HALCYON_GATEWAY_URL": ",".join(self.urls)}

    def verify(self, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        """Run `manage.py verify_rollout`: its exit code, a row a scene, and what it complained."""
        done = subprocess.run(
            [*MANAGE, "verify_rollout", "--json", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, json.loads(done.stdout or "[]"), done.stderr


@contextmanager
def two_gateways(settings: Mapping[str, str] | None = None) -> Iterator[TwoGateways]:
    """Have both for the length of the block."""
    with LiveStack(EMPTY_FLEET, settings=settings) as stack:
        (port,) = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        process = subprocess.Popen(
            [*MANAGE, "gateway", "--port", str(port)],
            env=stack.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_until_ready(url, process)
            yield TwoGateways(stack, url)
        finally:
            end(process, STOP_TIMEOUT_S)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    give_up_s = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < give_up_s:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=3) as answer:
                if answer.status == 200:
                    return
        except (OSError, urllib.error.HTTPError):
            time.sleep(0.1)
    raise RuntimeError(f"the second gateway at {url} did not become ready")
