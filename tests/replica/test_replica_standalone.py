"""The replica alone: predictions, classes, refusals, metrics, controller, history."""

import asyncio
import math
import random
import signal
from typing import Any

from tests.replica.replica_process import ReplicaProcess, StartReplica, until

ROW = [0.5] * 128


def slow_server(seconds: float, *more: str) -> tuple[str, ...]:
    """Alone, on a device that takes about this long for a batch of one."""
    speed = str(0.018 / seconds)
    device = ("--runtime", "simulated", "--speed", speed, "--jitter", "0")
    return ("--standalone", *device, "--max-concurrency", "1", "--max-batch-size", "1", *more)


async def ask(replica: ReplicaProcess, priority: str = "standard") -> tuple[int, Any]:
    return await replica.post("/predict", {"input": "x", "priority": priority})


async def test_a_prediction_is_the_product_and_says_how_long_it_took(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica("--standalone")
    status, answer = await replica.post("/predict", {"input": [ROW, [0.0] * 128]})
    assert status == 200
    assert set(answer) == {"request_id", "output", "queue_wait_ms", "inference_ms"}
    assert len(answer["output"]) == 2
    assert answer["output"][1] == [0.0] * 128
    bound = math.sqrt(6 / 256)
    assert 0 < max(map(abs, answer["output"][0])) <= 128 * 0.5 * bound
    assert answer["queue_wait_ms"] >= 0
    assert answer["inference_ms"] > 0


async def test_weights_are_drawn_once_and_loaded_after(start_replica: StartReplica) -> None:
    first = await start_replica("--standalone")
    one = (await first.post("/predict", {"input": [ROW]}))[1]["output"]
    first.send(signal.SIGTERM)
    assert await first.exit_code() == 0
    second = await start_replica("--standalone")
    assert (await second.post("/predict", {"input": [ROW]}))[1]["output"] == one


async def test_before_the_first_request_there_is_no_data_and_no_zero(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica("--standalone")
    metrics = (await replica.get("/metrics"))[1]
    assert metrics["note"] == "no_data_yet"
    assert [metrics[name] for name in ("p50", "p95", "p99", "throughput")] == [None] * 4
    assert (metrics["queue_depth"], metrics["active_workers"]) == (0, 0)
    text = {"accept": "text/plain"}
    async with replica.http.get("/metrics", headers=text) as response:
        assert response.headers["content-type"].startswith("text/plain")
        assert "halcyon_replica_latency_ms{" not in await response.text()
    await replica.post("/predict", {"input": [ROW]})
    metrics = (await replica.get("/metrics"))[1]
    assert "note" not in metrics
    assert metrics["p50"] > 0
    assert metrics["throughput"] > 0
    async with replica.http.get("/metrics", headers=text) as response:
        assert 'halcyon_replica_latency_ms{quantile="0.95"}' in await response.text()


async def test_history_keeps_a_snapshot_a_second(start_replica: StartReplica) -> None:
    replica = await start_replica("--standalone")

    async def two() -> bool:
        return len((await replica.get("/metrics/history"))[1]) >= 2

    await until(two)
    first, second = (await replica.get("/metrics/history"))[1][:2]
    assert 0.5 < second["timestamp"] - first["timestamp"] < 5
    assert second["memory"] > 0


async def test_the_controller_shows_its_limits_from_the_environment(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica(
        "--standalone",
        env={
            "HALCYON_SLO_MS": "90",
            "HALCYON_MAX_WORKERS": "3",
            "HALCYON_BATCH_SIZE": "5",
            "HALCYON_CONTROLLER_INTERVAL": "0.2",
        },
    )
    shown = (await replica.get("/controller"))[1]
    assert (shown["slo_ms"], shown["max_workers"], shown["batch_size"]) == (90.0, 3, 5)
    assert shown["admission_control"] is False
    assert shown["last_action"] is None
    assert shown["last_action_time"] is None

    async def checked() -> bool:
        last = (await replica.get("/controller"))[1]["last_check"]
        return bool(last and "not known yet" in last)

    await until(checked)


async def test_bad_input_is_refused_with_the_name_of_the_field(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica("--standalone", "--input-dim", "2")
    cases: list[tuple[Any, str, str]] = [
        ({"input": [[1, 2], [1]]}, "input", "row 1 has 1 numbers"),
        ({"input": [[1, "2"]]}, "input", "not a finite number"),
        ({"input": [[1, True]]}, "input", "not a finite number"),
        ({"input": [[1, 1e300]]}, "input", "not a finite number"),
        ({"input": []}, "input", "row of 2 numbers"),
        ({"input": [[1, 2]], "priority": "gold"}, "priority", "premium or standard"),
        ({"input": [[1, 2]], "urgent": 1}, "body", "urgent"),
        ({}, "body", "input"),
    ]
    for body, field, message in cases:
        status, answer = await replica.post("/predict", body)
        assert (status, answer["error"], answer["field"]) == (400, "invalid_request", field)
        assert message in answer["message"]
    assert (await replica.execute("x"))[0] == 404


async def test_a_full_queue_is_429_with_its_reason(start_replica: StartReplica) -> None:
    replica = await start_replica(*slow_server(0.3, "--static", "--max-queue", "5"))
    answers = await asyncio.gather(*(ask(replica) for _ in range(8)))
    refused = [answer for status, answer in answers if status == 429]
    assert refused == [{"error": "overloaded", "reason": "queue_full"}] * 4
    assert [status for status, _ in answers].count(200) == 4, "one ran, three of five places"


async def test_each_class_has_a_queue_of_its_own(start_replica: StartReplica) -> None:
    replica = await start_replica(*slow_server(0.3, "--static", "--max-queue", "5"))
    standard = [asyncio.create_task(ask(replica)) for _ in range(8)]
    await asyncio.wait(standard, return_when=asyncio.FIRST_COMPLETED)
    assert (await ask(replica, "premium"))[0] == 200
    await asyncio.gather(*standard)


async def test_premium_is_served_three_times_as_much_while_both_wait(
    start_replica: StartReplica,
) -> None:
    replica = await start_replica(*slow_server(0.02, "--static"))
    done: list[str] = []

    async def one(priority: str) -> None:
        assert (await ask(replica, priority))[0] == 200
        done.append(priority)

    order = ["premium"] * 60 + ["standard"] * 60
    random.Random(1).shuffle(order)
    await asyncio.gather(*(one(priority) for priority in order))
    both_wait = done[10:70]
    assert 0.6 < both_wait.count("premium") / len(both_wait) < 0.9


async def test_what_waits_too_long_is_504(start_replica: StartReplica) -> None:
    replica = await start_replica(*slow_server(2.0, "--static", "--timeout-s", "0.2"))
    first = asyncio.create_task(ask(replica))

    async def running() -> bool:
        return bool((await replica.health())["inFlight"] == 1)

    await until(running)
    status, answer = await ask(replica)
    assert status == 504
    assert answer["error"] == "timeout"
    assert (await first)[0] == 200, "what runs is not timed out"


async def test_overload_turns_admission_control_on_and_calm_turns_it_off(
    start_replica: StartReplica,
) -> None:
    interval = {"HALCYON_CONTROLLER_INTERVAL": "0.2"}
    replica = await start_replica(*slow_server(0.05, "--slo-ms", "150"), env=interval)
    reasons: list[str] = []
    stop = asyncio.Event()

    async def client(priority: str) -> None:
        while not stop.is_set():
            status, answer = await ask(replica, priority)
            if status == 429:
                reasons.append(f"{priority} {answer['reason']}")
                await asyncio.sleep(0.02)

    async def controller() -> Any:
        return (await replica.get("/controller"))[1]

    clients = [asyncio.create_task(client("standard")) for _ in range(30)]
    clients += [asyncio.create_task(client("premium"))]

    async def shedding() -> bool:
        return "standard admission_control" in reasons

    await until(shedding)
    shown = await controller()
    assert shown["admission_control"] is True
    assert "SLO 150 ms" in shown["last_action"]
    assert shown["last_action_time"] > 0
    stop.set()
    await asyncio.gather(*clients)
    assert not any(reason.startswith("premium") for reason in reasons)

    async def off() -> bool:
        await ask(replica)
        return not (await controller())["admission_control"]

    await until(off)
