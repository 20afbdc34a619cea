"""Real replicas that serve several models, behind a real gateway."""

import asyncio
from collections import Counter
from typing import Any

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess, until
from tests.replica.conftest import start_replica as start_replica
from tests.replica.replica_process import StartReplica


async def two_models(stack: Stack, start_replica: StartReplica, **rows: Any) -> GatewayProcess:
    """Models m and n, both on the replicas a and b, of two places each."""
    stack.rows.model("m")
    stack.rows.model("n")
    for name in ("a", "b"):
        replica = await start_replica(
            "--also", "n", "--max-concurrency", "2", "--max-batch-size", "4", "--id", name
        )
        stack.rows.replica(
            name, replica.url, max_concurrency=2, max_batch_size=4, loaded_models=("m", "n")
        )
    return await stack.gateway(stack.rows.tenant("acme", priority=3))


async def explained(gateway: GatewayProcess, **body: Any) -> str:
    """The decision record of one served request."""
    answer = await gateway.infer(**{"priority": "normal", "deadlineMs": 20_000, **body})
    assert answer.status == 200, answer.body
    path = f"/v1/requests/{answer.json['requestId']}/explain"
    return (await gateway.get(path, headers={"x-api-key": gateway.key})).body.decode()


async def test_one_replica_answers_for_each_model_it_declares_under_one_ceiling(
    stack: Stack, start_replica: StartReplica
) -> None:
    gateway = await two_models(stack, start_replica)
    answers = await asyncio.gather(
        *(gateway.infer(model=model, input="hello", deadlineMs=20_000) for model in "mn" * 40)
    )
    assert {answer.status for answer in answers} == {200}
    outputs = Counter(str(answer.json["output"]) for answer in answers)
    assert outputs == {"m v1: hello": 40, "n v1: hello": 40}
    await gateway.settled(20.0)
    state = await gateway.state()
    for replica in state["replicas"]:
        assert replica["loadedModels"] == ["m", "n"]
        assert replica["ceiling"] == 2
        assert replica["backpressure"] == 0  # the replica itself never saw a third batch
    served = {
        (m["model"], v["version"]): v["readyReplicas"]
        for m in state["models"]
        for v in m["versions"]
    }
    assert served == {("m", "v1"): 2, ("n", "v1"): 2}


async def test_a_strategy_changed_in_the_database_decides_the_next_request(
    stack: Stack, start_replica: StartReplica
) -> None:
    gateway = await two_models(stack, start_replica)
    rules = {
        "peak_ewma": "two_choices",
        "affinity": "home",
        "least_loaded": "least_loaded",
        "round_robin": "round_robin",
    }
    for strategy, rule in rules.items():
        stack.rows.execute("UPDATE fleet_model SET strategy = %s WHERE name = 'm'", strategy)

        async def decided(rule: str = rule) -> bool:
            return rule in await explained(gateway)

        await until(decided, 30.0, f"a request by {strategy}")
    assert "two_choices" in await explained(gateway, model="n")  # each model has its own


async def test_updates_and_urgent_requests_leave_the_home_of_an_affine_model(
    stack: Stack, start_replica: StartReplica
) -> None:
    gateway = await two_models(stack, start_replica)
    stack.rows.execute("UPDATE fleet_model SET strategy = 'affinity'")

    async def at_home() -> bool:
        return "home" in await explained(gateway, model="n")

    await until(at_home, 30.0, "affinity")
    assert "least_loaded" in await explained(gateway, model="n", requestType="update")
    for priority in ("high", "critical"):
        assert "widened" in await explained(gateway, model="n", priority=priority)
    assert "home" in await explained(gateway, model="n", priority="normal")


async def test_a_model_moves_to_where_it_is_warm_and_not_before(stack: Stack) -> None:
    stack.rows.model("m")
    stack.rows.model("n")
    a = await stack.replica(replica_id="a", loaded_models=("m", "n"))
    b = await stack.replica(replica_id="b", loaded_models=("m", "n"))
    a.report, b.report = {"loadedModels": ["m"]}, {"loadedModels": ["n"]}
    stack.rows.execute("UPDATE fleet_model SET strategy = 'affinity'")
    gateway = await stack.gateway(stack.rows.tenant())

    async def warm(expected: dict[str, list[str]]) -> bool:
        replicas = (await gateway.state())["replicas"]
        return {r["replicaId"]: r["loadedModels"] for r in replicas} == expected

    await until(lambda: warm({"a": ["m"], "b": ["n"]}), 30.0, "the probes")
    for _ in range(6):
        assert (await gateway.infer(model="m")).status == 200
    assert (a.seen.items, b.seen.items) == (6, 0)
    a.report, b.report = {"loadedModels": ["n"]}, {"loadedModels": ["m", "n"]}
    await until(lambda: warm({"a": ["n"], "b": ["m", "n"]}), 30.0, "the move")
    for _ in range(6):
        assert (await gateway.infer(model="m")).status == 200
    assert (a.seen.items, b.seen.items) == (6, 6)


async def test_the_gateways_ceiling_follows_a_replica_that_regulates_itself_down_and_up(
    stack: Stack, start_replica: StartReplica
) -> None:
    replica = await start_replica(
        *("--max-concurrency", "4", "--max-batch-size", "2", "--slo-ms", "150", "--id", "a"),
        env={"HALCYON_FAULTS": "1", "HALCYON_CONTROLLER_INTERVAL": "0.2"},
    )
    stack.rows.model()
    stack.rows.replica("a", replica.url, max_concurrency=4, max_batch_size=2)
    gateway = await stack.gateway(stack.rows.tenant())

    async def row() -> Any:
        (found,) = (await gateway.state())["replicas"]
        return found

    assert (await row())["ceiling"] == 4
    slow = {"fault": "delay", "milliseconds": 300, "duration_seconds": 60}
    assert (await replica.post("/simulate", slow))[0] == 200
    stop = asyncio.Event()

    async def client() -> None:
        while not stop.is_set():
            await gateway.infer(deadlineMs=10_000)

    clients = [asyncio.create_task(client()) for _ in range(24)]
    try:

        async def lowered() -> bool:
            return bool((await row())["ceiling"] < 4)

        await until(lowered, 60.0, "a lower ceiling at the gateway")
        assert (await replica.get("/controller"))[1]["max_workers"] < 4
    finally:
        stop.set()
        async with replica.http.delete("/simulate"):
            pass
        await asyncio.gather(*clients)

    async def raised() -> bool:
        await gateway.infer()
        return bool((await row())["ceiling"] == 4)

    await until(raised, 60.0, "the old ceiling")
    assert (await replica.get("/controller"))[1]["max_workers"] == 4
