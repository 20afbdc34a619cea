"""Clients that leave, and deadlines that pass: work stops, and nobody is blamed for it."""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Any

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess, until
from tests.gateway.scripted_replica import ScriptedReplica, answers, answers_after, hangs


async def leave(clients: Iterable[asyncio.Task[Any]]) -> None:
    """Disconnect, as a client does that loses patience."""
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)


def start(gateway: GatewayProcess, count: int, **body: Any) -> list[asyncio.Task[Any]]:
    return [
        asyncio.create_task(gateway.infer(**{"input": f"request {n}", **body}))
        for n in range(count)
    ]


async def replica_view(gateway: GatewayProcess, replica_id: str = "r1") -> Any:
    replicas = (await gateway.state())["replicas"]
    return next(view for view in replicas if view["replicaId"] == replica_id)


async def test_clients_that_leave_stop_their_work_at_the_replica(stack: Stack) -> None:
    stack.rows.model()
    replica = await stack.replica(answers(30.0), max_batch_size=1, max_concurrency=8)
    gateway = await stack.gateway(stack.rows.tenant())
    took_s: list[float] = []
    while not took_s or min(took_s) > 0.25:  # the quickest: a busy machine is no fault
        assert len(took_s) < 8, took_s
        leaving = start(gateway, 8, deadlineMs=60_000)
        await until(lambda: replica.seen.running == 8, 10.0, "eight attempts at the replica")
        began = time.monotonic()
        await leave(leaving)
        await until(lambda: replica.seen.running == 0, 5.0, "an idle replica")
        took_s.append(time.monotonic() - began)
    cancelled_before = replica.seen.cancelled
    clients = start(gateway, 12, deadlineMs=60_000)
    await until(lambda: replica.seen.running == 8, 10.0, "eight attempts at the replica")
    left_behind = (await gateway.state())["conservation"]
    assert (left_behind["running"], left_behind["queued"]) == (8, 4)
    await leave(clients)
    # a place that one of them leaves may be taken by one that has not left yet
    await until(
        lambda: replica.seen.cancelled >= cancelled_before + 8, 5.0, "eight closed connections"
    )
    await until(lambda: replica.seen.running == 0, 5.0, "an idle replica")
    law = await gateway.settled()
    assert (law["cancelled"], law["failed"], law["balanced"]) == (
        8 * len(took_s) + 12,
        0,
        True,
    )
    view = await replica_view(gateway)
    assert (view["breaker"]["state"], view["breaker"]["trips"], view["inFlight"]) == (
        "closed",
        0,
        0,
    )


async def test_a_member_that_leaves_a_running_batch_does_not_disturb_the_others(
    stack: Stack,
) -> None:
    stack.rows.model()
    replica = await stack.replica(answers(0.02))
    gateway = await stack.gateway(stack.rows.tenant())
    await gateway.infer_many(200, 32, deadlineMs=10_000)  # a batch costs little more than one
    gate = asyncio.Event()
    replica.behave = answers_after(gate)
    before = len(replica.seen.batches)
    clients = {
        f"member {n}": asyncio.create_task(gateway.infer(input=f"member {n}", deadlineMs=30_000))
        for n in range(16)
    }
    await until(lambda: replica.seen.running == 1)
    gate_batch = replica.seen.inputs[-len(replica.seen.batches[before]) :]
    if len(gate_batch) == 1:  # the first left alone: the second takes the rest
        gate.set()
        gate.clear()
        await until(lambda: len(replica.seen.batches) == before + 2)
        gate_batch = replica.seen.inputs[-len(replica.seen.batches[before + 1]) :]
    assert len(gate_batch) > 1
    leaving = gate_batch[0]
    await leave([clients.pop(leaving)])

    async def noticed() -> bool:
        return (await gateway.state())["conservation"]["cancelled"] == 1

    await until(noticed, 5.0, "the departure")
    gate.set()
    rest = await asyncio.gather(*clients.values())
    assert [answer.status for answer in rest] == [200] * 15
    assert replica.seen.cancelled == 0
    assert (await gateway.settled())["cancelled"] == 1


async def test_after_a_round_of_aborts_a_normal_round_succeeds_whole(stack: Stack) -> None:
    stack.rows.model()
    replicas = [await stack.replica(answers(0.05), max_batch_size=4) for _ in range(2)]
    gateway = await stack.gateway(stack.rows.tenant())
    clients = start(gateway, 100, deadlineMs=10_000)
    await until(lambda: sum(replica.seen.items for replica in replicas) >= 8)
    await leave(clients[:80])
    kept = await asyncio.gather(*clients[80:])
    assert {answer.status for answer in kept} == {200}
    answers_after = await gateway.infer_many(60, 16, deadlineMs=10_000)
    assert {answer.status for answer in answers_after} == {200}
    assert (await gateway.settled())["failed"] == 0


async def test_five_hundred_cancelled_at_once_leave_nothing_upstream(stack: Stack) -> None:
    stack.rows.model()
    replica = await stack.replica(answers(20.0), max_batch_size=8, max_concurrency=4)
    gateway = await stack.gateway(stack.rows.tenant())
    clients = start(gateway, 500, deadlineMs=60_000)
    await until(lambda: replica.seen.running == 4)

    async def all_in() -> bool:
        return bool((await gateway.state())["conservation"]["arrived"] == 500)

    await until(all_in)
    await leave(clients)
    await until(lambda: replica.seen.running == 0, 3.0, "an idle replica")
    law = await gateway.settled()
    assert law["cancelled"] + law["refused"] == 500  # some were over the adaptive limit
    assert law["cancelled"] >= 32
    assert law["failed"] == 0
    assert replica.seen.items <= 500
    batches = len(replica.seen.batches)
    replica.behave = answers()
    assert (await gateway.infer()).status == 200
    assert len(replica.seen.batches) == batches + 1


async def test_what_waits_behind_a_busy_device_is_refused_at_its_own_deadline(
    stack: Stack,
) -> None:
    stack.rows.model()
    replica = await stack.replica(answers(30.0), max_batch_size=1)
    gateway = await stack.gateway(stack.rows.tenant())
    blocker = start(gateway, 1, deadlineMs=30_000)
    await until(lambda: replica.seen.running == 1)
    took_s: list[float] = []
    while not took_s or min(took_s) > 0.25:  # the quickest: a busy machine is no fault
        assert len(took_s) < 8, took_s
        answer = await gateway.infer(deadlineMs=200)
        assert answer.code in ("deadline_exceeded", "deadline_unreachable")
        assert answer.took_s > 0.1, "it waits as long as there is hope"
        took_s.append(answer.took_s)
        error = answer.json["error"]
        assert error["message"]
        assert error["requestId"]
    assert replica.seen.running == 1, "the device was never free"
    await leave(blocker)


async def test_a_hanging_replica_costs_a_request_its_deadline_and_no_more(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica(hangs())
    gateway = await stack.gateway(stack.rows.tenant())
    answer = await gateway.infer(deadlineMs=500)
    assert (answer.status, answer.code) == (504, "deadline_exceeded")
    assert 0.4 < answer.took_s < 3.0
    law = await gateway.settled()
    assert (law["running"], law["balanced"]) == (0, True)


async def test_remaining_time_travels_to_the_replica(stack: Stack) -> None:
    stack.rows.model()
    replica = await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    await gateway.infer(deadlineMs=5_000)
    assert 0.0 < replica.seen.deadlines_ms[0] <= 5_000.0


async def test_a_client_that_leaves_while_it_still_sends_disturbs_nobody(stack: Stack) -> None:
    stack.rows.model()
    replica: ScriptedReplica = await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    for size in (100, 1_000_000):
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        head = f"POST /v1/infer HTTP/1.1\r\nhost: x\r\nx-api-key: {gateway.key}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {size}\r\n\r\n"
        writer.write(head.encode() + b'{"model":')
        await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    assert (await gateway.infer()).status == 200
    assert (await gateway.settled())["arrived"] == 1
    assert replica.seen.items == 1
