"""Registration: the upsert that is also the heartbeat, through restarts of either side."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from tests.replica.replica_process import StartReplica, until


class ControlApi:
    """A control API that writes down what it is told, and can go away and come back."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.status = 201
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/replicas/register", self._register)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _register(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.tokens.add(request.headers["authorization"])
        return web.json_response({"error": {"message": "told you"}}, status=self.status)


@pytest.fixture
async def control() -> AsyncIterator[ControlApi]:
    api = ControlApi()
    await api.start()
    yield api
    await api.stop()


def joining(control: ControlApi) -> tuple[str, ...]:
    return ("--control-url", control.url, "--heartbeat-s", "0.1", "--id", "replica-1")


TOKEN = {"HALCYON_FLEET_TOKEN": "fleet-token"}


async def test_it_says_everything_and_repeats_it(
    start_replica: StartReplica, control: ControlApi
) -> None:
    replica = await start_replica(
        *joining(control), "--weight", "2.5", "--max-concurrency", "3", env=TOKEN
    )
    await until(lambda: len(control.bodies) >= 4)
    first, *later = control.bodies
    assert control.tokens == {"Bearer fleet-token"}
    assert first.pop("startedAt").endswith("+00:00")
    assert first == {
        "replicaId": "replica-1",
        "modelId": "m",
        "version": "v1",
        "address": replica.url,
        "protocol": "batch",
        "weight": 2.5,
        "accelerator": "simulated",
        "runtime": "simulated",
        "workUnit": "tokens",
        "maxBatchSize": 32,
        "maxBatchTokens": 16_384,
        "maxConcurrency": 3,
        "loadedModels": ["m"],
        "gpuMemoryRatio": None,
        "draining": False,
    }
    assert {each["draining"] for each in later} == {None}, "an operator's drain must stand"


async def test_it_registers_again_when_the_control_api_comes_back(
    start_replica: StartReplica, control: ControlApi
) -> None:
    replica = await start_replica(*joining(control), env=TOKEN)
    await until(lambda: len(control.bodies) >= 1)
    await control.stop()
    await until(lambda: "not registered" in replica.events())
    assert (await replica.execute("still serves"))[0] == 200
    seen = len(control.bodies)
    await control.start()
    await until(lambda: len(control.bodies) > seen)
    await until(lambda: replica.events().count("registered") == 2)


async def test_it_starts_and_serves_while_there_is_no_control_api(
    start_replica: StartReplica, control: ControlApi
) -> None:
    await control.stop()
    replica = await start_replica(*joining(control), env=TOKEN)
    assert (await replica.execute("x"))[0] == 200
    await control.start()
    await until(lambda: len(control.bodies) >= 1)


async def test_a_refusal_is_logged_in_the_words_of_the_api_and_tried_again(
    start_replica: StartReplica, control: ControlApi
) -> None:
    control.status = 403
    replica = await start_replica(*joining(control), env=TOKEN)
    await until(lambda: len(control.bodies) >= 3)
    warnings = [entry for entry in replica.log if entry["event"] == "not registered"]
    assert len(warnings) == 1, "the same complaint is made once"
    assert "403" in warnings[0]["error"]
    assert "told you" in warnings[0]["error"]
    control.status = 200
    await until(lambda: "registered" in replica.events())


async def test_a_drain_is_announced_before_the_work_is_finished(
    start_replica: StartReplica, control: ControlApi
) -> None:
    replica = await start_replica(*joining(control), "--speed", "0.02", env=TOKEN)
    held = asyncio.create_task(replica.execute("held"))

    async def running() -> bool:
        return bool((await replica.health())["inFlight"] == 1)

    await until(running)
    replica.send(signal.SIGTERM)
    await until(lambda: control.bodies[-1]["draining"] is True)
    assert not held.done()
    assert (await held)[0] == 200
    assert await replica.exit_code() == 0
