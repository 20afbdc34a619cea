"""What a request costs its tenant: the same tokens, however the answer was asked for."""

from typing import Any

import pytest

from tests.gateway.gateway_process import until
from tests.gateway.openai_scene import HELLO, Scene

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def read(answer: Any) -> None:
    """Take a whole stream."""
    async for _ in answer:
        pass


async def test_the_same_tokens_are_charged_streamed_or_not_with_usage_asked_for_or_not(
    scene: Scene,
) -> None:
    charges = []
    before = (0, 0, 0)
    for more in (
        {},
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream": True, "stream_options": {"include_usage": False}},
    ):
        answer = await scene.chat(max_tokens=6, **more)
        if more:
            await read(answer)
        after = (await scene.charged(before[2] + 6))[0]
        charges.append(tuple(now - then for now, then in zip(after, before, strict=True)))
        before = after
    assert {charge[2] for charge in charges} == {6}
    assert {charge[0] for charge in charges} == {1}
    prompts = [charge[1] for charge in charges]
    assert max(prompts) <= 1.01 * min(prompts) + 1


async def test_leaving_after_five_chunks_charges_the_prompt_and_five(scene: Scene) -> None:
    await scene.chat(max_tokens=1)
    whole = (await scene.charged(1))[0]
    scene.behave(tokens=50, token_delay_ms=150)
    stream = await scene.chat(stream=True)
    pieces = 0
    async for chunk in stream:
        pieces += bool(chunk.choices and chunk.choices[0].delta.content)
        if pieces == 5:
            break
    await stream.close()
    await until(lambda: scene.active == 0, 1.0, "a closed upstream")
    requests, prompt, completion = (await scene.charged(6))[0]
    assert completion - whole[2] == 5
    assert prompt - whole[1] == pytest.approx(whole[1], abs=1)
    assert requests == 2


async def test_a_request_that_the_model_rejects_is_charged_nothing(scene: Scene) -> None:
    scene.behave(mode="reject")
    assert (await scene.post()).status == 400
    scene.behave()
    await scene.chat(max_tokens=3)
    assert (await scene.charged(3))[0][2] == 3


async def test_an_idempotency_key_is_charged_once(scene: Scene) -> None:
    scene.behave(delay_ms=100)
    body = {"model": scene.model, "messages": HELLO, "max_tokens": 4}
    headers = {"idempotency-key": "once"}
    first = await scene.post(headers=headers, **body)
    second = await scene.post(headers=headers, **body)
    assert first.body == second.body
    await scene.chat(max_tokens=2)
    assert (await scene.charged(6))[0][2] == 6
    assert scene.attempts == 2


async def test_a_quota_counts_the_tokens_that_came_and_not_those_allowed(scene: Scene) -> None:
    """Thirty answers of 8 tokens fit a burst that what they allow would empty twice over."""
    scene.rows.execute(
        "UPDATE fleet_tenant SET tokens_per_minute = 1, tokens_burst = 1500 WHERE name = %s",
        scene.tenant,
    )

    async def in_force() -> bool:
        answer = await scene.post(max_tokens=5000)
        return answer.status == 400

    async def served() -> bool:
        """At once, or after the gateways have shared the rest of the burst anew."""
        return (await scene.post(max_tokens=100)).status == 200

    await until(in_force, 5.0, "the quota in the gateway")
    for number in range(30):
        await until(served, 10.0, f"answer {number}")
