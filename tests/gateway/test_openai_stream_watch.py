"""Watching a stream go by: what is passed on, what is counted, what is kept back."""

import asyncio
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.types import Request
from fleet.gateway.openai.events import StreamWatch
from fleet.gateway.transports.connection import Connection, Exchange
from fleet.gateway.transports.splice import Pipe, Splice

TOKENS = [
    b'data: {"choices":[{"index":0,"delta":{"content":"w%d "},"finish_reason":null}]}\n\n' % n
    for n in range(5)
]
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}\n\n'
)
DONE = b"data: [DONE]\n\n"
STREAM = b"".join([*TOKENS, FINISH, USAGE, DONE])


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=12))
def test_however_the_network_cuts_it_the_same_events_come_out(cuts: list[int]) -> None:
    watch = StreamWatch(hide_usage=True)
    edges = [0, *sorted(set(cuts)), len(STREAM)]
    said = b"".join(watch.feed(STREAM[a:b]) for a, b in pairwise(edges))
    assert said == STREAM.replace(USAGE, b"")
    assert (watch.prompt_tokens, watch.tokens) == (7, 5)
    assert watch.done
    assert watch.finished


def test_a_client_that_asked_for_usage_gets_every_byte() -> None:
    watch = StreamWatch(hide_usage=False)
    assert watch.feed(STREAM) == STREAM


def test_without_any_usage_the_pieces_are_counted() -> None:
    watch = StreamWatch(hide_usage=True)
    watch.feed(b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n')
    for token in TOKENS:
        watch.feed(token)
    assert watch.tokens == 5
    assert not watch.done


def test_usage_on_the_finish_chunk_is_read_and_the_chunk_is_kept() -> None:
    watch = StreamWatch(hide_usage=True)
    chunk = (
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":3,"completion_tokens":9}}\r\n\r\n'
    )
    assert watch.feed(chunk) == chunk
    assert watch.tokens == 9


def test_a_word_that_looks_like_an_error_is_no_error() -> None:
    watch = StreamWatch(hide_usage=True)
    watch.feed(b'data: {"choices":[{"delta":{"content":"say \\"error\\": 1"}}]}\n\n')
    assert watch.error is None
    watch.feed(b'data: {"error":{"message":"lost a worker","code":500}}\n\n')
    assert watch.error == {"message": "lost a worker", "code": 500}


def test_an_event_without_an_end_is_not_collected_for_ever() -> None:
    watch = StreamWatch(hide_usage=True)
    for _ in range(4):
        watch.feed(b"x" * 1_000_000)
    with pytest.raises(ValueError, match="over"):
        watch.feed(b"x" * 1_000_000)


@given(
    st.lists(st.text(alphabet='ab "\\\n\u00e9:{}[]', max_size=6), max_size=12),
    st.sampled_from(["delta", "text"]),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.sampled_from([b"\n\n", b"\r\n\r\n"]),
)
def test_whatever_the_text_is_each_piece_counts_once(
    texts: list[str], kind: str, separators: tuple[str, str], blank: bytes
) -> None:
    watch = StreamWatch(hide_usage=True)
    for text in texts:
        piece = {"delta": {"content": text}} if kind == "delta" else {"text": text}
        document = {"choices": [{"index": 0, **piece, "finish_reason": None}], "usage": None}
        event = b"data: %b%b" % (json.dumps(document, separators=separators).encode(), blank)
        assert watch.feed(event) == event
    assert watch.tokens == sum(1 for text in texts if text)
    assert not watch.finished
    assert watch.error is None


def test_an_end_an_error_or_a_usage_is_seen_after_any_number_of_like_events() -> None:
    for last, seen in (
        (FINISH, lambda watch: watch.finished),
        (DONE, lambda watch: watch.done),
        (USAGE, lambda watch: watch.prompt_tokens == 7),
        (b'data: {"error":{"message":"lost"}}\n\n', lambda watch: watch.error is not None),
        (TOKENS[0].replace(b"null", b'"length"'), lambda watch: watch.finished),
        (TOKENS[0] + DONE, lambda watch: watch.done),
    ):
        watch = StreamWatch(hide_usage=False)
        for token in TOKENS:
            watch.feed(token)
        assert not seen(watch)
        watch.feed(last)
        assert seen(watch), last


class _Quiet(asyncio.Transport):
    """The other end of a connection whose bytes the test brings itself."""

    def write(self, data: object) -> None:
        pass

    def abort(self) -> None:
        pass


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"".join(
    (b"%x\r\n%b\r\n" if n % 3 else b"%X;note=x\r\n%b\r\n") % (len(event), event)
    for n, event in enumerate([*TOKENS, FINISH, b"0\r\n\r\n", DONE])
)


@given(st.lists(st.integers(1, len(CHUNKED) + 4), max_size=12), st.booleans())
def test_however_the_network_cuts_chunks_the_same_body_comes_out(
    cuts: list[int], whole_chunks: bool
) -> None:
    said: list[bytes] = []
    ends: list[object] = []
    released: list[Connection] = []
    connection = Connection("http://x", released.append, lambda *_: ends.append("lost"))
    connection.connection_made(_Quiet())
    exchange = Exchange("http://x", b"", 0.0, lambda *answer: ends.append(answer[0]), ends.append)
    exchange.on_chunk = said.append
    connection.send(exchange)
    wire = CHUNKED + b"0\r\n\r\n"
    places = {n for n in range(len(wire)) if wire[n - 2 : n] == b"\r\n"} if whole_chunks else set()
    edges = [0, *sorted({*cuts, *places} - {len(wire)}), len(wire)]
    for a, b in pairwise(edges):
        connection.data_received(wire[a:b])
    assert b"".join(said) == b"".join([*TOKENS, FINISH, b"0\r\n\r\n", DONE])
    assert ends == [200]
    assert released == [connection]


def _chunk(event: bytes, upper: bool) -> bytes:
    return (b"%X\r\n%b\r\n" if upper else b"%x\r\n%b\r\n") % (len(event), event)


def _request() -> Request:
    return Request(
        request_id="r", tenant="t", model="m", prompt_tokens=3, deadline_ms=1.0, arrived_ms=0.0
    )


@given(
    st.lists(st.text(alphabet='ab "\\\n\u00e9:{}[]', max_size=30), max_size=12),
    st.booleans(),
    st.sampled_from([b"\n\n", b"\r\n\r\n"]),
)
def test_the_short_road_takes_what_the_long_one_calls_a_piece_of_text_and_nothing_else(
    texts: list[str], upper: bool, blank: bytes
) -> None:
    watch, plain = StreamWatch(hide_usage=True), StreamWatch(hide_usage=True)
    request = _request()
    got: list[bytes] = []
    pipe = Pipe(got.append)
    for text in ["first", *texts]:
        document = {"choices": [{"delta": {"content": text}, "finish_reason": None}]}
        event = b"data: %b%b" % (json.dumps(document).encode(), blank)
        plain.feed(event)
        if watch.around[0] and Splice(watch.around, request, pipe).take(_chunk(event, upper)):
            assert got.pop() == _chunk(event, upper)
            assert text
        else:
            watch.feed(event)
    assert not got
    assert watch.tokens + request.tokens_spent == plain.tokens


def test_the_short_road_leaves_an_end_an_error_a_cut_and_a_slow_reader_alone() -> None:
    watch, pipe = StreamWatch(hide_usage=True), Pipe(lambda _: None)
    request = _request()
    for token in TOKENS:
        watch.feed(token)
    road = Splice(watch.around, request, pipe)
    event = TOKENS[0]
    assert road.take(_chunk(event, False))
    for read in (
        _chunk(FINISH, False),
        _chunk(DONE, False),
        _chunk(USAGE, False),
        _chunk(b'data: {"error":{"message":"lost"}}\n\n', False),
        _chunk(event.replace(b"null", b'"stop"'), False),
        _chunk(event + DONE, False),
        _chunk(event, False) + b"0\r\n\r\n",
        _chunk(event, False)[:-1],
        _chunk(event, False)[:-2] + b"xx",
        b"%x\r\n%b\r\n" % (len(event) + 1, event),
        event,
        b"0\r\n\r\n",
    ):
        assert not road.take(read), read
    pipe.lags = True
    assert not road.take(_chunk(event, False))
    assert request.tokens_spent == 1
    for half in (event[:20], FINISH):
        watch.feed(half)
        assert watch.around == (b"", b"")


def test_the_chunks_of_a_refused_stream_are_its_body_and_no_events() -> None:
    said: list[bytes] = []
    ends: list[tuple[int, bytes]] = []
    connection = Connection("http://x", lambda _: None, lambda *_: None)
    connection.connection_made(_Quiet())
    exchange = Exchange("http://x", b"", 0.0, lambda *a: ends.append((a[0], a[2])), print)
    exchange.on_chunk = said.append
    connection.send(exchange)
    for read in (
        b"HTTP/1.1 400 Bad Request\r\ntransfer-encoding: chunked\r\n\r\n",
        b'3\r\n{"a\r\n',
        b'4\r\n":1}\r\n',
        b"0\r\n\r\n",
    ):
        connection.data_received(read)
    assert ends == [(400, b'{"a":1}')]
    assert said == []
