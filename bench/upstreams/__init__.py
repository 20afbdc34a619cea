"""Servers that stand behind what is measured."""

import sys
from pathlib import Path

from bench.peers import Process
from bench.ports import free_ports


def start_upstream(name: str, folder: Path) -> Process:
    """A scriptable OpenAI server (`openai_server`) in a process of its own."""
    return _start(f"upstream-{name}", ["openai_server", "--name", name], folder)


def start_instant_upstream(folder: Path) -> Process:
    """One that answers at once and costs next to nothing (`instant_server`)."""
    return _start("upstream-instant", ["instant_server"], folder)


def _start(name: str, words: list[str], folder: Path) -> Process:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", f"bench.upstreams.{words[0]}", *words[1:]]
    return Process(name, [*command, "--port", str(port)], port, "/health", folder)
