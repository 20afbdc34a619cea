"""Shadows and testers at a real gateway: who is billed, and what is evidence."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess, until

ASKED = 20


@pytest_asyncio.fixture
async def stack(scratch_database: Any, tmp_path: Path) -> AsyncIterator[Stack]:
    scene = Stack(scratch_database.url, scratch_database.environment, tmp_path)
    async with scene.exits:
        yield scene


def served(stack: Stack) -> dict[tuple[str, str], int]:
    rows = stack.rows.execute(
        "SELECT version, arm, sum(served)::int FROM fleet_windowstat GROUP BY 1, 2"
    )
    return {(version, arm): count for version, arm, count in rows if count}


def billed(stack: Stack) -> tuple[int, int]:
    """Requests and prompt tokens."""
    ((requests, tokens),) = stack.rows.execute(
        "SELECT coalesce(sum(served), 0)::int, coalesce(sum(prompt_tokens), 0)::int"
        " FROM fleet_usageminute"
    )
    return requests, tokens


def split(stack: Stack, percent: float, *, shadow: bool) -> None:
    stack.rows.execute(
        "UPDATE fleet_trafficsplit SET canary_percent = %s, shadow = %s, salt = 'salt',"
        " canary_id = (SELECT id FROM fleet_modelversion WHERE name = 'v2')",
        percent,
        shadow,
    )


async def fleet(stack: Stack, percent: float, *, shadow: bool) -> tuple[GatewayProcess, Any]:
    stack.rows.model(versions=("v1", "v2"))
    await stack.replica()
    canary = await stack.replica(version="v2")
    split(stack, percent, shadow=shadow)
    stack.rows.tenant()
    return await stack.gateway(stack.rows.key("acme", may_choose_version=True)), canary


async def test_a_shadow_is_compared_in_the_evidence_and_never_billed(stack: Stack) -> None:
    gateway, canary = await fleet(stack, 100.0, shadow=True)
    answers = [await gateway.infer(sessionKey=f"s{n}", deadlineMs=20_000) for n in range(ASKED)]
    assert {answer.json["version"] for answer in answers} == {"v1"}
    prompt = sum(answer.json["usage"]["promptTokens"] for answer in answers)
    both = {("v1", "baseline"): ASKED, ("v2", "canary"): ASKED}
    await until(lambda: served(stack) == both, 30.0, f"both arms' windows, not {served(stack)}")
    await until(lambda: billed(stack)[0] >= ASKED, 30.0, "usage")
    assert canary.seen.items == ASKED
    assert billed(stack) == (ASKED, prompt)
    law = await gateway.settled()
    assert law["arrived"] == law["served"] == ASKED


async def test_a_testers_choice_is_billed_and_kept_out_of_the_evidence(stack: Stack) -> None:
    gateway, canary = await fleet(stack, 0.0, shadow=False)
    headers = {"x-api-key": gateway.key, "x-halcyon-version": "v2"}
    body = {"model": "m", "input": "hello", "deadlineMs": 20_000}
    for _ in range(ASKED):
        answer = await gateway.request("POST", "/v1/infer", json=body, headers=headers)
        assert (answer.status, answer.json["version"]) == (200, "v2")
    await gateway.infer(deadlineMs=20_000)
    # written in the order in which they closed: once this one is there, so are the others
    await until(lambda: ("v1", "baseline") in served(stack), 30.0, "the last window")
    assert canary.seen.items == ASKED
    assert served(stack) == {("v1", "baseline"): 1}
    await until(lambda: billed(stack)[0] == ASKED + 1, 30.0, "usage")
