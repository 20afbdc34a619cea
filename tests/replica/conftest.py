"""Real replica processes on ports of their own, ended by the test that started them."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.replica.replica_process import ROOT, ReplicaProcess, StartReplica, read_log, until


@pytest.fixture
async def start_replica(tmp_path: Path) -> AsyncIterator[StartReplica]:
    """Start replicas with these arguments and environment; end them with the test."""
    running: list[ReplicaProcess] = []
    readers: list[asyncio.Task[None]] = []

    async def start(*arguments: str, env: dict[str, str] | None = None) -> ReplicaProcess:
        words = list(arguments)
        if "--standalone" not in words:
            words = ["--model", "m", "--version", "v1", *words]
        if "--control-url" not in words and "--standalone" not in words:
            words.append("--no-register")
        if "--port" not in words:
            words += ["--port", "0"]
        clean = {name: value for name, value in os.environ.items() if "HALCYON" not in name}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fleet.replica", "--json-logs"),
            *("--state-dir", str(tmp_path), "--seed", "7"),
            *words,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=clean | (env or {}),
        )
        log: list[dict[str, Any]] = []
        readers.append(asyncio.create_task(read_log(process, log)))

        def ready() -> bool:
            assert process.returncode is None, f"the replica ended: {log}"
            return any(entry["event"] == "ready" for entry in log)

        await until(ready)
        url = next(entry["address"] for entry in log if entry["event"] == "ready")
        http = aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0))
        replica = ReplicaProcess(process, url, http, log)
        running.append(replica)
        return replica

    yield start
    for replica in running:
        await replica.http.close()
        if replica.process.returncode is None:
            replica.process.kill()
        await replica.process.wait()
    await asyncio.gather(*readers)
