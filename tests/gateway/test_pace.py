"""When the gateway's parts look again: in step, when something is due, or when nudged."""

import asyncio
import time

import pytest

from fleet.gateway.pace import Rest

PERIOD_S = 0.02
FAR_S = 3600.0
PATIENCE_S = 10.0


async def test_who_rests_wakes_when_what_it_waits_for_is_due_at_that_step() -> None:
    rest = Rest(PERIOD_S)
    for ahead in (1, 2, 5):
        due_s = time.monotonic() + ahead * PERIOD_S
        await rest.until(due_s)
        assert rest.horizon_s() >= due_s


async def test_a_nudge_ends_a_long_rest() -> None:
    rest = Rest(PERIOD_S)
    asyncio.get_running_loop().call_soon(rest.nudge)
    async with asyncio.timeout(PATIENCE_S):
        await rest.until(time.monotonic() + FAR_S)


async def test_a_nudge_while_nobody_rests_is_not_lost_and_counts_once() -> None:
    rest = Rest(PERIOD_S)
    rest.nudge()
    async with asyncio.timeout(PATIENCE_S):
        await rest.until(time.monotonic() + FAR_S)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3 * PERIOD_S):
            await rest.until(time.monotonic() + FAR_S)


async def test_what_is_overdue_is_looked_at_once_a_step_and_no_oftener() -> None:
    rest = Rest(PERIOD_S)
    began_s = time.monotonic()
    for _ in range(10):
        await rest.until(0.0)
    assert time.monotonic() - began_s >= 8 * PERIOD_S
