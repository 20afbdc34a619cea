"""The ordinary case: a request comes in, is served, and can be explained."""

import asyncio
from typing import Any

import pytest
from channels_redis.core import RedisChannelLayer

from fleet.dashboard.gateways import explain
from fleet.live import wire
from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess, until
from tests.gateway.scripted_replica import answers


@pytest.fixture
async def gateway(stack: Stack) -> GatewayProcess:
    stack.rows.model(versions=("v1", "v2"))
    await stack.replica(answers(0.01))
    return await stack.gateway(stack.rows.tenant())


async def test_an_answer_says_who_served_it_and_where_the_time_went(
    gateway: GatewayProcess,
) -> None:
    answer = await gateway.infer(input="tell me")
    assert answer.status == 200
    body = answer.json
    assert set(body) == {
        "requestId",
        "model",
        "version",
        "output",
        "replicaId",
        "hedged",
        "usage",
        "timings",
        "batch",
    }
    assert (body["model"], body["version"], body["replicaId"]) == ("m", "v1", "r1")
    assert body["output"] == "echo:tell me"
    assert body["usage"] == {"promptTokens": 10, "completionTokens": 3}
    assert set(body["timings"]) == {"queuedMs", "executionMs", "totalMs"}
    assert body["timings"]["totalMs"] >= body["timings"]["executionMs"] > 0
    assert body["batch"]["size"] == 1
    assert body["batch"]["reason"] in {
        "saturated",
        "deadline",
        "linger",
        "idle",
        "drain",
        "goodput",
    }
    assert answer.headers["x-request-id"] == body["requestId"]
    assert answer.headers["content-type"] == "application/json"


async def test_lists_of_texts_and_rows_of_numbers_reach_the_replica_as_they_are(
    stack: Stack, gateway: GatewayProcess
) -> None:
    await gateway.infer(input=["a", "b"])
    await gateway.infer(input=[[1.5, 2], [3, 4]])
    assert stack.replicas[0].seen.inputs == [["a", "b"], [[1.5, 2.0], [3.0, 4.0]]]


async def test_requests_that_come_together_ride_together(
    stack: Stack, gateway: GatewayProcess
) -> None:
    answered = await gateway.infer_many(200, 32, deadlineMs=10_000)
    assert {answer.status for answer in answered} == {200}
    seen = stack.replicas[0].seen
    assert seen.items == 200
    assert len(seen.batches) < 100
    assert len({answer.json["requestId"] for answer in answered}) == 200


async def test_the_decision_record_explains_a_request_to_its_own_tenant_only(
    stack: Stack, gateway: GatewayProcess
) -> None:
    request_id = (await gateway.infer()).json["requestId"]
    path = f"/v1/requests/{request_id}/explain"
    record = (await gateway.get(path, headers={"x-api-key": gateway.key})).json
    assert record["requestId"] == request_id
    assert [stage["stage"] for stage in record["stages"]][:3] == ["admission", "split", "queue"]
    stranger = stack.rows.tenant("other-tenant")

    async def status(key: str | None) -> int:
        headers = {} if key is None else {"x-api-key": key}
        return (await gateway.get(path, headers=headers)).status

    async with asyncio.timeout(5):
        while await status(stranger) == 401:
            await asyncio.sleep(0.05)
    assert await status(stranger) == 404
    assert await status(None) == 401


async def test_a_refused_request_can_be_explained_too(gateway: GatewayProcess) -> None:
    refused = await gateway.infer(model="nope")
    request_id = refused.json["error"]["requestId"]
    record = (
        await gateway.get(f"/v1/requests/{request_id}/explain", headers={"x-api-key": gateway.key})
    ).json
    assert record["refusal"]["code"] == "model_not_found"


async def test_a_quote_says_how_surely_and_takes_nothing(gateway: GatewayProcess) -> None:
    headers = {"x-api-key": gateway.key}
    asked: dict[str, Any] = {"model": "m", "promptTokens": 100, "deadlineMs": 5_000}
    answer = await gateway.request("POST", "/v1/quote", json=asked, headers=headers)
    assert answer.status == 200
    assert answer.json["probabilityOnTime"] is not None
    assert answer.json["refusal"] is None
    asked["model"] = "nope"
    answer = await gateway.request("POST", "/v1/quote", json=asked, headers=headers)
    assert answer.json["refusal"]["code"] == "model_not_found"
    missing = {"model": "m"}
    answer = await gateway.request("POST", "/v1/quote", json=missing, headers=headers)
    assert (answer.status, answer.json["error"]["details"]["field"]) == (400, "input")
    assert (await gateway.state())["conservation"]["arrived"] == 0


async def test_models_are_listed_with_their_versions(gateway: GatewayProcess) -> None:
    listed = (await gateway.get("/v1/models", headers={"x-api-key": gateway.key})).json
    assert listed["object"] == "list"
    (model,) = listed["data"]
    assert (model["id"], model["versions"], model["baseline"]) == ("m", ["v1", "v2"], "v1")
    assert (await gateway.get("/v1/models")).status == 401


async def test_pipelined_requests_are_answered_in_their_order(gateway: GatewayProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    for number in range(5):
        body = b'{"model":"m","input":"pipelined %d","deadlineMs":9000}' % number
        head = (
            f"POST /v1/infer HTTP/1.1\r\nhost: x\r\nx-api-key: {gateway.key}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
    received = b""
    async with asyncio.timeout(10):
        while received.count(b'"output":"echo:pipelined') < 5:
            received += await reader.read(65536)
    places = [received.index(b"echo:pipelined %d" % number) for number in range(5)]
    assert places == sorted(places)
    writer.close()
    await writer.wait_closed()


async def test_health_answers_without_a_key_and_state_only_to_this_machine(
    gateway: GatewayProcess,
) -> None:
    assert (await gateway.get("/healthz")).json == {"status": "ok"}
    ready = (await gateway.get("/readyz")).json
    assert (ready["ready"], ready["limits"]) == (True, "ok")
    assert (await gateway.request("HEAD", "/healthz")).status == 200
    for path in ("/v1/control/state", "/metrics"):
        assert (await gateway.get(path)).status == 200
        proxied = await gateway.get(path, headers={"x-forwarded-for": "203.0.113.9"})
        assert (proxied.status, proxied.code) == (403, "forbidden")


async def test_the_live_view_showed_no_request_to_anybody(stack: Stack, valkey_url: str) -> None:
    stack.rows.model()
    await stack.replica(answers(0.01))
    layer = RedisChannelLayer(hosts=[valkey_url], prefix="halcyon")
    listening = await layer.new_channel("test")
    await layer.group_add(wire.GROUP, listening)
    gateway = await stack.gateway(stack.rows.tenant(), valkey_url=valkey_url)
    served = (await gateway.infer(input="tell me")).json
    record = None
    async with asyncio.timeout(30):
        while record is None:  # other tests' gateways speak there too
            said = await layer.receive(listening)
            view = wire.unpack(said) if said["type"] == "gateway.view" else {}
            sampled = {each["requestId"]: each for each in view.get("requests", ())}
            record = sampled.get(served["requestId"])
    assert (record["state"], record["tenant"], record["model"]) == ("done", "acme", "m")
    assert record["stages"][-1]["stage"] == "outcome"
    await layer.close_pools()


async def test_the_dashboard_could_explain_no_request_that_was_not_sampled(
    gateway: GatewayProcess,
) -> None:
    served = (await gateway.infer(input="tell me")).json
    path = f"/v1/control/requests/{served['requestId']}"
    record = (await gateway.get(path)).json
    assert (record["requestId"], record["tenant"]) == (served["requestId"], "acme")
    proxied = await gateway.get(path, headers={"x-forwarded-for": "203.0.113.9"})
    assert (proxied.status, proxied.code) == (403, "forbidden")
    for unknown in ("0x5ac1d2e7-1", "none"):
        answer = await gateway.get(f"/v1/control/requests/{unknown}")
        assert (answer.status, answer.code) == (404, "not_found")
    known = await asyncio.to_thread(explain, served["requestId"], gateway.url)
    assert known == record


async def test_a_key_in_use_was_shown_as_never_used(stack: Stack, gateway: GatewayProcess) -> None:
    idle = stack.rows.key("acme")
    await gateway.infer(input="tell me")

    async def noted() -> bool:
        used = stack.rows.execute("SELECT prefix FROM fleet_apikey WHERE last_used_at IS NOT NULL")
        return used == [(gateway.key.split("_")[1],)]

    await until(noted, 20.0, "the key that was used, and no other")
    assert idle.split("_")[1] != gateway.key.split("_")[1]
