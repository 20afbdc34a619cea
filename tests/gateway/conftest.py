"""A fleet in a scratch database, scripted replicas, and gateways to put before them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.gateway.fleet_rows import FleetRows
from tests.gateway.gateway_process import GatewayProcess, running, until
from tests.gateway.openai_scene import Door, Scene, open_door, set_scene
from tests.gateway.scripted_replica import Behaviour, ScriptedReplica


class Stack:
    """What a test builds its scene from. Everything it starts is stopped after it."""

    def __init__(self, url: str, environment: dict[str, str], directory: Path) -> None:
        self.rows = FleetRows(url)
        self.environment = environment
        self.directory = directory
        self.exits = AsyncExitStack()
        self.replicas: list[ScriptedReplica] = []

    async def replica(
        self, behave: Behaviour | None = None, *, keep_alive_s: float = 75.0, **row: Any
    ) -> ScriptedReplica:
        """A scripted replica, written into the fleet."""
        replica = ScriptedReplica(behave, keep_alive_s=keep_alive_s)
        await self.exits.enter_async_context(replica)
        self.replicas.append(replica)
        self.rows.replica(row.pop("replica_id", f"r{len(self.replicas)}"), replica.address, **row)
        return replica

    def process(self, key: str, **options: Any) -> GatewayProcess:
        """A gateway that was not started yet."""
        directory = options.pop("state_dir", self.directory / "state")
        return GatewayProcess(self.environment, directory, key, **options)

    async def started(self, gateway: GatewayProcess, *, wait: bool = True) -> None:
        """Start it; stop it after the test."""
        await self.exits.enter_async_context(running(gateway, wait=wait))

    async def gateway(self, key: str, **options: Any) -> GatewayProcess:
        """A gateway that is ready and knows which replicas are."""
        gateway = self.process(key, **options)
        await self.started(gateway)
        await self.probed(gateway)
        return gateway

    async def probed(self, gateway: GatewayProcess) -> None:
        """Wait until no replica is unknown to the gateway."""

        async def known() -> bool:
            replicas = (await gateway.state())["replicas"]
            return all(replica["status"] != "unknown" for replica in replicas)

        await until(known, 30.0, "the first probes")


@pytest_asyncio.fixture
async def stack(scratch_database: Any, tmp_path: Path) -> AsyncIterator[Stack]:
    scene = Stack(scratch_database.url, scratch_database.environment, tmp_path)
    async with scene.exits:
        yield scene


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(
    module_database: Any, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Door]:
    """One gateway for the tests of a module (`openai_scene`)."""
    directory = tmp_path_factory.mktemp("door")
    async with open_door(module_database.url, module_database.environment, directory) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def scene(door: Door) -> AsyncIterator[Scene]:
    """A model with two scripted OpenAI servers behind that gateway."""
    async with set_scene(door) as made:
        yield made
