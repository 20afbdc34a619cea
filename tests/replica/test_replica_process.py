"""The replica as a process: batches, backpressure, disconnects, hanging, dying, draining."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping

import aiohttp
import msgspec
import pytest

from tests.replica.replica_process import ROOT, ReplicaProcess, StartReplica, batch, until

SLOW = ("--speed", "0.02")  # 0.9 s a batch
STUCK = ("--speed", "0.0005")  # 36 s a batch: longer than any test


async def test_a_batch_is_answered_item_by_item_in_the_codec_of_the_request(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica()
    status, answer = await replica.execute("hello", "a second text")
    assert status == 200
    assert answer["batchId"] == "b1"
    assert answer["executionMs"] > 10
    assert [each["output"] for each in answer["results"]] == ["m v1: hello", "m v1: a second text"]
    assert [each["promptTokens"] for each in answer["results"]] == [2, 4]
    packed = msgspec.msgpack.encode(batch("hello", promptTokens=90))
    media = {"content-type": "application/msgpack"}
    async with replica.http.post("/execute", data=packed, headers=media) as response:
        assert response.headers["content-type"] == "application/msgpack"
        decoded = msgspec.msgpack.decode(await response.read())
    assert decoded["results"][0]["output"] == "m v1: hello"
    assert decoded["results"][0]["promptTokens"] == 90


async def test_every_answer_says_what_the_replica_can_take_now(start_replica: StartReplica) -> None:
    replica = await start_replica("--max-concurrency", "3", "--max-batch-size", "16")
    async with replica.http.post("/execute", json=batch("x")) as response:
        headers = response.headers
    assert headers["x-halcyon-max-concurrency"] == "3"
    assert headers["x-halcyon-max-batch-size"] == "16"
    assert headers["x-halcyon-queue"] == "0"
    health = await replica.health()
    assert (health["maxConcurrency"], health["maxBatchSize"]) == (3, 16)
    assert health["state"] == "ready"
    assert health["workUnit"] == "tokens"
    assert health["loadedModels"] == ["m"]
    assert health["gpuMemoryRatio"] is None


async def test_a_malformed_item_fails_alone(start_replica: StartReplica) -> None:
    replica = await start_replica("--runtime", "linear", "--input-dim", "3")
    status, answer = await replica.execute([1, 2, 3], [1, 2], "text", [0, 0, 0])
    assert status == 200
    good, short, text, zero = answer["results"]
    assert len(good["output"]) == 3
    assert zero["output"] == [0.0, 0.0, 0.0]
    assert short["status"] == text["status"] == 400
    assert "row 0 has 2 numbers" in short["error"]


async def test_an_item_whose_time_ran_out_in_the_queue_is_not_run(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica("--speed", "0.1")
    first = asyncio.create_task(replica.execute("first"))
    await until(lambda: _running(replica, 1))
    items = batch("late", "early")
    items["items"][0]["deadlineMs"] = 20
    _, answer = await replica.post("/execute", items)
    await first
    late, early = answer["results"]
    assert late["status"] == 503
    assert early["output"] == "m v1: early"


async def test_more_than_it_can_take_is_busy_and_says_for_how_long(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica("--speed", "0.1", "--max-queue", "2")
    await replica.execute("measure me once")
    answers = await asyncio.gather(*(_raw(replica, "x") for _ in range(8)))
    assert sorted(status for status, _ in answers) == [200] * 3 + [503] * 5
    waits = [float(headers["retry-after"]) for status, headers in answers if status == 503]
    assert all(0.1 < wait_s < 1.0 for wait_s in waits), "not what a batch takes"
    assert (await replica.execute("after"))[0] == 200


async def test_it_never_runs_more_batches_than_it_declares(start_replica: StartReplica) -> None:
    replica = await start_replica("--max-concurrency", "2", "--max-queue", "100", "--speed", "0.5")
    seen: list[int] = []

    async def watch() -> None:
        while True:
            seen.append((await replica.health())["inFlight"])

    watching = asyncio.create_task(watch())
    answers = await asyncio.gather(*(replica.execute("x") for _ in range(30)))
    watching.cancel()
    assert {status for status, _ in answers} == {200}
    assert max(seen) == 2


async def test_a_client_that_leaves_frees_the_device(start_replica: StartReplica) -> None:
    replica = await start_replica(*STUCK)
    leaving = asyncio.create_task(replica.execute("nobody will wait for this"))
    await until(lambda: _running(replica, 1))
    leaving.cancel()
    await until(lambda: _running(replica, 0), within_s=5.0)


async def test_a_client_that_leaves_takes_its_place_in_the_queue_along(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica(*STUCK)
    running = asyncio.create_task(replica.execute("runs"))
    await until(lambda: _running(replica, 1))
    waiting = asyncio.create_task(replica.execute("waits"))
    await until(lambda: _queued(replica, 1))
    waiting.cancel()
    await until(lambda: _queued(replica, 0), within_s=5.0)
    assert (await replica.health())["inFlight"] == 1
    running.cancel()


async def test_five_hundred_clients_that_leave_at_once_leave_nothing_behind(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica("--max-queue", "1000", "--max-concurrency", "4", *STUCK)
    tasks = [asyncio.create_task(replica.execute("x")) for _ in range(500)]
    await until(lambda: _queued(replica, 496))
    for task in tasks:
        task.cancel()
    await until(lambda: _idle(replica))


async def test_a_hanging_replica_holds_its_batch_and_still_says_how_it_is(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica(env={"HALCYON_FAULTS": "1"})
    await replica.post("/simulate", {"fault": "hang", "duration_seconds": 600})
    held = asyncio.create_task(replica.execute("x"))
    await until(lambda: _running(replica, 1))
    assert (await replica.health())["state"] == "ready"
    assert not held.done()
    async with replica.http.delete("/simulate"):
        pass
    assert (await asyncio.wait_for(held, 10))[0] == 200


async def test_killed_it_is_gone_at_once_and_the_next_one_can_have_its_port(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica(*STUCK)
    held = asyncio.create_task(replica.execute("x"))
    await until(lambda: _running(replica, 1))
    replica.send(signal.SIGKILL)
    with pytest.raises(aiohttp.ClientError):
        await held
    port = replica.url.rsplit(":", 1)[1]
    successor = await start_replica("--port", port)
    assert successor.url == replica.url
    assert (await successor.execute("x"))[0] == 200


async def test_sigterm_finishes_what_it_holds_refuses_new_work_and_exits_with_zero(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica(*SLOW)
    held = [asyncio.create_task(replica.execute(f"held {n}")) for n in range(2)]
    await until(lambda: _queued(replica, 1))
    replica.send(signal.SIGTERM)
    await until(lambda: _state(replica, "draining"))
    status, headers = await _raw(replica, "too late")
    assert status == 503
    assert float(headers["retry-after"]) > 0
    assert (await replica.get("/readyz"))[0] == 503
    answers = await asyncio.gather(*held)
    assert [status for status, _ in answers] == [200, 200]
    assert answers[1][1]["results"][0]["output"] == "m v1: held 1"
    assert await replica.exit_code() == 0


async def test_a_drain_that_cannot_end_is_cut_off_and_admits_it(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica("--drain-timeout-s", "0.2", *STUCK)
    held = asyncio.create_task(replica.execute("x"))
    await until(lambda: _running(replica, 1))
    replica.send(signal.SIGTERM)
    assert await replica.exit_code() == 1
    await asyncio.gather(held, return_exceptions=True)


async def test_an_idle_replica_ends_at_once_on_sigint(start_replica: StartReplica) -> None:
    replica = await start_replica()
    replica.send(signal.SIGINT)
    assert await replica.exit_code() == 0
    assert replica.events()[-1] == "stopped"


NO_BATCHES = {
    b"{": "truncated",
    b'{"batchId": "b"}': "items",
    b'{"batchId": "b", "items": []}': "items",
    b'{"batchId": "b", "items": [{"input": 1}]}': "requestId",
    b'{"batchId": "b", "items": [{"requestId": 3, "input": 1}]}': "requestId",
    b"\xff\xfe": "invalid",
    b'{"batchId": "b", "items": [{"requestId": "r", "input": ' + b"[" * 100_000: "recursion",
}


async def test_a_body_that_is_no_batch_is_refused_by_name(start_replica: StartReplica) -> None:
    replica = await start_replica()
    media = {"content-type": "application/json"}
    for body, named in NO_BATCHES.items():
        async with replica.http.post("/execute", data=body, headers=media) as response:
            assert response.status == 400, body[:40]
            error = (await response.json())["error"]
        assert error["code"] == "invalid_request"
        assert named in error["message"], body[:40]


async def test_what_it_does_not_know_is_refused_plainly(start_replica: StartReplica) -> None:
    replica = await start_replica("--max-batch-size", "2")
    assert (await replica.execute("1", "2", "3"))[0] == 400
    assert (await replica.get("/execute"))[0] == 405
    assert (await replica.get("/nothing"))[0] == 404
    media = {"content-type": "text/csv"}
    async with replica.http.post("/execute", data=b"x", headers=media) as response:
        assert response.status == 415
    assert (await replica.post("/predict", {"input": "x"}))[0] == 404


def test_a_port_in_use_is_said_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "fleet.replica", "--standalone", "--port", port],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert f"--port={port}" in done.stderr
    assert "Traceback" not in done.stderr


async def _raw(replica: ReplicaProcess, text: str) -> tuple[int, Mapping[str, str]]:
    async with replica.http.post("/execute", json=batch(text)) as response:
        await response.read()
        return response.status, response.headers


async def _running(replica: ReplicaProcess, count: int) -> bool:
    return bool((await replica.health())["inFlight"] == count)


async def _queued(replica: ReplicaProcess, count: int) -> bool:
    return bool((await replica.health())["queued"] == count)


async def _idle(replica: ReplicaProcess) -> bool:
    return await _running(replica, 0) and await _queued(replica, 0)


async def _state(replica: ReplicaProcess, state: str) -> bool:
    return bool((await replica.health())["state"] == state)
