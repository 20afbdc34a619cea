"""What a client can send wrong, on both roads: the envelope, the status, the field, never a 500."""

import asyncio
import io
import json
from typing import Any

import pytest

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess

GOOD: dict[str, Any] = {"model": "m", "input": "hello"}


def body(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


WRONG_BODIES = {
    "malformed json": (b'{"model": "m", ', "body"),
    "empty body": (b"", "body"),
    "not an object": (b"[1, 2]", "body"),
    "invalid utf-8": (b'{"model":"\xff\xfe","input":"x"}', "body"),
    "lone surrogate": (b'{"model":"\\ud800","input":"x"}', "body"),
    "trailing bytes": (b'{"model":"m","input":"x"} {}', "body"),
    "not a number": (b'{"model":"m","input":"x","deadlineMs":NaN}', "body"),
    "no model": (b'{"input":"x"}', "model"),
    "no input": (b'{"model":"m"}', "input"),
    "empty model": (body(model=""), "model"),
    "endless model": (body(model="m" * 129), "model"),
    "model of the wrong type": (body(model=7), "model"),
    "input of the wrong type": (body(input=7), "input"),
    "empty input": (body(input=""), "input"),
    "empty list": (body(input=[]), "input"),
    "number in a list of texts": (body(input=["a", 3]), "input[1]"),
    "texts and rows mixed": (body(input=["a", [1.0]]), "input[1]"),
    "empty row": (body(input=[[1.0], []]), "input[1]"),
    "deeply nested": (b'{"model":"m","input":' + b"[" * 30_000 + b"}", "input[0][0]"),
    "unknown field": (body(temperature=1), "temperature"),
    "negative deadline": (body(deadlineMs=-5), "deadlineMs"),
    "huge deadline": (body(deadlineMs=600_001), "deadlineMs"),
    "absurd deadline": (b'{"model":"m","input":"x","deadlineMs":1e400}', "deadlineMs"),
    "deadline as text": (body(deadlineMs="2000"), "deadlineMs"),
    "no output tokens": (body(maxOutputTokens=0), "maxOutputTokens"),
    "too many output tokens": (body(maxOutputTokens=8193), "maxOutputTokens"),
    "fractional output tokens": (body(maxOutputTokens=1.5), "maxOutputTokens"),
    "unknown lane": (body(lane="fast"), "lane"),
    "unknown priority": (body(priority="urgent"), "priority"),
    "priority out of range": (body(priority=9), "priority"),
    "empty session": (body(sessionKey=""), "sessionKey"),
    "endless session": (body(sessionKey="s" * 257), "sessionKey"),
    "unknown request type": (body(requestType="train"), "requestType"),
}


async def post(gateway: GatewayProcess, data: Any, **headers: str) -> Any:
    sent = {"x-api-key": gateway.key, "content-type": "application/json", **headers}
    return await gateway.request("POST", "/v1/infer", data=data, headers=sent)


@pytest.fixture
async def gateway(stack: Stack) -> GatewayProcess:
    stack.rows.model()
    await stack.replica()
    return await stack.gateway(stack.rows.tenant())


async def test_every_wrong_body_is_a_400_that_names_its_field(gateway: GatewayProcess) -> None:
    for name, (data, field) in WRONG_BODIES.items():
        answer = await post(gateway, data)
        error = answer.json["error"]
        assert (answer.status, error["code"]) == (400, "invalid_request"), (name, error)
        assert error["details"]["field"] == field, (name, error)
        assert error["requestId"], name
        assert answer.headers["x-request-id"] == error["requestId"], name
    assert (await gateway.infer()).status == 200


async def test_wrong_bodies_are_judged_alike_when_they_are_too_large_for_the_short_road(
    gateway: GatewayProcess,
) -> None:
    answer = await post(gateway, body(input="x" * 100_000, temperature=1))
    assert (answer.status, answer.json["error"]["details"]["field"]) == (400, "temperature")
    answer = await post(gateway, b'{"model":"m","input":"' + b"\xff" * 100_000 + b'"}')
    assert answer.status == 400


async def test_an_unknown_model_is_a_404_that_lists_the_known_ones(gateway: GatewayProcess) -> None:
    answer = await gateway.infer(model="nope")
    assert (answer.status, answer.code) == (404, "model_not_found")
    assert answer.json["error"]["details"]["known"] == ["m"]


async def test_a_bad_key_is_a_401_however_it_is_bad(gateway: GatewayProcess) -> None:
    for headers in (
        {},
        {"x-api-key": ""},
        {"x-api-key": "hk_00000000_" + "0" * 32},
        {"x-api-key": "hk_\u00e9"},
        {"authorization": "Basic abc"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
    ):
        answer = await gateway.request("POST", "/v1/infer", json=GOOD, headers=headers)
        assert (answer.status, answer.code) == (401, "unauthorized"), headers
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_bearer_token_is_as_good_as_the_header(gateway: GatewayProcess) -> None:
    headers = {"authorization": f"bearer {gateway.key}"}
    answer = await gateway.request("POST", "/v1/infer", json=GOOD, headers=headers)
    assert answer.status == 200


async def test_a_wrong_method_is_a_405_that_says_which_is_right(gateway: GatewayProcess) -> None:
    for method, path, allowed in (
        ("GET", "/v1/infer", "POST"),
        ("DELETE", "/v1/infer", "POST"),
        ("POST", "/v1/models", "GET"),
        ("PUT", "/healthz", "GET"),
        ("POST", "/v1/requests/abc/explain", "GET"),
    ):
        answer = await gateway.request(method, path)
        assert (answer.status, answer.code) == (405, "method_not_allowed"), (method, path)
        assert answer.headers["allow"] == allowed


async def test_an_unknown_path_is_a_404_in_the_same_envelope(gateway: GatewayProcess) -> None:
    for path in ("/", "/v1", "/v1/infer/", "/v1/requests//explain", "/v1/requests/a/b/explain"):
        answer = await gateway.get(path)
        assert (answer.status, answer.code) == (404, "not_found"), path


async def test_a_wrong_media_type_is_a_415_on_both_roads(gateway: GatewayProcess) -> None:
    for media in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp"):
        for data in (body(), body(input="x" * 100_000)):
            headers = {"content-type": media}
            answer = await post(gateway, data, **headers)
            assert (answer.status, answer.code) == (415, "unsupported_media_type"), media
    answer = await post(gateway, body(), **{"content-type": "application/json; charset=utf-8"})
    assert answer.status == 200


async def test_a_body_over_the_limit_is_a_413_and_the_client_can_read_it(
    gateway: GatewayProcess,
) -> None:
    answer = await post(gateway, io.BytesIO(body(input="x" * 3_000_000)))
    assert (answer.status, answer.code) == (413, "payload_too_large")
    details = answer.json["error"]["details"]
    assert details["limit"] == 2 * 1024 * 1024
    assert details["used"] > details["limit"]


async def test_an_undeclared_length_is_bounded_while_it_streams(gateway: GatewayProcess) -> None:
    async def endless() -> Any:
        for _ in range(100):
            yield b"x" * 65_536

    sent = {"x-api-key": gateway.key, "content-type": "application/json"}
    answer = await gateway.request("POST", "/v1/infer", data=endless(), headers=sent)
    assert (answer.status, answer.code) == (413, "payload_too_large")


async def test_a_large_prompt_within_the_limit_is_costed_by_its_size(
    stack: Stack, gateway: GatewayProcess
) -> None:
    wide = await stack.gateway(gateway.key, state_dir=stack.directory / "wide")
    answer = await wide.infer(input="x" * 900_000, deadlineMs=60_000)
    explained = (
        await wide.get(
            f"/v1/requests/{answer.headers['x-request-id']}/explain",
            headers={"x-api-key": wide.key},
        )
    ).json
    assert explained["promptTokens"] == 225_000
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert answer.json["error"]["details"]["limitName"] == "max_batch_tokens"


async def test_choosing_a_version_needs_a_key_that_may(
    stack: Stack, gateway: GatewayProcess
) -> None:
    headers = {"x-api-key": gateway.key, "x-halcyon-version": "v1"}
    answer = await gateway.request("POST", "/v1/infer", json=GOOD, headers=headers)
    assert (answer.status, answer.code) == (403, "forbidden")
    assert answer.json["error"]["details"]["field"] == "x-halcyon-version"


async def test_bytes_that_are_no_http_do_not_disturb_the_others(gateway: GatewayProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"\x16\x03\x01\x02\x00 this is not http\r\n\r\n")
    assert (await reader.read(64)).startswith(b"HTTP/1.1 400")
    writer.close()
    await writer.wait_closed()
    assert (await gateway.infer()).status == 200
