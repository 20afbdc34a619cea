"""The official client in front of replicas of the batch protocol: embedders and others."""

import asyncio
import base64
import os
import re
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
from aiohttp import web

from tests.gateway.gateway_process import until
from tests.gateway.openai_scene import HELLO, Door
from tests.gateway.scripted_replica import Batch, ScriptedReplica, reply

pytestmark = pytest.mark.asyncio(loop_scope="module")

_numbers = count(1)


async def embeds(_: ScriptedReplica, batch: Batch, __: web.Request) -> web.StreamResponse:
    """Vectors that name their text: its length and its first letter."""

    def vector(text: str) -> list[float]:
        return [float(len(text)), float(ord(text[0]))]

    results = []
    for item in batch["items"]:
        texts = item["input"]
        many = isinstance(texts, list)
        output: Any = [vector(text) for text in texts] if many else vector(texts)
        results.append(
            {
                "requestId": item["requestId"],
                "output": output,
                "promptTokens": len(texts) if many else 1,
                "completionTokens": 0,
            }
        )
    return reply(batch, results, 1.0)


class Behind:
    """A model behind the shared gateway, and a client."""

    def __init__(self, door: Door, address: str, replica: ScriptedReplica | None = None) -> None:
        number = next(_numbers)
        self.door = door
        self.replica = replica
        self.model = f"batch{number}"
        door.rows.model(self.model)
        door.rows.replica(f"batch{number}", address, model=self.model, max_concurrency=2)
        self.client = openai.AsyncOpenAI(
            base_url=f"{door.gateway.url}/v1", api_key=door.gateway.key, max_retries=0
        )

    async def ready(self) -> None:
        async def known() -> bool:
            state = await self.door.gateway.state()
            found = [each for each in state["replicas"] if each["model"] == self.model]
            return bool(found) and found[0]["status"] == "healthy"

        await until(known, 15.0, "the replica's first probe")


@pytest_asyncio.fixture(loop_scope="module")
async def behind(door: Door) -> AsyncIterator[Behind]:
    async with ScriptedReplica() as replica:
        made = Behind(door, replica.address, replica)
        await made.ready()
        yield made
        await made.client.close()


@pytest.mark.parametrize("texts", ["one", ["one", "three", "fourteen"]])
@pytest.mark.parametrize("encoding", ["float", "base64", openai.NOT_GIVEN])
async def test_vectors_of_a_batch_replica_come_as_openai_sends_them(
    behind: Behind, texts: Any, encoding: Any
) -> None:
    assert behind.replica is not None
    behind.replica.behave = embeds
    answer = await behind.client.embeddings.create(
        model=behind.model, input=texts, encoding_format=encoding
    )
    wanted = [texts] if isinstance(texts, str) else texts
    assert [item.index for item in answer.data] == list(range(len(wanted)))
    for item, text in zip(answer.data, wanted, strict=True):
        vector: Any = item.embedding
        if encoding == "base64":
            vector = list(struct.unpack("<2f", base64.b64decode(vector)))
        assert vector == [float(len(text)), float(ord(text[0]))]
    assert answer.usage.prompt_tokens == len(wanted)


async def test_a_chat_with_a_batch_replica_is_a_completion(behind: Behind) -> None:
    answer = await behind.client.chat.completions.create(model=behind.model, messages=HELLO)
    assert answer.choices[0].message.content is not None
    assert answer.choices[0].message.content.startswith("echo:")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (10, 3)
    text = await behind.client.completions.create(model=behind.model, prompt="hi")
    assert text.choices[0].text.startswith("echo:")


@pytest.mark.parametrize("asked", [True, False])
async def test_a_stream_from_a_batch_replica_says_the_same_and_ends(
    behind: Behind, asked: bool
) -> None:
    whole = await behind.client.chat.completions.create(model=behind.model, messages=HELLO)
    stream = await behind.client.chat.completions.create(
        model=behind.model,
        messages=HELLO,
        stream=True,
        stream_options={"include_usage": asked},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usages) == int(asked)
    assert all(usage.completion_tokens == 3 for usage in usages)


async def test_a_model_that_does_not_embed_says_so(behind: Behind) -> None:
    with pytest.raises(openai.BadRequestError, match="does not embed"):
        await behind.client.embeddings.create(model=behind.model, input="x")


@asynccontextmanager
async def real_embedder(directory: Path) -> AsyncIterator[str]:
    """The project's own embedding replica as a process; its address."""
    clean = {name: value for name, value in os.environ.items() if "HALCYON" not in name}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fleet.replica", "--json-logs", "--no-register", "--port", "0"),
        *("--model", "minilm", "--version", "v1", "--runtime", "embedding"),
        *("--state-dir", str(directory)),
        stderr=asyncio.subprocess.PIPE,
        env=clean,
    )
    assert process.stderr is not None
    said: list[str] = []
    try:
        async with asyncio.timeout(60.0):
            address = None
            while address is None:
                line = (await process.stderr.readline()).decode()
                assert line, f"the replica ended: {said}"
                said.append(line)
                if '"ready"' in line:
                    address = re.search(r'"address": ?"([^"]+)"', line)
        yield address[1]
    finally:
        process.terminate()
        await process.communicate()


async def test_the_projects_own_embedding_replica_serves_the_official_client(
    door: Door, tmp_path: Path
) -> None:
    async with real_embedder(tmp_path) as address:
        behind = Behind(door, address)
        await behind.ready()
        texts = ["a kingfisher on a branch", "the halcyon bird sits on a twig", "quarterly taxes"]
        floats = await behind.client.embeddings.create(
            model=behind.model, input=texts, encoding_format="float"
        )
        packed = await behind.client.embeddings.create(model=behind.model, input=texts)
        single = await behind.client.embeddings.create(model=behind.model, input=texts[0])
        await behind.client.close()
    vectors = [item.embedding for item in floats.data]
    assert [len(vector) for vector in vectors] == [384] * 3
    for ours, theirs in zip(vectors, packed.data, strict=True):
        assert theirs.embedding == pytest.approx(ours, abs=1e-4)
    assert single.data[0].embedding == pytest.approx(vectors[0], abs=2e-2)

    def alike(one: int, other: int) -> float:
        return sum(a * b for a, b in zip(vectors[one], vectors[other], strict=True))

    assert alike(0, 0) == pytest.approx(1.0, abs=1e-3)
    assert alike(0, 1) > alike(0, 2)
    assert floats.usage.prompt_tokens > 3
