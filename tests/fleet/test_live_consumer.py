"""A browser's websocket: who may watch, what is sent, and what a slow one is spared."""

import asyncio
import json
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from channels.db import database_sync_to_async
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import Group, User
from django.test import Client
from pytest_django.fixtures import Settings

from fleet.dashboard import urls as _topics  # noqa: F401  registers every topic
from fleet.live import wire
from fleet.live.consumers import BAD_MESSAGE, SIGNED_OUT, WINDOW
from fleet.live.deltas import apply
from fleet.live.pulse import Pulse, pulse
from halcyon_site.asgi import application
from tests.browser.stage import view

pytestmark = pytest.mark.django_db(transaction=True)


def sign_in() -> str:
    user = User.objects.create_user("vera", password="a-password-for-tests")
    user.groups.add(Group.objects.get_or_create(name="Viewer")[0])
    client = Client()
    client.force_login(user)
    return str(client.cookies["sessionid"].value)


@pytest_asyncio.fixture
async def heart(valkey_url: str, settings: Settings) -> AsyncIterator[Pulse]:
    """The process's pulse, beating for this test only, with nothing heard yet.

    A prefix of its own keeps out the gateways that other workers' tests run meanwhile.
    """
    layers = deepcopy(settings.CHANNEL_LAYERS)
    layers["default"]["CONFIG"]["prefix"] = f"test-{uuid4().hex[:8]}"
    settings.CHANNEL_LAYERS = layers
    pulse.store.__init__()  # type: ignore[misc]
    yield pulse
    await pulse.stop()


@pytest_asyncio.fixture
async def cookie() -> str:
    return await database_sync_to_async(sign_in)()


def dial(cookie: str = "", origin: str = "http://testserver") -> WebsocketCommunicator:
    headers = [(b"origin", origin.encode()), (b"host", b"testserver")]
    if cookie:
        headers.append((b"cookie", f"sessionid={cookie}".encode()))
    return WebsocketCommunicator(application, "/ws/live/", headers)


async def say(socket: WebsocketCommunicator, **message: Any) -> None:
    await socket.send_to(text_data=json.dumps(message))


async def hear(socket: WebsocketCommunicator, timeout_s: float = 15) -> dict[str, Any]:
    received: dict[str, Any] = json.loads(await socket.receive_from(timeout_s))
    return received


async def gateway_says(heart: Pulse, second: int) -> None:
    await heart.hear(wire.pack("gateway-a", second, view(second)))


async def test_whoever_is_not_signed_in_is_told_so_and_sees_nothing(heart: Pulse) -> None:
    socket = dial()
    connected, _ = await socket.connect(timeout=10)
    assert connected
    closed = await socket.receive_output(5)
    assert closed["code"] == SIGNED_OUT
    await socket.disconnect()


async def test_another_sites_page_may_not_watch(heart: Pulse, cookie: str) -> None:
    connected, _ = await dial(cookie, origin="https://elsewhere.example").connect(timeout=10)
    assert not connected


async def test_a_snapshot_comes_first_then_numbered_patches_that_lead_to_the_present(
    heart: Pulse, cookie: str
) -> None:
    await gateway_says(heart, 240)
    socket = dial(cookie)
    await socket.connect(timeout=10)
    await say(socket, do="watch", topic="overview", params={})
    first = await hear(socket)
    assert (first["t"], first["seq"]) == ("snapshot", 1)
    document = first["doc"]
    for expected in (2, 3):
        await say(socket, do="ack", seq=expected - 1)
        await gateway_says(heart, 240 + expected)
        message = await hear(socket)
        assert (message["t"], message["seq"]) == ("delta", expected)
        document = apply(document, message["patch"])
    offered = view(243)["traffic"]["offeredPerS"]
    assert document["tiles"]["offered"]["value"] == f"{offered:.0f}"
    await socket.disconnect()


async def test_a_browser_that_draws_nothing_is_sent_no_backlog_but_then_the_newest(
    heart: Pulse, cookie: str
) -> None:
    await gateway_says(heart, 240)
    socket = dial(cookie)
    await socket.connect(timeout=10)
    await say(socket, do="watch", topic="overview", params={})
    document = (await hear(socket))["doc"]
    heart.advance()
    document = apply(document, (await hear(socket))["patch"])
    for second in range(241, 251):
        await gateway_says(heart, second)
        heart.advance()
    assert await socket.receive_nothing(0.3, 0.05)
    await say(socket, do="ack", seq=WINDOW)
    message = await hear(socket)
    assert message["seq"] == WINDOW + 1
    document = apply(document, message["patch"])
    limit = view(250)["admission"]["limit"]
    assert document["tiles"]["in_flight"]["unit"] == f"of {limit:.0f}"
    await socket.disconnect()


async def test_a_missing_number_is_answered_with_a_snapshot(heart: Pulse, cookie: str) -> None:
    socket = dial(cookie)
    await socket.connect(timeout=10)
    await say(socket, do="watch", topic="fleet", params={})
    await hear(socket)
    await say(socket, do="ack", seq=1)
    await say(socket, do="snapshot")
    assert (await hear(socket))["t"] == "snapshot"
    await socket.disconnect()


async def test_a_paused_page_is_left_alone_and_resumes_with_the_present(
    heart: Pulse, cookie: str
) -> None:
    socket = dial(cookie)
    await socket.connect(timeout=10)
    await say(socket, do="watch", topic="fleet", params={})
    await hear(socket)
    await say(socket, do="ack", seq=1)
    await say(socket, do="pause")
    while not await socket.receive_nothing(0.2, 0.02):  # a tick may have been on its way
        await hear(socket)
    heart.advance()
    assert await socket.receive_nothing(0.3, 0.05)
    await say(socket, do="resume")
    assert (await hear(socket))["t"] == "snapshot"
    await socket.disconnect()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"do": "dance"}',
        '{"do": "watch", "topic": "nothing"}',
        '{"do": "watch", "topic": "fleet", "params": 3}',
        '{"do": "ack", "seq": "x"}',
        '{"do": "watch", "topic": "' + "x" * 5000 + '"}',
    ],
)
async def test_a_senseless_message_ends_the_connection_with_its_reason(
    heart: Pulse, cookie: str, text: str
) -> None:
    socket = dial(cookie)
    await socket.connect(timeout=10)
    await socket.send_to(text_data=text)
    closed = await socket.receive_output(5)
    assert closed["code"] == BAD_MESSAGE
    assert closed["reason"]
    await socket.disconnect()


async def test_filters_of_the_page_filter_the_feed(heart: Pulse, cookie: str) -> None:
    socket = dial(cookie)
    await socket.connect(timeout=10)
    await say(socket, do="watch", topic="fleet", params={"status": "down"})
    message = await hear(socket)
    async with asyncio.timeout(30):
        while message["t"] != "snapshot" or not message["doc"]["tables"]["replicas"]["order"]:
            await gateway_says(heart, 240)  # anew: after three seconds its replicas are unknown
            await say(socket, do="ack", seq=message["seq"])
            await say(socket, do="snapshot")
            message = await hear(socket)
    assert message["doc"]["tables"]["replicas"]["order"] == ["llama-t4-1"]
    await socket.disconnect()


async def test_the_listener_hears_a_gateway_through_the_real_broker(
    heart: Pulse, cookie: str
) -> None:
    from fleet.live.publisher import Publisher

    heart.ensure_started()
    publisher = Publisher("gateway-real")
    async with asyncio.timeout(15):
        while not any(g["id"] == "gateway-real" for g in heart.store.state()["gateways"]):
            await publisher.publish(view(240))
            await asyncio.sleep(0.05)
        await publisher.close()
        while any(g["id"] == "gateway-real" for g in heart.store.state()["gateways"]):
            await asyncio.sleep(0.05)
