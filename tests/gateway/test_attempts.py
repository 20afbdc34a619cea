"""What happens between a request and its answer: connections that end, waits, second tries."""

import asyncio
import itertools
from typing import Any

from aiohttp import web

from tests.gateway.conftest import Stack
from tests.gateway.scripted_replica import (
    Batch,
    Behaviour,
    ScriptedReplica,
    answers,
    reply,
    success,
)

LANES = 4  # models side by side, so that the pauses do not add up


async def test_connections_that_the_replica_closes_between_requests_cost_no_error(
    stack: Stack,
) -> None:
    for lane in range(LANES):
        stack.rows.model(f"m{lane}")
        await stack.replica(keep_alive_s=0.1, model=f"m{lane}")
    gateway = await stack.gateway(stack.rows.tenant())

    async def client(lane: int) -> None:
        pauses = itertools.cycle((0.02, 0.097, 0.099, 0.101, 0.103))  # around the keep-alive
        for _ in range(50):
            answer = await gateway.infer(model=f"m{lane}", deadlineMs=20_000)
            assert answer.status == 200, answer.json
            await asyncio.sleep(next(pauses))

    await asyncio.gather(*(client(lane) for lane in range(LANES)))
    for replica in stack.replicas:
        assert replica.seen.connections >= 5, "its connections were never closed"
        assert replica.seen.items == 50, "a request was sent twice"


def first_and_second(first: Behaviour, second: Behaviour) -> Behaviour:
    """One behaviour for all replicas: whoever gets the request first, and who gets it then."""
    turns = itertools.count()

    async def behave(
        replica: ScriptedReplica, batch: Batch, request: web.Request
    ) -> web.StreamResponse:
        turn = first if next(turns) == 0 else second
        return await turn(replica, batch, request)

    return behave


async def hedged(stack: Stack, primary_status: int) -> tuple[Any, list[ScriptedReplica]]:
    """A request whose primary dawdles until its hedge has failed, and then ends as told."""
    stack.rows.model()
    replicas = [await stack.replica(answers(0.01)) for _ in range(2)]
    gateway = await stack.gateway(stack.rows.tenant())
    await gateway.infer_many(300, 1, input="always the same size", deadlineMs=20_000)
    hedge_failed = asyncio.Event()

    async def dawdles(_: ScriptedReplica, batch: Batch, __: web.Request) -> web.StreamResponse:
        async with asyncio.timeout(20.0):
            await hedge_failed.wait()
        await asyncio.sleep(0.05)  # the failure arrives before this answer does
        if primary_status != 200:
            return web.json_response({"error": {"message": "primary"}}, status=primary_status)
        return reply(batch, [success(item) for item in batch["items"]], 10.0)

    async def fails_fast(_: ScriptedReplica, __: Batch, ___: web.Request) -> web.StreamResponse:
        hedge_failed.set()
        return web.json_response({"error": {"message": "hedge"}}, status=500)

    behave = first_and_second(dawdles, fails_fast)
    for replica in replicas:
        replica.seen.batches.clear()
        replica.behave = behave
    return await gateway.infer(input="always the same size", deadlineMs=30_000), replicas


async def test_a_hedge_that_fails_fast_does_not_spoil_its_primary(stack: Stack) -> None:
    answer, replicas = await hedged(stack, 200)
    assert answer.status == 200, answer.json
    assert [len(replica.seen.batches) for replica in replicas] == [1, 1]


async def test_when_primary_and_hedge_fail_the_primarys_error_is_told_and_nobody_asked_twice(
    stack: Stack,
) -> None:
    answer, replicas = await hedged(stack, 500)
    assert answer.code == "upstream_failure"
    assert "primary" in answer.json["error"]["message"]
    assert [len(replica.seen.batches) for replica in replicas] == [1, 1]
