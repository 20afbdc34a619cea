"""A change in Postgres is in force at every gateway within a second of its commit."""

import asyncio
import time

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess, until
from tests.gateway.scripted_replica import answers


async def test_a_revoked_key_is_refused_by_every_gateway(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    key = stack.rows.tenant()
    gateways = [await stack.gateway(key, state_dir=stack.directory / f"g{n}") for n in range(2)]
    for gateway in gateways:
        assert (await gateway.infer()).status == 200
    stack.rows.execute("UPDATE fleet_apikey SET revoked_at = now()")

    async def refused(gateway: GatewayProcess) -> bool:
        return (await gateway.infer()).status == 401

    for gateway in gateways:
        await until(lambda g=gateway: refused(g), 2.0, "the refusal")


async def test_a_changed_quota_is_in_force_at_once(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    assert (await gateway.infer()).status == 200
    stack.rows.execute(
        "UPDATE fleet_tenant SET requests_per_minute = 1, requests_burst = 1 WHERE name = 'acme'"
    )

    async def limited() -> bool:
        return (await gateway.infer()).code == "quota_exceeded"

    await until(limited, 2.0, "the new quota")
    stack.rows.execute("UPDATE fleet_tenant SET enabled = false WHERE name = 'acme'")

    async def disabled() -> bool:
        return (await gateway.infer()).code == "forbidden"

    await until(disabled, 2.0, "the disabled tenant")


async def test_a_key_stops_at_its_expiry_without_any_change(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    key = stack.rows.tenant()
    gateway = await stack.gateway(key)
    stack.rows.execute("UPDATE fleet_apikey SET expires_at = now() + interval '2 seconds'")
    assert (await gateway.infer()).status == 200

    async def expired() -> bool:
        return (await gateway.infer()).status == 401

    await until(expired, 6.0, "the expiry")


async def test_a_changed_split_moves_traffic_without_losing_a_request(stack: Stack) -> None:
    stack.rows.model(versions=("v1", "v2"))
    old = await stack.replica(answers(0.01))
    new = await stack.replica(answers(0.01), version="v2")
    gateway = await stack.gateway(stack.rows.tenant())
    running = asyncio.create_task(gateway.infer_many(400, 8, deadlineMs=20_000))
    await until(lambda: old.seen.items >= 50)
    assert new.seen.items == 0  # a later version never gets traffic by registering
    stack.rows.execute(
        "UPDATE fleet_trafficsplit SET baseline_id ="
        " (SELECT id FROM fleet_modelversion WHERE name = 'v2')"
    )
    assert {answer.status for answer in await running} == {200}
    assert new.seen.items > 0
    assert (await gateway.infer()).json["version"] == "v2"


async def test_a_replica_that_moves_keeps_its_counters_straight(stack: Stack) -> None:
    stack.rows.model()
    old = await stack.replica(answers(1.0), max_batch_size=1, max_concurrency=10)
    gateway = await stack.gateway(stack.rows.tenant())
    held = [asyncio.create_task(gateway.infer(deadlineMs=30_000)) for _ in range(10)]
    await until(lambda: old.seen.running == 10)
    new = await stack.replica(replica_id="r1", max_batch_size=1, max_concurrency=10)
    loads: list[int] = []
    while not all(task.done() for task in held):
        (view,) = (await gateway.state())["replicas"]
        loads.append(view["inFlight"])
    assert {answer.status for answer in await asyncio.gather(*held)} == {200}
    assert min(loads) >= 0
    assert max(loads) <= 10

    async def served_at_the_new_address() -> bool:
        return (await gateway.infer()).status == 200 and new.seen.items > 0

    await until(served_at_the_new_address, 5.0)
    await gateway.settled()
    (view,) = (await gateway.state())["replicas"]
    assert view["inFlight"] == 0


async def test_a_tester_reaches_the_version_of_their_choice(stack: Stack) -> None:
    stack.rows.model(versions=("v1", "v2"))
    await stack.replica()
    await stack.replica(version="v2")
    stack.rows.tenant()
    gateway = await stack.gateway(stack.rows.key("acme", may_choose_version=True))
    headers = {"x-api-key": gateway.key, "x-halcyon-version": "v2"}
    body = {"model": "m", "input": "hello"}
    answer = await gateway.request("POST", "/v1/infer", json=body, headers=headers)
    assert (answer.status, answer.json["version"]) == (200, "v2")
    headers["x-halcyon-version"] = "v9"
    answer = await gateway.request("POST", "/v1/infer", json=body, headers=headers)
    assert (answer.status, answer.code) == (400, "invalid_request")


async def test_ten_thousand_tenants_are_taken_in_while_requests_go_on(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    running = asyncio.create_task(gateway.infer_many(600, 8, deadlineMs=20_000))
    stack.rows.execute(
        "INSERT INTO fleet_tenant (name, priority, weight, enabled, created_at,"
        " requests_per_minute) SELECT 't' || n, 1, 1, true, now(), 600"
        " FROM generate_series(1, 10000) n"
    )
    late = stack.rows.key("t9999")

    async def known() -> bool:
        return (await gateway.infer(key=late)).status == 200

    await until(known, 10.0, "the last of ten thousand tenants")
    assert {answer.status for answer in await running} == {200}
    page = (await gateway.get("/metrics")).body
    assert len(page) < 1_000_000


async def test_a_row_that_makes_no_sense_costs_only_itself(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    await stack.replica(work_unit="nonsense")
    gateway = await stack.gateway(stack.rows.tenant())
    assert (await gateway.infer()).status == 200
    assert [view["replicaId"] for view in (await gateway.state())["replicas"]] == ["r1"]
    assert "r2" in gateway.log


async def test_a_change_is_noticed_by_the_poll_where_the_word_is_lost(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant(), poll_s=0.5)
    with_triggers_off = (
        "ALTER TABLE fleet_model DISABLE TRIGGER USER;"
        "UPDATE fleet_model SET slo_ms = 777;"
        "ALTER TABLE fleet_model ENABLE TRIGGER USER"
    )
    for statement in with_triggers_off.split(";"):
        stack.rows.execute(statement)
    began = time.monotonic()

    async def noticed() -> bool:
        (model,) = (await gateway.state())["models"]
        return bool(model["sloMs"] == 777)

    await until(noticed, 10.0, "the change")
    assert time.monotonic() - began < 9.0
