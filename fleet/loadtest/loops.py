"""Closed loop: N clients, each asks again when it has its answer. Open loop: arrivals."""

import asyncio
import random
import time
from collections.abc import Callable

from fleet.loadtest.pattern import Pattern
from fleet.loadtest.sender import Ending, Sender
from fleet.loadtest.workload import Workload

PAUSE_AFTER_NO_ANSWER_S = 0.1
MAX_IN_FLIGHT = 20_000

Record = Callable[[Ending], None]


async def closed_loop(
    sender: Sender, workload: Workload, record: Record, *, clients: int, duration_s: float
) -> None:
    """Keep `clients` requests in flight for `duration_s`; those in flight may finish."""
    origin_s = time.monotonic()
    end_s = origin_s + duration_s

    async def client() -> None:
        while (now_s := time.monotonic()) < end_s:
            ending = await sender.send(workload.next(), now_s, origin_s)
            record(ending)
            if ending.code == "no_answer":
                await asyncio.sleep(PAUSE_AFTER_NO_ANSWER_S)

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())


async def open_loop(
    sender: Sender, workload: Workload, record: Record, pattern: Pattern, *, seed: int = 1
) -> None:
    """Send at the pattern's Poisson arrivals, whatever came of the requests before.

    Cancelled, it takes what is in flight along: that was cut off, it did not fail.
    """
    origin_s = time.monotonic()
    flying: set[asyncio.Task[None]] = set()

    async def one(due_s: float) -> None:
        record(await sender.send(workload.next(), due_s, origin_s))

    try:
        for at_s in pattern.arrivals(random.Random(seed)):
            due_s = origin_s + at_s
            if (wait_s := due_s - time.monotonic()) > 0:
                await asyncio.sleep(wait_s)
            if len(flying) >= MAX_IN_FLIGHT:
                await asyncio.wait(flying, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(one(due_s))
            flying.add(task)
            task.add_done_callback(flying.discard)
        if flying:
            await asyncio.wait(flying)
    finally:
        for task in flying:
            task.cancel()
