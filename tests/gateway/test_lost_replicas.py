"""Replicas that are gone, or answer only to fail: what clients, and operators, then see."""

import asyncio
import signal
import sys
from collections import Counter
from typing import Any

import aiohttp

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess, free_port, until
from tests.gateway.scripted_replica import answers, fails


async def real_replica(stack: Stack, replica_id: str) -> asyncio.subprocess.Process:
    """The project's own replica, as a process, written into the fleet once it serves."""
    port = free_port()
    command = [sys.executable, "-m", "fleet.replica", "--no-register", "--port", str(port)]
    command += ["--model", "m", "--version", "v1", "--id", replica_id, "--runtime", "simulated"]
    process = await asyncio.create_subprocess_exec(
        *command, env=stack.environment, stderr=asyncio.subprocess.DEVNULL
    )
    stack.exits.push_async_callback(ended, process)
    url = f"http://127.0.0.1:{port}"

    async def ready() -> bool:
        try:
            async with aiohttp.ClientSession() as http, http.get(f"{url}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    await until(ready, 60.0, f"the replica {replica_id}")
    stack.rows.replica(replica_id, url)
    return process


async def ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def views(gateway: GatewayProcess) -> dict[str, Any]:
    return {view["replicaId"]: view for view in (await gateway.state())["replicas"]}


async def test_a_replica_killed_outright_is_down_its_breaker_open_and_the_feed_says_so(
    stack: Stack,
) -> None:
    stack.rows.model()
    victim, _ = await asyncio.gather(real_replica(stack, "r1"), real_replica(stack, "r2"))
    gateway = await stack.gateway(stack.rows.tenant())
    running = asyncio.create_task(gateway.infer_many(300, 16, deadlineMs=20_000))

    async def both_serve() -> bool:
        return all(view["batches"] >= 3 for view in (await views(gateway)).values())

    await until(both_serve, 20.0, "batches at both")
    victim.send_signal(signal.SIGKILL)
    assert Counter(answer.status for answer in await running) == {200: 300}

    async def told() -> bool:
        await gateway.infer_many(8, 8, deadlineMs=20_000)
        state = await gateway.state()
        (lost,) = [view for view in state["replicas"] if view["replicaId"] == "r1"]
        said = {event["subject"] for event in state["events"] if event["kind"] == "breaker"}
        return bool(
            lost["status"] == "down" and lost["breaker"]["state"] != "closed" and "r1" in said
        )

    await until(told, 30.0, "a replica that is down, its open breaker and a line of the feed")


async def test_one_of_ten_that_fails_at_once_gets_next_to_nothing_and_costs_nobody(
    stack: Stack,
) -> None:
    stack.rows.model()
    hole = await stack.replica(fails(500, delay_s=0.002))
    for _ in range(9):
        await stack.replica(answers(0.02))
    gateway = await stack.gateway(stack.rows.tenant())
    first = await gateway.infer_many(400, 16, deadlineMs=10_000)
    assert sum(answer.status != 200 for answer in first) < 4  # under one in a hundred
    before = hole.seen.items
    then = await gateway.infer_many(1_600, 16, deadlineMs=10_000)
    assert Counter(answer.status for answer in then) == {200: 1_600}
    assert hole.seen.items - before <= 8, "a twohundredth of the traffic"
    assert hole.seen.items <= 30
    if len(hole.seen.batches) >= 5:  # five in a row trip it; fewer: its score kept it out
        assert (await views(gateway))["r1"]["breaker"]["trips"] > 0


async def test_when_every_replica_is_down_the_refusal_comes_at_once_and_says_when_to_return(
    stack: Stack,
) -> None:
    stack.rows.model()
    for _ in range(2):
        await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    assert (await gateway.infer()).status == 200
    for replica in stack.replicas:
        await replica.stop()

    async def all_down() -> bool:
        return {view["status"] for view in (await views(gateway)).values()} == {"down"}

    await until(all_down, 30.0, "the gateway's knowledge")
    await refused_at_once(gateway)
    await stack.replicas[0].start()

    async def serves() -> bool:
        return (await gateway.infer(deadlineMs=10_000)).status == 200

    await until(serves, 20.0, "an answer from the one that came back")


async def test_every_replica_draining_is_no_capacity_at_once(stack: Stack) -> None:
    stack.rows.model()
    for number in range(2):
        await stack.replica(replica_id=f"d{number}", draining=True)
    await refused_at_once(await stack.gateway(stack.rows.tenant()))


async def test_no_replica_is_no_capacity_at_once_with_a_time_to_come_back(stack: Stack) -> None:
    stack.rows.model()
    await refused_at_once(await stack.gateway(stack.rows.tenant()))


async def refused_at_once(gateway: GatewayProcess) -> None:
    """Long before its deadline, with the time to come back in the header and in the body."""
    answer = await gateway.infer(deadlineMs=60_000)
    assert (answer.status, answer.code) == (503, "no_capacity")
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json["error"]["retryAfterMs"] > 0
    assert answer.took_s < 10.0


async def test_a_replica_that_says_not_ready_gets_nothing_until_it_is(stack: Stack) -> None:
    stack.rows.model()
    loading = await stack.replica()
    loading.ready = False
    await stack.replica(replica_id="warm")
    gateway = await stack.gateway(stack.rows.tenant())
    await gateway.infer_many(40, 8, deadlineMs=10_000)
    assert loading.seen.items == 0
    loading.ready = True

    async def carries() -> bool:
        await gateway.infer_many(16, 8, deadlineMs=10_000)
        return loading.seen.items > 0

    await until(carries, 15.0, "traffic at the replica that became ready")
