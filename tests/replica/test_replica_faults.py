"""Failure injection: what each fault does, that it ends, and that it needs permission."""

import asyncio
import time
from typing import Any

import psutil

from fleet.replica.faults import Faults
from fleet.replica.wire import SimulateRequest
from tests.replica.replica_process import ReplicaProcess, StartReplica, until

ENABLED = {"HALCYON_FAULTS": "1"}


async def inject(replica: ReplicaProcess, fault: str, **fields: Any) -> None:
    status, answer = await replica.post("/simulate", {"fault": fault, **fields})
    assert status == 200, answer
    assert fault in answer["faults"]


async def test_without_permission_nothing_can_be_injected(start_replica: StartReplica) -> None:
    replica = await start_replica()
    status, answer = await replica.post("/simulate", {"fault": "hang"})
    assert status == 403
    assert "HALCYON_FAULTS=1" in answer["message"]
    assert (await replica.get("/simulate"))[1] == {"enabled": False, "faults": {}}


async def test_what_cannot_be_injected_is_refused_by_name(start_replica: StartReplica) -> None:
    replica = await start_replica(env=ENABLED)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"fault": "earthquake"}, "cpu_stress"),
        ({"fault": "delay", "duration_seconds": -1}, "duration_seconds"),
        ({"fault": "delay", "milliseconds": 1e9}, "milliseconds"),
        ({"fault": "delay", "how": "much"}, "how"),
        ({}, "fault"),
    ]
    for body, named in cases:
        status, answer = await replica.post("/simulate", body)
        assert status == 400
        assert named in answer["message"]


async def test_a_delay_makes_batches_longer_until_it_ends(start_replica: StartReplica) -> None:
    replica = await start_replica(env=ENABLED)
    await inject(replica, "delay", duration_seconds=600)
    assert (await replica.execute("x"))[1]["executionMs"] > 300
    async with replica.http.delete("/simulate"):
        pass
    assert (await replica.execute("x"))[1]["executionMs"] < 300


async def test_a_crashing_worker_fails_three_batches_and_then_none(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica(env=ENABLED)
    await inject(replica, "worker_crash", duration_seconds=600)
    statuses = [(await replica.execute("x"))[0] for _ in range(5)]
    assert statuses == [500, 500, 500, 200, 200]


async def test_out_of_memory_fails_at_once_and_looks_like_no_success(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica(env=ENABLED)
    await inject(replica, "oom_fast_fail", duration_seconds=600)
    status, answer = await replica.execute("x")
    assert status == 500
    assert "out of memory" in answer["error"]["message"]
    assert (await replica.get("/metrics"))[1]["p95"] is None, "failing fast is not being fast"


async def test_busy_is_503_with_a_time_and_ends_by_itself(start_replica: StartReplica) -> None:
    replica = await start_replica(env=ENABLED)
    await inject(replica, "busy", duration_seconds=0.3)
    async with replica.http.post("/execute", json={"batchId": "b", "items": [_item()]}) as answer:
        assert answer.status == 503
        assert float(answer.headers["retry-after"]) > 0

    async def served() -> bool:
        return (await replica.execute("x"))[0] == 200

    await until(served)


async def test_a_cold_start_takes_times_as_long(start_replica: StartReplica) -> None:
    replica = await start_replica(env=ENABLED)
    warm_ms = (await replica.execute("x"))[1]["executionMs"]
    await inject(replica, "slow_start", factor=20, duration_seconds=600)
    assert (await replica.execute("x"))[1]["executionMs"] > 5 * warm_ms


async def test_cpu_stress_burns_in_processes_of_its_own_that_end_with_it(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica(env=ENABLED)
    await inject(replica, "cpu_stress", duration_seconds=0.5)
    me = psutil.Process(replica.process.pid)
    assert me.children()
    assert (await replica.execute("x"))[0] == 200
    await until(lambda: not me.children())


async def test_a_memory_spike_is_really_held_and_given_back(start_replica: StartReplica) -> None:
    replica = await start_replica(env=ENABLED)
    me = psutil.Process(replica.process.pid)
    before = me.memory_info().rss
    await inject(replica, "memory_spike", megabytes=100, duration_seconds=600)
    assert me.memory_info().rss - before > 80e6
    async with replica.http.delete("/simulate"):
        pass
    await until(lambda: me.memory_info().rss - before < 50e6)


async def test_a_hang_ends_with_its_duration() -> None:
    faults = Faults(enabled=True)
    faults.start(SimulateRequest("hang", 0.05))
    started_s = time.monotonic()
    await asyncio.wait_for(faults.before_batch(), 30)
    assert time.monotonic() - started_s >= 0.05
    assert faults.in_force() == {}


def _item() -> dict[str, str]:
    return {"requestId": "r", "input": "x"}
