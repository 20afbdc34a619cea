"""A PostgreSQL of the test's own, stopped and killed under load: every request is in the books
once."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from halcyon_site.embedded import EmbeddedServices, postgres
from tests.conftest import ScratchDatabase
from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess, until

pytestmark = [pytest.mark.slow]


@pytest_asyncio.fixture
async def services(tmp_path: Path) -> AsyncIterator[EmbeddedServices]:
    """Durable: what it has committed outlives its death."""
    own = EmbeddedServices(tmp_path / "var", with_valkey=False)
    await asyncio.to_thread(own.start)
    yield own
    await asyncio.to_thread(own.stop)


@pytest_asyncio.fixture
async def own_stack(
    services: EmbeddedServices, scratch_database: ScratchDatabase, tmp_path: Path
) -> AsyncIterator[Stack]:
    """Its tables are copied from the test's scratch database: a tenth of migrating anew."""
    url = services.places.database_url
    tools = postgres.binaries()
    tables = await asyncio.to_thread(
        subprocess.run,
        [str(tools / "pg_dump"), "--no-owner", "--dbname", scratch_database.url],
        check=True,
        capture_output=True,
    )
    await asyncio.to_thread(
        subprocess.run,
        [str(tools / "psql"), "--quiet", "--set=ON_ERROR_STOP=1", "--dbname", url],
        check=True,
        input=tables.stdout,
        stdout=subprocess.DEVNULL,
    )
    stack = Stack(url, scratch_database.environment | {"DATABASE_URL": url}, tmp_path)
    async with stack.exits:
        yield stack


class Load:
    """Clients that go on until told to stop, and count what they were served."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.served = 0
        self.others: list[int] = []
        self._gateway = gateway
        self._stop = asyncio.Event()
        self._clients = [asyncio.create_task(self._client()) for _ in range(4)]

    async def _client(self) -> None:
        while not self._stop.is_set():
            answer = await self._gateway.infer(deadlineMs=30_000)
            if answer.status == 200:
                self.served += 1
            else:
                self.others.append(answer.status)

    async def more(self, count: int) -> None:
        """Wait until so many more were served."""
        goal = self.served + count
        await until(lambda: self.served >= goal, 60.0, f"{count} more answers")

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._clients)


async def test_every_request_is_in_the_books_once_after_postgres_was_stopped_and_killed(
    own_stack: Stack, services: EmbeddedServices
) -> None:
    own_stack.rows.model()
    await own_stack.replica()
    gateway = await own_stack.gateway(own_stack.rows.tenant())
    load = Load(gateway)
    await load.more(200)
    await asyncio.to_thread(services.stop)

    async def noticed() -> bool:
        return "recorder" in (await gateway.get("/readyz")).json["degraded"]

    await until(noticed, 20.0, "a recorder that cannot write")
    await load.more(400)
    await asyncio.to_thread(services.start)
    await load.more(200)
    server = postgres.running(services.places)
    assert server is not None
    server.send_signal(signal.SIGKILL)
    await load.more(200)
    await asyncio.to_thread(services.start)
    await load.more(100)
    await load.stop()
    assert load.others == []

    def sums() -> tuple[int, ...]:
        query = "SELECT coalesce(sum(served), 0), coalesce(sum(prompt_tokens), 0) FROM "
        (windows,) = own_stack.rows.execute(query + "fleet_windowstat")
        (usage,) = own_stack.rows.execute(query + "fleet_usageminute")
        return tuple(int(value) for value in (*windows, *usage))

    expected = (load.served, 10 * load.served) * 2
    await until(lambda: sums() == expected, 40.0, f"{expected} in the books")
    assert await gateway.stop() == 0
    assert sums() == expected
