"""The client to replicas on real sockets: keep-alive, resending, deadlines, cancelling."""

import asyncio
import ipaddress
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from fleet import forbidden
from fleet.gateway.transports.http_client import Endpoint, HttpClient
from tests.gateway.gateway_process import free_port, until

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A scripted TCP server: what it sends is up to the test."""

    def __init__(self, handler: Handler) -> None:
        self.connections = 0
        self.requests = 0
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "Server":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        for writer in self._writers:
            writer.close()
        self._server.close()
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            await self._handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    return head + await reader.readexactly(length)


def ok(body: bytes = b"fine") -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@pytest_asyncio.fixture
async def client() -> AsyncIterator[HttpClient]:
    own = HttpClient(connect_timeout_s=2.0)
    yield own
    await own.close()


async def ask(client: HttpClient, address: str, within_s: float = 5.0) -> tuple[int, bytes] | str:
    """The answer, or why there was none."""
    done: asyncio.Future[tuple[int, bytes] | str] = asyncio.get_running_loop().create_future()
    client.request(
        address,
        "POST",
        "/execute",
        time.monotonic() + within_s,
        lambda status, _headers, body: done.set_result((status, body)),
        done.set_result,
        body=b"hello",
        media=b"text/plain",
    )
    return await asyncio.wait_for(done, 20.0)


async def test_a_gateway_that_stood_still_blames_no_replica_for_the_connection() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ok())

    client = HttpClient(connect_timeout_s=0.05)
    try:
        async with Server(handler) as server:
            asking = asyncio.create_task(ask(client, server.address))
            while not client._connecting:
                await asyncio.sleep(0)
            await asyncio.sleep(0)  # the connection is under way
            time.sleep(0.5)  # nothing runs here for a while
            assert await asking == (200, b"fine")
    finally:
        await client.close()


async def test_a_connection_is_kept_for_the_next_request(client: HttpClient) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(ok())

    async with Server(handler) as server:
        for _ in range(5):
            assert await ask(client, server.address) == (200, b"fine")
        assert server.connections == 1


async def test_a_connection_that_was_closed_meanwhile_is_replaced_unnoticed(
    client: HttpClient,
) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ok())
        await read_request(reader)  # and closes without a word

    async with Server(handler) as server:
        for _ in range(6):
            assert await ask(client, server.address) == (200, b"fine")
        assert client.resent > 0


async def test_a_fresh_connection_that_dies_is_not_asked_again(client: HttpClient) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    async with Server(handler) as server:
        assert await ask(client, server.address) == "the connection closed before an answer"
        assert server.connections == 1
        assert client.resent == 0


async def test_a_replica_that_dies_over_its_work_is_not_asked_again(client: HttpClient) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ok())
        await read_request(reader)
        await asyncio.sleep(0.3)  # it worked for a while

    async with Server(handler) as server:
        assert await ask(client, server.address) == (200, b"fine")
        assert await ask(client, server.address) == "the connection closed before an answer"
        assert server.connections == 1


async def test_refused_connections_and_silence_have_words(client: HttpClient) -> None:
    answer = await ask(client, f"http://127.0.0.1:{free_port()}")
    assert isinstance(answer, str)
    assert answer.startswith("cannot connect")

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with Server(handler) as server:
        assert await ask(client, server.address, within_s=0.2) == "no answer in time"


async def test_a_name_that_leads_to_a_forbidden_address_by_now_is_told_nothing(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await read_request(reader))
        writer.write(ok())
        await writer.drain()

    async with Server(handler) as server:
        named = server.address.replace("127.0.0.1", "localhost")
        assert not isinstance(await ask(client, named), str)
        monkeypatch.setattr(forbidden, "METADATA", {ipaddress.ip_address("127.0.0.1")})
        answer = await ask(client, named)
        assert answer == "localhost leads to an address that is never allowed"
        assert len(heard) == 1


async def test_answers_of_every_framing_are_read(client: HttpClient) -> None:
    framings = [
        ok(b"sized"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nchu\r\n4\r\nnked\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil the end",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ]
    left = iter(framings)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(next(left))
        await writer.drain()

    async with Server(handler) as server:
        answers = [await ask(client, server.address) for _ in framings]
    assert answers == [(200, b"sized"), (200, b"chunked"), (200, b"until the end"), (204, b"")]


async def test_a_malformed_answer_fails_its_request_alone(client: HttpClient) -> None:
    left = iter([b"what is this\r\n\r\n", ok()])

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(next(left))
        await writer.drain()
        await reader.read(1)

    async with Server(handler) as server:
        answer = await ask(client, server.address)
        assert isinstance(answer, str)
        assert answer.startswith("malformed answer")
        assert await ask(client, server.address) == (200, b"fine")


async def test_cancelling_closes_the_connection_and_says_nothing_more(client: HttpClient) -> None:
    ended = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        assert await reader.read() == b""
        ended.set()

    said: list[object] = []
    async with Server(handler) as server:
        exchange = client.request(
            server.address,
            "GET",
            "/",
            time.monotonic() + 5.0,
            lambda *answer: said.append(answer),
            said.append,
        )
        await until(lambda: server.connections == 1)
        exchange.cancel()
        await asyncio.wait_for(ended.wait(), 5.0)
    assert said == []


async def test_the_replicas_keep_alive_hint_is_honoured(client: HttpClient) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(
                b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=0\r\ncontent-length: 4\r\n\r\nfine"
            )

    async with Server(handler) as server:
        for _ in range(3):
            assert await ask(client, server.address) == (200, b"fine")
        assert server.connections == 3


def test_addresses_are_understood_whole() -> None:
    endpoint = Endpoint("http://user@[::1]:81/base/")
    assert (endpoint.host, endpoint.port, endpoint.netloc, endpoint.prefix) == (
        "::1",
        81,
        "[::1]:81",
        "/base",
    )
    assert Endpoint("https://example.org").port == 443
    assert endpoint.request("GET", "/x", b"", b"", b"").startswith(b"GET /base/x HTTP/1.1\r\n")


@pytest.mark.parametrize("wrong", ["ftp://x", "nonsense", "http://"])
def test_an_address_that_is_none_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Endpoint(wrong)
