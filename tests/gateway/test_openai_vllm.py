"""The official client, sync and async, through the gateway to a real vLLM.

HALCYON_TEST_VLLM_URL names the server (`make test-vllm`); its model must be called `tiny` and
answer with as many tokens as it is allowed to.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.gateway.gateway_process import until
from tests.gateway.openai_scene import Door

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]

MODEL = "tiny"
HELLO: Any = [{"role": "user", "content": "hello there"}]
Client = openai.AsyncOpenAI


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(door: Door) -> AsyncIterator[Client]:
    door.rows.model(MODEL)
    door.rows.replica(
        "vllm",
        os.environ["HALCYON_TEST_VLLM_URL"],
        model=MODEL,
        protocol="openai",
        max_concurrency=64,
    )

    async def healthy() -> bool:
        replicas = (await door.gateway.state())["replicas"]
        return any(r["replicaId"] == "vllm" and r["status"] == "healthy" for r in replicas)

    await until(healthy, 30.0, "a healthy vLLM")
    async with Client(
        base_url=f"{door.gateway.url}/v1", api_key=door.gateway.key, max_retries=0
    ) as opened:
        yield opened


async def test_a_chat_and_its_stream_say_the_same(client: Client) -> None:
    common: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 24, "temperature": 0}
    whole = await client.chat.completions.create(**common)
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 24
    stream = await client.chat.completions.create(
        **common, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 24


async def test_usage_that_nobody_asked_for_is_not_shown(client: Client) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=8, stream=True
    )
    chunks = [chunk async for chunk in stream]
    assert all(chunk.choices for chunk in chunks)
    assert not any(chunk.usage for chunk in chunks)


async def test_a_completion_its_stream_and_several_choices(client: Client) -> None:
    whole = await client.completions.create(
        model=MODEL, prompt="once", max_tokens=12, temperature=0
    )
    stream = await client.completions.create(
        model=MODEL, prompt="once", max_tokens=12, temperature=0, stream=True
    )
    text = "".join([chunk.choices[0].text async for chunk in stream])
    assert text == whole.choices[0].text
    several = await client.completions.create(model=MODEL, prompt="once", max_tokens=4, n=3)
    assert len(several.choices) == 3


async def test_the_sync_client_works_unmodified(door: Door, client: Client) -> None:
    def ask() -> tuple[str | None, str, list[str]]:
        with openai.OpenAI(
            base_url=f"{door.gateway.url}/v1", api_key=door.gateway.key, max_retries=0
        ) as sync:
            common: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 10, "temperature": 0}
            whole = sync.chat.completions.create(**common)
            pieces = [
                chunk.choices[0].delta.content or ""
                for chunk in sync.chat.completions.create(**common, stream=True)
            ]
            return (
                whole.choices[0].message.content,
                "".join(pieces),
                [model.id for model in sync.models.list()],
            )

    whole, streamed, models = await asyncio.to_thread(ask)
    assert whole == streamed
    assert MODEL in models


async def test_parameters_of_vllm_pass_through_and_its_refusals_come_back(client: Client) -> None:
    answer = await client.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        max_tokens=6,
        logprobs=True,
        top_logprobs=2,
        extra_body={"top_k": 5, "min_tokens": 6},
    )
    assert answer.choices[0].logprobs is not None
    with pytest.raises(openai.BadRequestError) as too_long:
        await client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=100_000)
    assert "max_tokens" in str(too_long.value) or "context" in str(too_long.value)
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model=MODEL, messages=HELLO, temperature=-1)
    assert (await client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2)).choices


async def test_leaving_stops_the_work_in_vllm(door: Door, client: Client) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=1500, stream=True
    )
    async for _ in stream:
        break
    await stream.close()

    async def idle() -> bool:
        page = await door.gateway.session.get(  # type: ignore[union-attr]
            f"{os.environ['HALCYON_TEST_VLLM_URL']}/metrics"
        )
        lines = (await page.text()).splitlines()
        running = [line for line in lines if line.startswith("vllm:num_requests_running{")]
        return bool(running) and all(float(line.split()[-1]) == 0.0 for line in running)

    await until(idle, 5.0, "an idle vLLM")


async def test_thirty_two_clients_at_once_are_all_served_and_the_pages_are_read(
    door: Door, client: Client, record_property: Any
) -> None:
    first_ms: list[float] = []

    async def one(number: int) -> int:
        question: Any = [{"role": "user", "content": f"question number {number}"}]
        began = time.monotonic()
        stream = await client.chat.completions.create(
            model=MODEL, messages=question, max_tokens=32, stream=True
        )
        tokens = 0
        async for chunk in stream:
            if tokens == 0:
                first_ms.append((time.monotonic() - began) * 1000.0)
            tokens += bool(chunk.choices and chunk.choices[0].delta.content)
        return tokens

    began = time.monotonic()
    tokens = await asyncio.gather(*(one(number) for number in range(96)))
    took_s = time.monotonic() - began
    assert len(tokens) == 96
    assert min(tokens) > 0
    record_property("requests_per_s", 96 / took_s)
    record_property("first_token_p50_ms", sorted(first_ms)[48])
    print(f"96 streams: {96 / took_s:.1f}/s, first token p50 {sorted(first_ms)[48]:.0f} ms")

    async def page_read() -> bool:
        replicas = (await door.gateway.state())["replicas"]
        return any(r["replicaId"] == "vllm" and "memory" in r["health"] for r in replicas)

    await until(page_read, 10.0, "vLLM's own figures")
