"""Who runs first, and who may ride together."""

import asyncio

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import Answer, GatewayProcess, until
from tests.gateway.scripted_replica import answers, answers_after


async def queued(gateway: GatewayProcess, count: int) -> None:
    async def waiting() -> bool:
        return bool((await gateway.state())["conservation"]["queued"] == count)

    await until(waiting, 20.0, f"{count} in the queue")


async def test_the_tighter_deadline_runs_first_though_it_came_later(stack: Stack) -> None:
    stack.rows.model()
    gate = asyncio.Event()
    replica = await stack.replica(answers(0.02), max_batch_size=1)
    gateway = await stack.gateway(stack.rows.tenant())
    await gateway.infer_many(40, 4, deadlineMs=20_000)  # its speed is known
    replica.behave = answers_after(gate)
    replica.seen.inputs.clear()
    tasks = [asyncio.create_task(gateway.infer(input="blocks", deadlineMs=60_000))]
    await until(lambda: replica.seen.running == 1)
    for count, (name, deadline_ms) in enumerate((("patient", 60_000), ("urgent", 20_000)), 1):
        tasks.append(asyncio.create_task(gateway.infer(input=name, deadlineMs=deadline_ms)))
        await queued(gateway, count)
    gate.set()
    assert {answer.status for answer in await asyncio.gather(*tasks)} == {200}
    assert replica.seen.inputs == ["blocks", "urgent", "patient"]


async def lists_ride(stack: Stack, max_batch_size: int, sizes: list[int]) -> list[list[int]]:
    """Send lists of so many texts while the replica is busy. Lengths of lists, by batch."""
    stack.rows.model()
    gate = asyncio.Event()
    replica = await stack.replica(answers(0.02), max_batch_size=max_batch_size)
    gateway = await stack.gateway(stack.rows.tenant())
    await gateway.infer_many(200, 32, deadlineMs=20_000)  # a batch costs little more than one
    replica.behave = answers_after(gate)
    blocker = asyncio.create_task(gateway.infer(deadlineMs=60_000))
    await until(lambda: replica.seen.running == 1)
    before, seen = len(replica.seen.batches), len(replica.seen.inputs)
    tasks: list[asyncio.Task[Answer]] = []
    for size in sizes:
        texts = ["text"] * size if size > 1 else "text"
        tasks.append(asyncio.create_task(gateway.infer(input=texts, deadlineMs=60_000)))
    await queued(gateway, len(sizes))
    gate.set()
    answered = await asyncio.gather(blocker, *tasks)
    assert {answer.status for answer in answered} == {200}
    inputs = iter(replica.seen.inputs[seen:])
    return [
        [len(each) if isinstance(each := next(inputs), list) else 1 for _ in batch]
        for batch in replica.seen.batches[before:]
    ]


async def test_two_lists_that_are_too_many_together_do_not_share_a_batch(stack: Stack) -> None:
    assert await lists_ride(stack, 32, [20, 20]) == [[20], [20]]


async def test_lists_that_fit_together_do(stack: Stack) -> None:
    assert sorted(map(sorted, await lists_ride(stack, 32, [10, 12, 5]))) == [[5, 10, 12]]


async def test_a_batch_limit_of_one_serves_one_at_a_time(stack: Stack) -> None:
    assert await lists_ride(stack, 1, [1, 1, 1]) == [[1], [1], [1]]
