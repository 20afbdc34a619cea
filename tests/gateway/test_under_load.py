"""Many clients, many names, large bodies, long runs: what must stay small stays small."""

import asyncio
import io
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import psutil
import pytest

from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess, until
from tests.gateway.scripted_replica import answers, answers_after, rejects_items


def series(page: bytes) -> set[str]:
    """The names and labels of an exposition, without values."""
    lines = page.decode().splitlines()
    return {line.rpartition(" ")[0] for line in lines if line and not line.startswith("#")}


async def quantile_s(measure: Callable[[], Awaitable[Any]], count: int, q: float) -> float:
    """The `q` quantile of how long `measure` takes."""
    took: list[float] = []
    for _ in range(count):
        began = time.monotonic()
        await measure()
        took.append(time.monotonic() - began)
    return sorted(took)[int(q * (len(took) - 1))]


async def bare_posts(gateway: GatewayProcess, bodies: Iterable[dict[str, Any]]) -> None:
    """Bare HTTP on kept connections, 32 at once: the client must not be the slow part."""
    left = iter(bodies)

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        for body in left:
            sent = json.dumps(body).encode()
            writer.write(
                b"POST /v1/infer HTTP/1.1\r\nhost: x\r\nx-api-key: %b\r\n"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (gateway.key.encode(), len(sent), sent)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            await reader.readexactly(length)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client() for _ in range(32)))


def memory_mb(gateway: GatewayProcess) -> float:
    assert gateway.process is not None
    return float(psutil.Process(gateway.process.pid).memory_info().rss / 1e6)


async def test_names_that_clients_invent_make_no_new_series_and_are_not_kept(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    rng = random.Random(7)

    def invented(count: int) -> Iterable[dict[str, Any]]:
        """Half of them name no model, half are sessions that nobody saw before."""
        for number in range(count):
            name = f"{rng.getrandbits(64):x}"
            if number % 2:
                yield {"model": name, "input": "x"}
            else:
                yield {"model": "m", "input": "x", "sessionKey": name, "deadlineMs": 20_000}

    async def strangers(count: int) -> None:
        for _ in range(count):
            await gateway.infer(key=f"hk_{rng.getrandbits(64):x}")
            await gateway.get(f"/{rng.getrandbits(64):x}")

    await bare_posts(gateway, invented(4_000))  # caches and the ring of records fill
    await strangers(1)

    async def complete() -> bool:
        return b"event_loop_lag" in (await gateway.get("/metrics")).body

    await until(complete, 10.0, "every gauge")
    before, before_mb = series((await gateway.get("/metrics")).body), memory_mb(gateway)
    await bare_posts(gateway, invented(10_000))
    await strangers(100)
    page = (await gateway.get("/metrics")).body
    new = series(page) - before
    assert not {line for line in new if "http_responses" not in line and "batches" not in line}, new
    assert len(new) <= 8, new
    assert len(page) < 1_000_000
    assert memory_mb(gateway) < 1.08 * before_mb


async def test_a_thousand_slow_requests_do_not_slow_the_health_page(stack: Stack) -> None:
    stack.rows.model()
    release = asyncio.Event()
    replica = await stack.replica(answers_after(release), max_batch_size=1, max_concurrency=1024)
    gateway = await stack.gateway(stack.rows.tenant())

    async def health() -> None:
        assert (await gateway.get("/healthz")).status == 200

    held = [asyncio.create_task(gateway.infer(deadlineMs=120_000)) for _ in range(1000)]

    async def all_in() -> bool:
        law = (await gateway.state())["conservation"]
        return bool(law["arrived"] >= 1000)

    await until(all_in, 30.0, "a thousand requests")
    assert min([await quantile_s(health, 100, 0.99) for _ in range(4)]) < 0.2
    release.set()
    replica.behave = answers()
    done = await asyncio.gather(*held)
    assert {answer.status for answer in done} <= {200, 503}
    law = await gateway.settled(20.0)
    assert law["balanced"]
    assert law["failed"] == 0


async def test_a_huge_body_does_not_hold_up_the_others(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    headers = {"x-api-key": gateway.key, "content-type": "application/json"}
    huge = json.dumps({"model": "m", "input": "x" * 5_000_000}).encode()
    large = json.dumps({"model": "m", "input": "x" * 1_900_000}).encode()

    async def one() -> None:
        assert (await gateway.infer(deadlineMs=20_000)).status == 200

    async def send(body: bytes) -> None:
        await gateway.request("POST", "/v1/infer", data=io.BytesIO(body), headers=headers)

    moved_s: list[float] = []
    while not moved_s or min(moved_s) > 0.05:  # the least: a busy machine is no fault
        assert len(moved_s) < 6, moved_s
        alone_s = await quantile_s(one, 100, 0.99)
        sending = [asyncio.create_task(send(body)) for body in (huge, large, huge, large)]
        beside_s = await quantile_s(one, 100, 0.99)
        await asyncio.gather(*sending)
        moved_s.append(beside_s - alone_s)


@pytest.mark.slow
async def test_memory_comes_to_rest_under_steady_traffic_with_failures(stack: Stack) -> None:
    stack.rows.model()
    await stack.replica(
        rejects_items(lambda item: item["input"].endswith(("07", "27", "47", "67", "87")))
    )
    gateway = await stack.gateway(stack.rows.tenant())
    body = {"model": "m", "input": "", "deadlineMs": 20_000}

    def requests(count: int) -> Iterable[dict[str, Any]]:
        return ({**body, "input": f"request {number}"} for number in range(count))

    await bare_posts(gateway, requests(8_000))  # caches and the ring of decision records fill
    settled_mb = memory_mb(gateway)
    await bare_posts(gateway, requests(16_000))
    assert memory_mb(gateway) < 1.05 * settled_mb
    law = await gateway.settled(10.0)
    assert law["balanced"]
    assert law["arrived"] == 24_000
    page = (await gateway.get("/metrics")).body.decode()
    assert 'halcyon_gateway_waiting{process="0"} 0.0' in page
    assert 'halcyon_gateway_attempts_running{process="0"} 0.0' in page


async def test_idle_connections_are_let_go(stack: Stack) -> None:
    stack.rows.model()
    gateway: GatewayProcess = await stack.gateway(stack.rows.tenant(), idle_s=1.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    async with asyncio.timeout(15):
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
