"""One run of the replica benchmark in real time: a real process, real sockets, real seconds.

The process stands alone with the simulated runtime: two slots, 20 ms a batch and 10 ms a
request of ordinary size, as the machine of the virtual clock. Latency in the
table is what the clients measured, the percentiles over time are the replica's own.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable

import aiohttp

from bench.replica_load import Arrival, Pattern, arrivals
from bench.replica_run import SAMPLE_S, Move, Run, Sample

_BYTES_PER_WORK = 1636
_DEVICE = ("--runtime", "simulated", "--speed", "0.9")
_READY_WITHIN_S = 60.0


def run_live(
    pattern: Pattern,
    *,
    adaptive: bool,
    slo_ms: float,
    workers: int,
    batch_size: int,
    seed: int,
    tick: Callable[[], None],
) -> Run:
    """Start a replica, play the pattern against it, stop it."""
    run = Run(pattern=pattern, mode="adaptive" if adaptive else "static", slo_ms=slo_ms)
    command = [
        *(sys.executable, "-m", "fleet.replica", "--standalone", "--json-logs", "--port", "0"),
        *(*_DEVICE, "--seed", str(seed), "--slo-ms", str(slo_ms)),
        *("--max-concurrency", str(workers), "--max-batch-size", str(batch_size)),
        *(() if adaptive else ("--static",)),
    ]
    asyncio.run(_play(run, command, arrivals(pattern, random.Random(seed)), tick))
    return run


async def _play(
    run: Run, command: list[str], trace: list[Arrival], tick: Callable[[], None]
) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, env={**os.environ, "HALCYON_FAULTS": "1"}
    )
    try:
        url = await asyncio.wait_for(_ready(process), _READY_WITHIN_S)
        started_s = time.monotonic()
        logs = asyncio.create_task(_follow(process, run, started_s))
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(url, connector=connector) as session:
            watching = asyncio.create_task(_watch(session, run, started_s, tick))
            async with asyncio.TaskGroup() as clients:
                if run.pattern.incident is not None:
                    clients.create_task(_break(session, run, started_s))
                for arrival in trace:
                    await asyncio.sleep(max(0.0, started_s + arrival.at_s - time.monotonic()))
                    clients.create_task(_ask(session, run, arrival))
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
    await logs


async def _ready(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async for line in process.stderr:
        entry = json.loads(line)
        if entry["event"] == "ready":
            return str(entry["address"])
    raise RuntimeError("the replica ended before it was ready")


async def _follow(process: asyncio.subprocess.Process, run: Run, started_s: float) -> None:
    assert process.stderr is not None
    async for line in process.stderr:
        entry = json.loads(line)
        if entry["event"] == "regulated":
            run.moves.append(
                Move(
                    at_s=time.monotonic() - started_s,
                    max_workers=entry["max_workers"],
                    batch_size=entry["batch_size"],
                    admission_control=entry["admission_control"],
                    text=entry["action"],
                )
            )


async def _ask(session: aiohttp.ClientSession, run: Run, arrival: Arrival) -> None:
    body = {
        "input": "x" * max(4, round(_BYTES_PER_WORK * arrival.work)),
        "priority": arrival.priority,
    }
    run.offered += 1
    sent_s = time.monotonic()
    async with session.post("/predict", json=body) as answer:
        await answer.read()
        took_ms = (time.monotonic() - sent_s) * 1000
        if answer.status == 429:
            run.refused += 1
        elif answer.status != 200:
            run.expired += 1
        elif took_ms <= run.slo_ms:
            run.in_time += 1
        else:
            run.late += 1


async def _break(session: aiohttp.ClientSession, run: Run, started_s: float) -> None:
    incident = run.pattern.incident
    assert incident is not None
    await asyncio.sleep(max(0.0, started_s + incident.start_s - time.monotonic()))
    fault = {
        "fault": "slow_start",
        "factor": incident.slowdown,
        "duration_seconds": incident.end_s - incident.start_s,
    }
    async with session.post("/simulate", json=fault) as answer:
        answer.raise_for_status()


async def _watch(
    session: aiohttp.ClientSession, run: Run, started_s: float, tick: Callable[[], None]
) -> None:
    for second in range(1, int(run.pattern.duration_s / SAMPLE_S) + 1):
        at_s = second * SAMPLE_S
        await asyncio.sleep(max(0.0, started_s + at_s - time.monotonic()))
        async with session.get("/metrics") as answer:
            seen = await answer.json()
        run.samples.append(
            Sample(
                at_s=at_s,
                offered_per_s=run.pattern.rate_at(at_s - 0.001),
                throughput_per_s=seen["throughput"],
                p50_ms=seen["p50"],
                p95_ms=seen["p95"],
                p99_ms=seen["p99"],
                cpu_ratio=None if seen["cpu"] is None else seen["cpu"] / 100,
                queue_depth=seen["queue_depth"],
                max_workers=seen["max_workers"],
                batch_size=seen["batch_size"],
                admission_control=seen["admission_control"],
                refused=run.refused,
            )
        )
        tick()
