"""`manage.py up` as somebody at a terminal meets it: real processes, real ports."""

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import aiohttp
import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
MANAGE = [sys.executable, str(ROOT / "manage.py")]

FLEET = """
models:
  echo:
    versions: [v1]
    split: {baseline: v1}
replicas:
  - {id: echo-a, model: echo, version: v1, runtime: simulated, speed: 4, seed: 1}
tenants:
  demo: {keys: [main]}
users: {admin: admin}
load:
  - {model: echo, tenant: demo, key: main, ratePerS: 10}
"""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("up")]


def free_base() -> int:
    """A base from which web, gateway and the first replica are free."""
    for base in range(21_000, 59_000, 137):
        if all(is_free(base + offset) for offset in (0, 80, 1101)):
            return base
    raise AssertionError("no free ports")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def until(condition: Callable[[], Any], within_s: float, what: str) -> Any:
    give_up = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < give_up, f"{what} did not come about within {within_s} s"
        time.sleep(0.05)
    return value


class Up:
    """One `up` in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.var = directory / "var"
        self.fleet = directory / "fleet.yaml"
        self.fleet.write_text(FLEET)
        self.base = free_base()
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name not in {"DATABASE_URL", "VALKEY_URL", "HALCYON_SECRET_KEY"}
        } | {"HALCYON_VAR": str(self.var), "DJANGO_SETTINGS_MODULE": "halcyon_site.settings"}
        self.output, self.errors = directory / "stdout", directory / "stderr"
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [*MANAGE, "up", "--fleet", str(self.fleet), "--port-base", str(self.base)]
        with self.output.open("w") as output, self.errors.open("w") as errors:
            process = subprocess.Popen(
                [*command, *arguments], env=self.environment, stdout=output, stderr=errors
            )
        self.running.append(process)
        return process

    def start_in_a_terminal(self, *arguments: str) -> tuple[subprocess.Popen[bytes], "Terminal"]:
        terminal = Terminal()
        command = [*MANAGE, "up", "--fleet", str(self.fleet), "--port-base", str(self.base)]
        process = subprocess.Popen(
            [*command, *arguments],
            env=self.environment,
            stdout=terminal.inside,
            stderr=terminal.inside,
        )
        os.close(terminal.inside)
        self.running.append(process)
        return process, terminal

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Start it and wait for its end: exit code, output, errors."""
        code = self.start(*arguments).wait(240)
        return code, self.output.read_text(), self.errors.read_text()

    def wait_until_up(self) -> None:
        process = self.running[-1]
        until(
            lambda: process.poll() is not None or "up after" in self.output.read_text(), 240, "up"
        )
        assert process.poll() is None, self.errors.read_text()

    def children(self) -> dict[str, int]:
        """Name and pid of every process that works in or for this directory."""
        found = {}
        for process in psutil.process_iter(["pid", "cmdline", "environ", "name"]):
            environ, line = process.info["environ"] or {}, process.info["cmdline"] or []
            mine = environ.get("HALCYON_VAR") == str(self.var) or str(self.var) in " ".join(line)
            if mine and process.pid not in {p.pid for p in self.running}:
                found[f"{process.info['name']} {' '.join(line[1:5])}"] = process.pid
        return found

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        for pid in self.children().values():
            with_suppressed_kill(pid)


class Terminal:
    """A terminal that somebody looks at until it is closed."""

    def __init__(self) -> None:
        self._outside, self.inside = pty.openpty()
        self._closing = Event()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):
            while not self._closing.is_set():
                if select.select([self._outside], [], [], 0.1)[0]:
                    os.read(self._outside, 65536)
        os.close(self._outside)

    def close(self) -> None:
        self._closing.set()
        self._reader.join()


def with_suppressed_kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path)
    yield made
    made.close()


def test_it_serves_for_a_while_ends_by_itself_and_keeps_its_keys(up: Up) -> None:
    code, output, errors = up.run("--for", "6", "--json")
    assert code == 0, errors
    summary = json.loads(output)
    assert summary["ok"] is True
    assert summary["traffic"]["succeeded"] > 10
    assert {row["state"] for row in summary["processes"].values()} == {"ready"}
    assert up.children() == {}

    up.fleet.write_text(FLEET.partition("load:")[0])  # a file that asks for no load is no failure
    code, output, errors = up.run("--for", "1")
    assert code == 0, errors
    assert summary["keys"]["demo/main"] in output
    assert "sign in as admin" in output
    assert output.count("curl -s") == 3


async def test_a_killed_child_is_started_again_and_ctrl_c_leaves_nothing_behind(up: Up) -> None:
    process = up.start()
    replica = f"http://127.0.0.1:{up.base + 1101}/readyz"
    up.wait_until_up()
    children = up.children()
    victim = next(pid for name, pid in children.items() if "fleet.replica" in name)
    os.kill(victim, signal.SIGKILL)
    until(
        lambda: (
            victim not in up.children().values()
            and any("fleet.replica" in name for name in up.children())
        ),
        60,
        "a new replica",
    )
    async with aiohttp.ClientSession() as session:
        await answers(session, replica)
    process.send_signal(signal.SIGINT)
    assert process.wait(90) == 0
    assert up.children() == {}


def test_an_up_that_was_killed_leaves_nothing_that_the_next_one_stumbles_over(up: Up) -> None:
    first = up.start("--no-load")
    up.wait_until_up()
    before = set(up.children().values())
    first.kill()
    first.wait()
    assert set(up.children().values()) & before, "children outlive a killed parent"
    code, output, errors = up.run("--for", "2", "--no-load", "--json")
    assert code == 0, errors
    assert json.loads(output)["ok"] is True
    assert up.children() == {}


def test_a_second_up_is_told_of_the_first_which_leaves_nothing_when_its_terminal_closes(
    up: Up,
) -> None:
    first, terminal = up.start_in_a_terminal("--no-load")
    until(lambda: (up.var / "up.lock").exists() and (up.var / "up.lock").read_text(), 60, "lock")
    code, _, errors = up.run("--no-load")
    assert code == 1
    assert str(first.pid) in errors
    assert "HALCYON_VAR" in errors
    until(lambda: any("gateway" in name for name in up.children()), 120, "a gateway that starts")
    terminal.close()
    first.send_signal(signal.SIGHUP)  # as the kernel tells whoever it was the terminal of
    first.wait(120)
    assert up.children() == {}


def test_a_port_in_use_is_named_with_what_to_do(up: Up) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", up.base + 80))
        taken.listen()
        code, _, errors = up.run()
    assert code == 1
    assert f"port {up.base + 80}" in errors
    assert "--port-base" in errors


def test_a_fleet_file_with_a_misspelt_word_starts_nothing(up: Up) -> None:
    up.fleet.write_text(FLEET.replace("ratePerS", "ratePerSecond"))
    code, _, errors = up.run()
    assert code == 2
    assert "ratePerSecond" in errors
    assert not (up.var / "postgres").exists()


async def answers(session: aiohttp.ClientSession, url: str) -> None:
    give_up = time.monotonic() + 60
    while True:
        try:
            async with session.get(url) as response:
                if response.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        assert time.monotonic() < give_up, f"{url} does not answer"
