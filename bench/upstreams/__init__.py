"""Servers that stand behind what is measured."""

import sys
from pathlib import Path

from bench.peers import Process
from bench.ports import free_ports


def start_upstream(name: str, folder: Path) -> Process:
    """A scriptable OpenAI server (`openai_server`) in a process of its own."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "bench.upstreams.openai_server"]
    command += ["--port", str(port), "--name", name]
    return Process(f"upstream-{name}", command, port, "/health", folder)
