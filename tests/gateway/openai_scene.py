"""Two scripted OpenAI servers behind a gateway that a whole module shares.

Starting a gateway costs seconds, so it is started once; each test brings a model of its own
with two fresh servers, and nothing of one test (breakers, learned times, quotas) reaches
the next.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import openai

from tests.gateway.fleet_rows import FleetRows
from tests.gateway.gateway_process import Answer, GatewayProcess, running, until
from tests.gateway.openai_upstream import RunningUpstream, running_upstream

HELLO: Any = [{"role": "user", "content": "hello"}]
_numbers = count(1)


@dataclass
class Door:
    """The shared gateway and the fleet it reads."""

    gateway: GatewayProcess
    rows: FleetRows


@asynccontextmanager
async def open_door(url: str, environment: dict[str, str], directory: Path) -> AsyncIterator[Door]:
    rows = FleetRows(url)
    rows.model("nobody-asks")
    gateway = GatewayProcess(environment, directory, rows.tenant("door"))
    async with running(gateway):
        yield Door(gateway, rows)


class Scene:
    """One test's model, servers, tenant and client."""

    def __init__(
        self,
        door: Door,
        model: str,
        tenant: str,
        key: str,
        client: openai.AsyncOpenAI,
        upstreams: list[RunningUpstream],
    ) -> None:
        self.gateway = door.gateway
        self.rows = door.rows
        self.model = model
        self.tenant = tenant
        self.key = key
        self.client = client
        self.upstreams = upstreams

    @property
    def attempts(self) -> int:
        return sum(upstream.stats["requests"] for upstream in self.upstreams)

    @property
    def active(self) -> int:
        return sum(upstream.stats["active"] for upstream in self.upstreams)

    def behave(self, **script: object) -> None:
        """The same script for all servers."""
        for upstream in self.upstreams:
            upstream.behave(**script)

    async def chat(self, **more: Any) -> Any:
        """A chat completion, or its stream, by the official client."""
        return await self.client.chat.completions.create(
            **{"model": self.model, "messages": HELLO, **more}
        )

    async def post(self, path: str = "/v1/chat/completions", **body: Any) -> Answer:
        """The same without the client."""
        headers = {"authorization": f"Bearer {self.key}", **body.pop("headers", {})}
        sent = {"model": self.model, "messages": HELLO, **body}
        return await self.gateway.request("POST", path, json=sent, headers=headers)

    async def replicas(self) -> list[Any]:
        """What the gateway knows of this test's servers."""
        state = await self.gateway.state()
        return [each for each in state["replicas"] if each["model"] == self.model]

    async def learned(self, replicas: int) -> None:
        """Wait until the gateway has probed as many."""

        async def known() -> bool:
            found = await self.replicas()
            usable = ("healthy", "degraded")  # a crowded one is known too
            return len(found) == replicas and all(r["status"] in usable for r in found)

        await until(known, 10.0, f"{replicas} usable replicas")

    async def charged(self, tokens: int | None = None) -> list[tuple[int, int, int]]:
        """Requests, prompt and completion tokens in the books, once they hold `tokens` of
        completion."""

        def read() -> Any:
            found = self.rows.execute(
                "SELECT coalesce(sum(requests), 0)::int, coalesce(sum(prompt_tokens), 0)::int,"
                " coalesce(sum(completion_tokens), 0)::int FROM fleet_usageminute"
                " WHERE tenant = %s",
                self.tenant,
            )
            return found if tokens is None or found[0][2] >= tokens else None

        return list(await until(read, 10.0, f"{tokens} tokens in the books"))


@asynccontextmanager
async def set_scene(
    door: Door, *, scripts: tuple[dict[str, Any], ...] = ({}, {})
) -> AsyncIterator[Scene]:
    """A new model behind the shared gateway; `scripts` is how its servers begin."""
    number = next(_numbers)
    model, tenant = f"m{number}", f"tenant-{number}"
    door.rows.model(model)
    key = door.rows.tenant(tenant)
    async with AsyncExitStack() as exits:
        upstreams = []
        for name, script in zip("ab", scripts, strict=True):
            upstream = await exits.enter_async_context(running_upstream(name, model))
            upstream.behave(**script)
            upstreams.append(upstream)
            door.rows.replica(
                f"{name}{number}",
                upstream.address,
                model=model,
                protocol="openai",
                max_concurrency=64,
            )
        client = await exits.enter_async_context(
            openai.AsyncOpenAI(base_url=f"{door.gateway.url}/v1", api_key=key, max_retries=0)
        )
        scene = Scene(door, model, tenant, key, client, upstreams)
        await scene.learned(2)
        try:
            yield scene
        finally:
            door.rows.execute("DELETE FROM fleet_replica WHERE replica_id LIKE %s", f"_{number}")
