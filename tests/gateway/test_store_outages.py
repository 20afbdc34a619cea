"""Postgres away: inference goes on, and what was counted is written once when it returns."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest_asyncio

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import until
from tests.gateway.relay import Relay


class Wire:
    """A relay in front of the scratch database and the address to use it by."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = {name: values[0] for name, values in parse_qs(parts.query).items()}
        host = options.get("host", parts.hostname or "")
        port = int(options.get("port", parts.port or 5432))
        if host.startswith("/"):
            self.relay = Relay(path=f"{host}/.s.PGSQL.{port}")
        else:
            self.relay = Relay(host=host, port=port)
        self._parts = parts

    @property
    def url(self) -> str:
        user = f"{self._parts.username}@" if self._parts.username else ""
        return f"postgresql://{user}127.0.0.1:{self.relay.port}{self._parts.path}"


@pytest_asyncio.fixture
async def wire(stack: Stack) -> AsyncIterator[Wire]:
    found = Wire(stack.rows.url)
    async with found.relay:
        yield found


def sums(stack: Stack) -> dict[str, int]:
    """What the database says was served, by windows and by usage."""
    ((windows,),) = stack.rows.execute("SELECT coalesce(sum(served), 0) FROM fleet_windowstat")
    ((usage,),) = stack.rows.execute("SELECT coalesce(sum(served), 0) FROM fleet_usageminute")
    return {"windows": int(windows), "usage": int(usage)}


async def all_written(stack: Stack, count: int, within_s: float = 15.0) -> None:
    await until(
        lambda: sums(stack) == {"windows": count, "usage": count},
        within_s,
        f"{count} served requests in the database (there are {sums(stack)})",
    )


async def test_what_was_served_is_in_the_database_a_moment_later(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    await gateway.infer_many(120, 8, deadlineMs=20_000)
    await gateway.infer(model="made-up")
    await all_written(stack, 120)
    ((tenant, model, requests, tokens),) = stack.rows.execute(
        "SELECT tenant, model, requests, prompt_tokens FROM fleet_usageminute"
        " WHERE model <> 'unknown' ORDER BY requests DESC LIMIT 1"
    )
    assert (tenant, model) == ("acme", "m")
    assert tokens == requests * 10
    ((refused,),) = stack.rows.execute(
        "SELECT refused FROM fleet_usageminute WHERE model = 'unknown'"
    )
    assert refused == {"model_not_found": 1}


async def test_with_postgres_away_inference_goes_on_and_nothing_is_lost_or_doubled(
    stack: Stack, wire: Wire
) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant(), database_url=wire.url)
    assert {a.status for a in await gateway.infer_many(50, 8, deadlineMs=20_000)} == {200}
    await wire.relay.cut()

    async def told() -> Any:
        return (await gateway.get("/readyz")).json["degraded"].get("configuration")

    await until(told, 10.0, "word of the outage")
    assert {a.status for a in await gateway.infer_many(100, 8, deadlineMs=20_000)} == {200}
    assert (await gateway.get("/readyz")).status == 200
    await wire.relay.mend()
    assert {a.status for a in await gateway.infer_many(50, 8, deadlineMs=20_000)} == {200}
    await all_written(stack, 200, 30.0)

    async def mended() -> bool:
        return (await gateway.get("/readyz")).json["degraded"] == {}

    await until(mended, 20.0, "recovery")
    assert await gateway.stop() == 0
    assert sums(stack) == {"windows": 200, "usage": 200}


async def test_a_commit_whose_answer_got_lost_counts_once(stack: Stack, wire: Wire) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant(), database_url=wire.url)
    for _ in range(6):  # the relay dies at any point of a write
        await gateway.infer_many(10, 4, deadlineMs=20_000)
        await asyncio.sleep(0.37)
        await wire.relay.cut()
        await gateway.infer_many(10, 4, deadlineMs=20_000)
        await wire.relay.mend()
    await all_written(stack, 120, 30.0)


async def test_a_frozen_postgres_is_as_good_as_away(stack: Stack, wire: Wire) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant(), database_url=wire.url)
    wire.relay.freeze()
    answers = await gateway.infer_many(100, 8, deadlineMs=20_000)
    assert {answer.status for answer in answers} == {200}

    async def told() -> Any:
        await gateway.infer()
        return (await gateway.get("/readyz")).json["degraded"].get("recorder")

    await until(told, 20.0, "word of the outage")
    await wire.relay.cut()
    await wire.relay.mend()
    served = (await gateway.settled())["served"]
    await all_written(stack, served, 30.0)


async def test_changes_made_during_an_outage_are_in_force_after_it(
    stack: Stack, wire: Wire
) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant(), database_url=wire.url)
    await wire.relay.cut()
    stack.rows.execute("UPDATE fleet_apikey SET revoked_at = now()")
    assert (await gateway.infer()).status == 200  # the last configuration stays in force
    await wire.relay.mend()

    async def refused() -> bool:
        return (await gateway.infer()).status == 401

    await until(refused, 10.0, "the revocation")


async def test_a_gateway_restarts_while_postgres_is_away(stack: Stack, wire: Wire) -> None:
    stack.rows.model()
    await stack.replica()
    key = stack.rows.tenant()
    port = (first := await stack.gateway(key, database_url=wire.url)).port
    assert (await first.infer()).status == 200
    await wire.relay.cut()
    await first.stop()
    second = await stack.gateway(key, database_url=wire.url, port=port)
    ready = (await second.get("/readyz")).json
    assert (ready["ready"], ready["snapshotStale"]) == (True, True)
    assert {a.status for a in await second.infer_many(40, 4, deadlineMs=20_000)} == {200}
    await wire.relay.mend()

    async def fresh() -> bool:
        return (await second.get("/readyz")).json["snapshotStale"] is False

    await until(fresh, 15.0, "a confirmed configuration")
    await all_written(stack, 41, 30.0)  # the first gateway's last windows came from its spool


async def test_without_any_configuration_it_says_so_and_recovers(stack: Stack, wire: Wire) -> None:
    stack.rows.model()
    await stack.replica()
    key = stack.rows.tenant()
    await wire.relay.cut()
    gateway = stack.process(key, database_url=wire.url)
    await stack.started(gateway, wait=False)

    async def answers() -> bool:
        return await gateway.is_listening()

    await until(answers, 20.0, "a listening gateway")
    answer = await gateway.infer()
    assert (answer.status, answer.code) == (503, "no_capacity")
    assert answer.headers["retry-after"]
    assert (await gateway.get("/readyz")).status == 503
    await wire.relay.mend()

    async def serves() -> bool:
        return (await gateway.infer()).status == 200

    await until(serves, 15.0, "the first answer")


async def test_a_killed_gateway_takes_only_its_last_second_with_it(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    await gateway.infer_many(50, 8, deadlineMs=20_000)
    await all_written(stack, 50)
    await gateway.stop(signal.SIGKILL)
    assert sums(stack) == {"windows": 50, "usage": 50}
