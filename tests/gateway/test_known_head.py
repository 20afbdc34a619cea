"""A head that was seen before goes by the parser, and nobody can tell."""

import asyncio
import json

import httptools
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from fleet.gateway.call import Call
from fleet.gateway.known_head import KnownHead, learn
from fleet.gateway.wire import WireProtocol
from fleet.gateway.wire_call import HotRoutes
from tests.gateway.conftest import Stack
from tests.gateway.gateway_process import GatewayProcess, until

LONGEST = 64
HEADERS = (b"host: x", b"x-api-key: k", b"accept: */*")


class Parsed:
    """What llhttp makes of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.bodies: list[bytes] = []
        self.whole = 0
        self.headers: dict[bytes, bytes] = {}
        httptools.HttpRequestParser(self).feed_data(data)

    def on_message_begin(self) -> None:
        self.bodies.append(b"")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self.bodies[-1] += body

    def on_message_complete(self) -> None:
        self.whole += 1


def request(headers: tuple[bytes, ...], body: bytes, place: int = 1, colon: bytes = b": ") -> bytes:
    length = b"Content-Length%b%d" % (colon, len(body))
    lines = (*headers[:place], length, *headers[place:])
    return b"POST /v1/infer HTTP/1.1\r\n" + b"\r\n".join(lines) + b"\r\n\r\n" + body


def known(data: bytes) -> KnownHead:
    async def begin(_: object) -> None: ...

    head = learn(data, "/v1/infer", {}, begin, LONGEST)
    assert head is not None
    return head


bodies = st.binary(max_size=LONGEST)


@given(bodies, bodies, st.integers(0, 3), st.sampled_from([b":", b": ", b":  "]))
def test_the_same_head_with_another_length_is_read_as_the_parser_reads_it(
    first: bytes, then: bytes, place: int, colon: bytes
) -> None:
    data = request(HEADERS, then, place, colon)
    assert known(request(HEADERS, first, place, colon)).body_of(data, LONGEST) == then
    assert Parsed(data).bodies == [then]


@given(bodies, bodies, st.data())
def test_whatever_is_not_one_whole_request_with_that_head_is_left_to_the_parser(
    first: bytes, then: bytes, draw: st.DataObject
) -> None:
    head = known(request(HEADERS, first))
    data = request(HEADERS, then)
    cut = draw.draw(st.integers(0, len(data) - 1))
    assert head.body_of(data[:cut], LONGEST) is None
    assert head.body_of(data + b"P", LONGEST) is None
    assert head.body_of(data + data, LONGEST) is None
    place = draw.draw(st.integers(0, len(data) - len(then) - 1))
    other = bytes([data[place] ^ draw.draw(st.integers(1, 255))])
    changed = data[:place] + other + data[place + 1 :]
    found = head.body_of(changed, LONGEST)
    if found is not None:  # a digit of the length became one that means the same
        assert Parsed(changed).bodies == [found] == [then]


def test_a_body_over_the_limit_and_a_length_in_odd_words_are_left_to_the_parser() -> None:
    head = known(request(HEADERS, b"ab"))
    assert head.body_of(request(HEADERS, b"x" * (LONGEST + 1)), LONGEST) is None
    for words in (b"2 ", b"+2", b"0x2", b"", b"2,2"):
        data = request(HEADERS, b"ab").replace(b"Length: 2", b"Length: " + words)
        assert head.body_of(data, LONGEST) is None, words


def test_a_head_that_says_its_length_twice_or_not_at_all_is_not_learned() -> None:
    async def begin(_: object) -> None: ...

    twice = request((*HEADERS, b"content-length: 2"), b"ab")
    without = b"POST / HTTP/1.1\r\nhost: x\r\n\r\n"
    for data in (twice, without, request(HEADERS, b"ab")[:-1], request(HEADERS, b"ab") * 2, b""):
        assert learn(data, "/", {}, begin, LONGEST) is None


class Kept:
    """One connection to a gateway that is kept."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway

    async def __aenter__(self) -> "Kept":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._gateway.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    def request(self, text: str, key: str | None = None) -> bytes:
        body = json.dumps({"model": "m", "input": text}).encode()
        headers = (
            b"host: x",
            b"content-type: application/json",
            b"x-api-key: " + (key or self._gateway.key).encode(),
        )
        return request(headers, body, 2)

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def status(self) -> int:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        await self.reader.readexactly(length)
        return int(head.split()[1])


async def test_a_kept_connection_is_answered_alike_however_its_requests_arrive(
    stack: Stack,
) -> None:
    stack.rows.model()
    replica = await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    async with Kept(gateway) as kept:
        sent: list[str] = []
        for text in ("one", "another", "a third that is longer than the others"):
            await kept.send(kept.request(text))  # the second and third by comparing
            assert await kept.status() == 200
            sent.append(text)
        two = kept.request("pipelined") + kept.request("behind it")
        await kept.send(two)
        assert [await kept.status(), await kept.status()] == [200, 200]
        for cut in (10, len(kept.request("cut")) - 5):
            data = kept.request("cut")
            await kept.send(data[:cut], data[cut:])
            assert await kept.status() == 200
        await kept.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        assert await kept.status() == 200
        await kept.send(kept.request("the last"))
        assert await kept.status() == 200
    assert replica.seen.inputs == [*sent, "pipelined", "behind it", "cut", "cut", "the last"]


async def test_a_request_that_comes_between_two_answers_does_not_overtake_the_one_in_line() -> None:
    begun: list[Call] = []
    hot = HotRoutes({b"/v1/infer": begun.append}, lambda: "id", lambda _path, _status: None)
    config = uvicorn.Config(lambda: None, http="httptools", ws="none", lifespan="off")
    config.load()
    made: list[WireProtocol] = []

    def make() -> WireProtocol:
        made.append(WireProtocol(config, ServerState(), {}, hot=hot))
        return made[-1]

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request(HEADERS, b"first"))
        await until(lambda: len(begun) == 1)
        begun[0].answer(200, b"{}")  # its head is known from here on
        writer.write(request(HEADERS, b"a") + request(HEADERS, b"b"))
        await until(lambda: len(begun) == 2)
        begun[1].answer(200, b"{}")
        made[0].data_received(request(HEADERS, b"c"))  # before the loop has turned
        for place, body in ((2, b"b"), (3, b"c")):
            await until(lambda place=place: len(begun) == place + 1)
            assert begun[place].body == body
            begun[place].answer(200, b"{}")
    finally:
        writer.close()
        await writer.wait_closed()
        server.close()


async def test_a_key_that_a_connection_has_used_is_refused_once_it_is_revoked(
    stack: Stack,
) -> None:
    stack.rows.model()
    await stack.replica()
    gateway = await stack.gateway(stack.rows.tenant())
    async with Kept(gateway) as kept:

        async def answered(key: str | None = None) -> int:
            await kept.send(kept.request("hello", key))
            return await kept.status()

        assert [await answered() for _ in range(3)] == [200, 200, 200]
        assert await answered("hk_" + "0" * (len(gateway.key) - 3)) == 401  # the same but the key
        assert await answered() == 200
        stack.rows.execute("UPDATE fleet_apikey SET revoked_at = now()")

        async def refused() -> bool:
            return await answered() == 401

        await until(refused, 5.0, "the refusal")
        stack.rows.execute("UPDATE fleet_apikey SET revoked_at = NULL")

        async def taken() -> bool:
            return await answered() == 200

        await until(taken, 5.0, "the key's return")
