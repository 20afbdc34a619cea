"""The official client, unmodified, against servers that speak the protocol and fail as told."""

import asyncio
import base64
import contextlib
import struct
from typing import Any

import openai
import pytest

from tests.gateway.gateway_process import until
from tests.gateway.openai_scene import HELLO, Scene

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_chat_is_answered_with_its_usage(scene: Scene) -> None:
    answer = await scene.client.chat.completions.create(
        model=scene.model, messages=HELLO, max_tokens=5
    )
    assert answer.choices[0].message.content in ("a a a a a", "b b b b b")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5


async def test_a_completion_and_its_stream_say_the_same(scene: Scene) -> None:
    scene.upstreams[1].behave(mode="fail")
    whole = await scene.client.completions.create(model=scene.model, prompt="hi", max_tokens=4)
    stream = await scene.client.completions.create(
        model=scene.model, prompt="hi", max_tokens=4, stream=True
    )
    pieces = [chunk.choices[0].text async for chunk in stream]
    assert "".join(pieces).strip() == whole.choices[0].text


async def test_unknown_parameters_pass_through(scene: Scene) -> None:
    scene.upstreams[1].behave(mode="fail")
    unknown = {"top_k": 7, "guided_json": {"type": "object"}, "x": [1.5, None, "\u00e9"]}
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
        for stream in (False, True)[: 1 if path == "/v1/embeddings" else 2]:
            words: dict[str, Any] = {
                "/v1/chat/completions": {"messages": HELLO, "temperature": 0.5, "stream": stream},
                "/v1/completions": {"prompt": ["a", "b"], "stream": stream},
                "/v1/embeddings": {"input": [[1, 2], [3]], "dimensions": 2},
            }[path]
            answer = await scene.gateway.request(
                "POST",
                path,
                json={"model": scene.model, **words, **unknown},
                headers={"authorization": f"Bearer {scene.key}"},
            )
            assert answer.status == 200
            asked = {"stream_options": {"include_usage": True}} if stream else {}
            assert scene.upstreams[0].last == {"model": scene.model, **words, **unknown, **asked}


async def test_the_sync_client_works_unmodified(scene: Scene) -> None:
    scene.upstreams[1].behave(mode="fail")

    def ask() -> None:
        with openai.OpenAI(
            base_url=f"{scene.gateway.url}/v1", api_key=scene.key, max_retries=0
        ) as client:
            common: Any = {"model": scene.model, "messages": HELLO, "max_tokens": 3}
            whole = client.chat.completions.create(**common)
            assert whole.choices[0].message.content == "a a a"
            chunks = list(client.chat.completions.create(**common, stream=True))
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            assert text.strip() == "a a a"
            text = client.completions.create(model=scene.model, prompt="x", max_tokens=2)
            assert text.choices[0].text == "a a"
            assert client.embeddings.create(model=scene.model, input="x").data[0].embedding
            assert scene.model in [model.id for model in client.models.list()]

    await asyncio.to_thread(ask)


@pytest.mark.parametrize("asked", [True, False])
async def test_usage_is_shown_to_those_who_ask_and_counted_for_all(
    scene: Scene, asked: bool
) -> None:
    options: Any = {"include_usage": True} if asked else openai.NOT_GIVEN
    stream = await scene.client.chat.completions.create(
        model=scene.model, messages=HELLO, max_tokens=6, stream=True, stream_options=options
    )
    chunks = [chunk async for chunk in stream]
    assert any(chunk.usage for chunk in chunks) is asked
    assert all(chunk.choices or chunk.usage for chunk in chunks)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert len(text.split()) == 6


@pytest.mark.parametrize("encoding", ["float", "base64", openai.NOT_GIVEN])
@pytest.mark.parametrize("texts", ["one", ["one", "two"], [[1, 2, 3], [4]]])
async def test_embeddings_come_as_floats_and_as_base64(
    scene: Scene, texts: Any, encoding: Any
) -> None:
    answer = await scene.client.embeddings.create(
        model=scene.model, input=texts, encoding_format=encoding
    )
    assert len(answer.data) == (1 if texts == "one" else 2)
    for item in answer.data:
        vector: Any = item.embedding
        if encoding == "base64":  # asked for by name, the client leaves it as it came
            vector = list(struct.unpack("<2f", base64.b64decode(vector)))
        assert vector == [1.0, 0.0]


async def test_models_are_listed(scene: Scene) -> None:
    models = await scene.client.models.list()
    assert scene.model in [model.id for model in models.data]


async def test_one_model_is_retrieved_by_its_name_slashes_and_all(scene: Scene) -> None:
    scene.rows.model("meta/tiny-1b:q8")
    found = await scene.client.models.retrieve(scene.model)
    assert (found.id, found.object) == (scene.model, "model")

    async def known() -> bool:
        with contextlib.suppress(openai.NotFoundError):
            return (await scene.client.models.retrieve("meta/tiny-1b:q8")).id == "meta/tiny-1b:q8"
        return False

    await until(known, 10.0, "the new model")
    with pytest.raises(openai.NotFoundError) as missing:
        await scene.client.models.retrieve("nope")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError) as bad_key:
        await scene.client.with_options(api_key="hk_wrong").models.list()
    assert bad_key.value.code == "invalid_api_key"


async def test_a_bad_key_an_unknown_model_and_a_bad_body_raise_what_openai_raises(
    scene: Scene,
) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await scene.client.chat.completions.create(model="nope", messages=HELLO)
    assert missing.value.code == "model_not_found"
    stranger = scene.client.with_options(api_key="hk_wrong")
    with pytest.raises(openai.AuthenticationError) as bad_key:
        await stranger.chat.completions.create(model=scene.model, messages=HELLO)
    assert bad_key.value.code == "invalid_api_key"
    with pytest.raises(openai.BadRequestError) as bad:
        await scene.client.chat.completions.create(model=scene.model, messages=[])
    assert bad.value.param == "messages"


async def test_quota_conflict_permission_and_size_raise_what_openai_raises(scene: Scene) -> None:
    rows, model = scene.rows, scene.model
    poor = scene.client.with_options(
        api_key=rows.tenant(f"poor-{model}", requests_per_minute=1, requests_burst=1)
    )

    async def known() -> bool:
        try:
            await poor.chat.completions.create(model=model, messages=HELLO)
        except openai.AuthenticationError:
            return False
        return True

    await until(known, 5.0, "the new tenant's key")
    with pytest.raises(openai.RateLimitError) as too_many:
        await poor.chat.completions.create(model=model, messages=HELLO)
    assert too_many.value.code == "rate_limit_exceeded"
    # a minute for each gateway that shares the quota, and other tests run gateways meanwhile
    assert int(too_many.value.response.headers["retry-after"]) >= 1
    key = {"idempotency-key": "one"}
    await scene.chat(max_tokens=1, extra_headers=key)
    with pytest.raises(openai.ConflictError):
        await scene.chat(max_tokens=2, extra_headers=key)
    with pytest.raises(openai.PermissionDeniedError):
        await scene.chat(extra_headers={"x-halcyon-version": "v1"})
    with pytest.raises(openai.APIStatusError) as too_large:
        await scene.chat(user="x" * 20_000_000)
    assert too_large.value.status_code == 413
    assert too_large.value.type == "invalid_request_error"


async def test_sixty_bad_requests_get_their_400_and_the_next_sixty_good_ones_are_served(
    scene: Scene,
) -> None:
    scene.behave(mode="reject")
    for _ in range(60):
        with pytest.raises(openai.BadRequestError, match="bad request, says the model"):
            await scene.client.chat.completions.create(model=scene.model, messages=HELLO)
    scene.behave()
    for _ in range(60):
        assert (
            await scene.client.chat.completions.create(model=scene.model, messages=HELLO)
        ).choices


async def test_an_upstream_that_fails_in_two_milliseconds_costs_no_client_an_error(
    scene: Scene,
) -> None:
    scene.upstreams[0].behave(mode="fail", delay_ms=2)
    scene.upstreams[1].behave(delay_ms=20)

    async def ask() -> None:
        for _ in range(40):
            await scene.client.chat.completions.create(model=scene.model, messages=HELLO)

    await asyncio.gather(*(ask() for _ in range(8)))
    assert scene.upstreams[0].stats["requests"] < 60


async def test_an_error_as_the_first_event_becomes_a_status(scene: Scene) -> None:
    scene.behave(first_event_error=True)
    with pytest.raises(openai.InternalServerError) as caught:
        await scene.client.chat.completions.create(
            model=scene.model,
            messages=HELLO,
            stream=True,
            extra_headers={"x-halcyon-deadline-ms": "400"},
        )
    assert caught.value.status_code in (503, 504)


async def test_a_stream_that_breaks_off_ends_with_an_error_and_no_done(scene: Scene) -> None:
    scene.behave(tokens=8, error_after_tokens=3)
    answer = await scene.gateway.request(
        "POST",
        "/v1/chat/completions",
        json={"model": scene.model, "messages": HELLO, "stream": True},
        headers={"authorization": f"Bearer {scene.key}"},
    )
    assert answer.status == 200
    assert answer.body.count(b'"content"') == 3
    assert answer.body.count(b'"error"') == 1
    assert b"[DONE]" not in answer.body


async def test_a_server_that_dies_in_the_middle_of_a_stream_is_told_as_an_event(
    scene: Scene,
) -> None:
    scene.behave(tokens=8, break_after_tokens=3)
    answer = await scene.gateway.request(
        "POST",
        "/v1/chat/completions",
        json={"model": scene.model, "messages": HELLO, "stream": True},
        headers={"authorization": f"Bearer {scene.key}"},
    )
    assert answer.status == 200
    assert b"upstream_failure" in answer.body
    assert b"[DONE]" not in answer.body
    assert scene.attempts == 1


async def test_eight_clients_who_leave_close_their_upstreams(scene: Scene) -> None:
    scene.behave(delay_ms=3000)
    tasks = [
        asyncio.create_task(scene.client.chat.completions.create(model=scene.model, messages=HELLO))
        for _ in range(8)
    ]
    await until(lambda: scene.active == 8, 5.0, "eight running requests")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: scene.active == 0, 1.0, "closed upstreams")
    assert all(replica["breaker"]["trips"] == 0 for replica in await scene.replicas())


async def test_a_first_token_deadline_is_kept(scene: Scene) -> None:
    scene.behave(delay_ms=2000)
    with pytest.raises(openai.APIStatusError) as caught:
        await scene.client.chat.completions.create(
            model=scene.model,
            messages=HELLO,
            stream=True,
            extra_headers={"x-halcyon-ttft-ms": "200"},
        )
    assert caught.value.status_code == 504


async def test_one_session_stays_with_one_server(scene: Scene) -> None:
    scene.behave(delay_ms=5)
    said = set()
    for _ in range(12):
        answer = await scene.client.chat.completions.create(
            model=scene.model,
            messages=HELLO,
            max_tokens=1,
            extra_headers={"x-halcyon-session": "alice"},
        )
        said.add(answer.choices[0].message.content)
    assert len(said) == 1
