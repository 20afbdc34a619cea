"""Aborting, with no Celery anywhere, at two real gateways."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import Answer, GatewayProcess, until

ROOT = Path(__file__).resolve().parents[2]
NEVER_S = 3600.0


@pytest_asyncio.fixture
async def stack(scratch_database: Any, tmp_path: Path) -> AsyncIterator[Stack]:
    scene = Stack(scratch_database.url, scratch_database.environment, tmp_path)
    async with scene.exits:
        yield scene


async def rollout(stack: Stack, *words: str) -> None:
    """`manage.py rollout ...` as an operator runs it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "manage.py"), "rollout", *words, env=stack.environment
    )
    assert await process.wait() == 0


async def by_session(gateway: GatewayProcess, number: int) -> Answer:
    return await gateway.infer(sessionKey=f"s{number}", deadlineMs=20_000)


async def test_after_an_abort_no_gateway_sends_the_canary_anything(stack: Stack) -> None:
    stack.rows.model(versions=("v1", "v2"))
    await stack.replica()
    canary = await stack.replica(version="v2")
    key = stack.rows.tenant()
    # nobody polls here: only the commit's own notice can reach a gateway
    gateways = await asyncio.gather(
        *(stack.gateway(key, state_dir=stack.directory / f"g{n}", poll_s=NEVER_S) for n in range(2))
    )
    await rollout(stack, "start", "m", "v2", "--steps", "90,100", "--reason", "try it")

    async def on_canary(gateway: GatewayProcess) -> bool:
        answers = await asyncio.gather(*(by_session(gateway, n) for n in range(20)))
        return any(answer.json["version"] == "v2" for answer in answers)

    for gateway in gateways:
        await until(lambda g=gateway: on_canary(g), 20.0, "the canary's traffic")
    await rollout(stack, "abort", "m", "--reason", "enough")

    async def off_canary(gateway: GatewayProcess) -> bool:
        return not await on_canary(gateway)

    for gateway in gateways:
        await until(lambda g=gateway: off_canary(g), 20.0, "the canary's end")
    seen = canary.seen.items
    for gateway in gateways:
        for start in range(0, 200, 20):
            again = await asyncio.gather(*(by_session(gateway, start + n) for n in range(20)))
            assert {answer.json["version"] for answer in again} == {"v1"}
    assert canary.seen.items == seen
