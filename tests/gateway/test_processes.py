"""Several processes on one port, and how a gateway ends."""

import asyncio
import os
import signal

import aiohttp
import psutil

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess, free_port, until
from tests.gateway.scripted_replica import answers, answers_after


def children(gateway: GatewayProcess) -> list[psutil.Process]:
    assert gateway.process is not None
    return psutil.Process(gateway.process.pid).children()


async def fresh_request(gateway: GatewayProcess, path: str) -> tuple[int, str]:
    """On a connection of its own, so that any process may take it: status, and which did."""
    connector = aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(gateway.url + path, headers={"x-api-key": gateway.key}) as answer,
    ):
        return answer.status, answer.headers["x-request-id"].partition("x")[0]


async def every_process_takes_requests(gateway: GatewayProcess, processes: int) -> None:
    """The port answers as soon as the first process does: wait for the others too."""
    ready = set()

    async def all_do() -> bool:
        status, process = await fresh_request(gateway, "/readyz")
        if status == 200:
            ready.add(process)
        return len(ready) == processes

    await until(all_do, 30.0, "every process")


async def test_any_process_can_explain_what_another_one_served(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica(answers(0.01))
    gateway = await stack.gateway(stack.rows.tenant(), processes=2)

    await every_process_takes_requests(gateway, 2)
    served = await gateway.infer_many(80, 24, deadlineMs=20_000)
    assert {answer.status for answer in served} == {200}
    ids = [answer.json["requestId"] for answer in served]
    assert {request_id.partition("x")[0] for request_id in ids} == {"0", "1"}
    for request_id in ids[::8]:
        status, _ = await fresh_request(gateway, f"/v1/requests/{request_id}/explain")
        assert status == 200
    state = await gateway.state()
    assert len(state["gateways"]) == 2
    assert state["conservation"]["served"] == 80
    assert state["conservation"]["balanced"]
    metrics = (await gateway.get("/metrics")).body.decode()
    for process in ("0", "1"):
        assert f'halcyon_requests_total{{process="{process}",state="served"}}' in metrics


async def test_a_crashed_process_is_replaced_and_the_others_serve_on(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant(), processes=2)
    await every_process_takes_requests(gateway, 2)
    before = {child.pid for child in children(gateway)}
    victim = min(before)
    os.kill(victim, signal.SIGKILL)

    def replaced() -> bool:
        now = {child.pid for child in children(gateway)}
        return len(now) == 2 and victim not in now

    await until(replaced, 15.0, "a new process")

    async def both_answer() -> bool:
        return len((await gateway.state())["gateways"]) == 2

    await until(both_answer, 30.0, "both processes")
    assert (await fresh_request(gateway, "/v1/models"))[0] == 200


async def test_sigterm_answers_what_is_held_and_refuses_the_rest_politely(stack: Stack) -> None:
    stack.rows.model()
    release = asyncio.Event()
    replica = await stack.replica(answers_after(release))
    gateway = await stack.gateway(stack.rows.tenant(), grace_s=0.5)
    held = [asyncio.create_task(gateway.infer(deadlineMs=60_000)) for _ in range(6)]
    await until(lambda: replica.seen.running == 1)

    async def all_in() -> bool:
        return bool((await gateway.state())["conservation"]["arrived"] == 6)

    await until(all_in)
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)

    async def refuses() -> bool:
        answer = await gateway.infer(deadlineMs=300)  # it may still be taken in
        if answer.status != 503:
            return False
        assert answer.code == "no_capacity"
        assert int(answer.headers["retry-after"]) >= 1
        return True

    await until(refuses, 20.0, "a polite refusal")
    assert (await gateway.get("/readyz")).status == 503
    assert (await gateway.get("/healthz")).status == 200
    release.set()
    assert [answer.status for answer in await asyncio.gather(*held)] == [200] * 6
    assert await asyncio.wait_for(gateway.process.wait(), 20.0) == 0


async def test_several_processes_end_in_order_too(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica(answers(0.3))
    gateway = await stack.gateway(stack.rows.tenant(), processes=2)
    held = [asyncio.create_task(gateway.infer(deadlineMs=60_000)) for _ in range(12)]

    async def all_in() -> bool:
        return bool((await gateway.state())["conservation"]["arrived"] == 12)

    await until(all_in)
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)
    assert [answer.status for answer in await asyncio.gather(*held)] == [200] * 12
    assert await asyncio.wait_for(gateway.process.wait(), 20.0) == 0


async def test_told_to_stop_while_its_processes_still_start_it_ends_in_order(stack: Stack) -> None:
    stack.rows.model()
    gateway = stack.process(stack.rows.tenant(), processes=2)
    await stack.started(gateway, wait=False)
    await until(lambda: len(children(gateway)) == 2, 20.0, "two processes that start")
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(gateway.process.wait(), 30.0) == 0


async def test_children_leave_when_their_supervisor_is_killed(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant(), processes=2)
    orphans = children(gateway)
    assert gateway.process is not None
    os.kill(gateway.process.pid, signal.SIGKILL)
    await until(lambda: not any(orphan.is_running() for orphan in orphans), 15.0, "their end")


async def test_a_port_in_use_is_said_plainly(stack: Stack) -> None:
    stack.rows.model()
    key = stack.rows.tenant()
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", free_port())
    port = server.sockets[0].getsockname()[1]
    try:
        for processes in (1, 2):
            gateway = stack.process(key, port=port, processes=processes)
            await stack.started(gateway, wait=False)
            assert gateway.process is not None
            assert await asyncio.wait_for(gateway.process.wait(), 20.0) == 1
            assert f"cannot listen on 127.0.0.1:{port}" in gateway.log
            assert "--port" in gateway.log
    finally:
        server.close()
        await server.wait_closed()


async def test_a_gateway_killed_outright_costs_only_what_it_held(stack: Stack) -> None:
    stack.rows.model()
    release = asyncio.Event()
    replica = await stack.replica(answers_after(release), max_concurrency=2)
    key = stack.rows.tenant()
    doomed = await stack.gateway(key, state_dir=stack.directory / "doomed")
    other = await stack.gateway(key, state_dir=stack.directory / "other")
    lost = asyncio.create_task(doomed.infer(deadlineMs=60_000))
    await until(lambda: replica.seen.running == 1)
    kept = asyncio.create_task(other.infer(deadlineMs=60_000))
    await until(lambda: replica.seen.running == 2)
    assert doomed.process is not None
    doomed.process.kill()
    (broken,) = await asyncio.gather(lost, return_exceptions=True)
    assert isinstance(broken, aiohttp.ClientError)
    await until(lambda: replica.seen.cancelled == 1, 5.0, "the end of its work upstream")
    release.set()
    assert (await kept).status == 200
    assert (await other.infer()).status == 200
