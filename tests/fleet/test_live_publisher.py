"""The gateway's mouth: never waits, never raises, never holds more than one view."""

import asyncio
from typing import Any

import pytest
from channels_redis.core import RedisChannelLayer

from fleet.live import wire
from fleet.live.publisher import Publisher
from tests.browser.stage import view


class Gate:
    """A channel layer behind a gate that the test opens."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.messages: list[dict[str, Any]] = []

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        await self.open.wait()
        self.messages.append(message)


async def until(condition: Any, within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)


async def test_while_the_layer_is_stuck_only_the_newest_view_waits() -> None:
    gate = Gate()
    publisher = Publisher("a", layer=gate, timeout_s=30)
    for second in range(6):
        await publisher.publish(view(second))
        await asyncio.sleep(0.01)
    gate.open.set()
    await until(lambda: publisher.sent == 2)
    assert publisher.replaced == 4
    newest = wire.unpack(gate.messages[-1])  # type: ignore[arg-type]
    assert newest["conservation"] == view(5)["conservation"]
    await publisher.close()


async def test_a_layer_that_never_answers_is_given_up_and_counted() -> None:
    publisher = Publisher("a", layer=Gate(), timeout_s=0.02)
    await publisher.publish(view(1))
    await until(lambda: publisher.failed == 1)
    assert publisher.last_error is not None
    assert "Timeout" in publisher.last_error


async def test_a_view_that_cannot_be_encoded_is_counted_and_the_next_one_goes_out() -> None:
    gate = Gate()
    gate.open.set()
    publisher = Publisher("a", layer=gate)
    await publisher.publish({"bad": object()})
    await until(lambda: publisher.failed == 1)
    await publisher.publish(view(1))
    await until(lambda: publisher.sent == 1)
    assert publisher.last_error is None
    await publisher.close()


async def test_closing_says_farewell() -> None:
    gate = Gate()
    gate.open.set()
    publisher = Publisher("a", layer=gate)
    await publisher.close()
    assert [message["type"] for message in gate.messages] == ["gateway.gone"]


def test_not_a_number_travels_as_no_data() -> None:
    packed = wire.pack("a", 1, {"p95Ms": float("nan"), "limit": float("inf")})
    assert wire.unpack(packed) == {"p95Ms": None, "limit": None}


def test_bytes_that_are_no_view_are_told_apart() -> None:
    envelope: wire.Envelope = {"type": "gateway.view", "gateway": "a", "seq": 1, "body": b"?"}
    with pytest.raises(ValueError, match="gateway a"):
        wire.unpack(envelope)


async def test_a_view_comes_through_the_real_channel_layer_whole(valkey_url: str) -> None:
    layer = RedisChannelLayer(hosts=[valkey_url], prefix="test-publisher")
    channel = await layer.new_channel()
    await layer.group_add(wire.GROUP, channel)
    publisher = Publisher("a", layer=layer)
    await publisher.publish(view(240))
    async with asyncio.timeout(10):
        message = await layer.receive(channel)
    assert wire.unpack(message)["replicas"] == view(240)["replicas"]
    assert message["seq"] == 1
    await publisher.close()
    await layer.close_pools()
