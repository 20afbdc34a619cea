"""Streams: bounded for slow readers, never begun twice, closed when nobody reads."""

import asyncio
import json
import socket

import pytest

from tests.gateway.gateway_process import until
from tests.gateway.openai_scene import HELLO, Scene

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEGABYTE = 1024 * 1024


async def test_a_slow_reader_stops_the_server_and_gets_everything_in_the_end(
    scene: Scene,
) -> None:
    tokens, size = 6000, 8000
    for upstream in scene.upstreams:
        upstream.name = "x" * size
    scene.behave(tokens=tokens)
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", scene.gateway.port))
        body = json.dumps({"model": scene.model, "messages": HELLO, "stream": True}).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {scene.key}"
            f"\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        await loop.sock_sendall(sock, head.encode() + body)
        said = [0, 0]

        def stalled() -> bool:
            """Nothing new in twenty looks: the server waits for the reader."""
            written = sum(u.stats["tokens"] for u in scene.upstreams)
            said[1] = said[1] + 1 if written == said[0] else 0
            said[0] = written
            return written > 0 and said[1] >= 20

        await until(stalled, 20.0, "a server that waits")
        assert said[0] * size < 24 * MEGABYTE < tokens * size
        got = bytearray()
        while not got.endswith(b"0\r\n\r\n"):
            got += await asyncio.wait_for(loop.sock_recv(sock, MEGABYTE), 20.0)
    assert got.count(b'"finish_reason":null') == tokens
    assert got.count(b"[DONE]") == 1


async def test_no_hedge_and_no_retry_once_a_stream_has_begun(scene: Scene) -> None:
    for _ in range(20):
        await scene.chat(max_tokens=1)  # what is usual: a few milliseconds
    before = scene.attempts
    scene.behave(tokens=6, token_delay_ms=150)
    stream = await scene.chat(stream=True)
    text = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    assert len("".join(text).split()) == 6
    assert scene.attempts == before + 1


async def test_a_stream_is_as_the_server_sent_it_byte_for_byte(scene: Scene) -> None:
    through = await scene.post(stream=True, stream_options={"include_usage": True})
    direct = await scene.gateway.session.post(  # type: ignore[union-attr]
        f"{scene.upstreams[0].address}/v1/chat/completions",
        json={
            "model": scene.model,
            "messages": HELLO,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    )
    said = await direct.read()
    assert through.body.replace(b"b ", b"a ") == said
    assert through.headers["content-type"].startswith("text/event-stream")


async def test_a_total_deadline_ends_a_stream_with_an_error_event(scene: Scene) -> None:
    scene.behave(tokens=100, token_delay_ms=100)
    answer = await scene.post(stream=True, headers={"x-halcyon-deadline-ms": "600"})
    assert answer.status == 200
    assert b"deadline_exceeded" in answer.body
    assert b"[DONE]" not in answer.body
    assert answer.took_s < 2.0
    await until(lambda: scene.active == 0, 1.0, "a closed upstream")


async def test_leaving_in_the_middle_of_a_stream_closes_the_server(scene: Scene) -> None:
    scene.behave(tokens=100, token_delay_ms=50)
    stream = await scene.chat(stream=True)
    async for _ in stream:
        break
    await stream.close()
    await until(lambda: scene.active == 0, 1.0, "a closed upstream")
    assert all(replica["breaker"]["trips"] == 0 for replica in await scene.replicas())


async def test_many_readers_of_long_answers_do_not_wait_for_one_another(scene: Scene) -> None:
    """More than a server is given before anything is known of it, all before the first ends."""
    readers = 80
    scene.behave(tokens=600, token_delay_ms=100)
    streams = [asyncio.create_task(scene.chat(stream=True)) for _ in range(readers)]
    try:
        await until(lambda: scene.active == readers, 20.0, "every stream under way")
        assert all(upstream.stats["completed"] == 0 for upstream in scene.upstreams)
    finally:
        for stream in await asyncio.gather(*streams):
            await stream.close()
    await until(lambda: scene.active == 0, 5.0, "closed upstreams")
