"""Watching a stream go by: what is passed on, what is counted, what is kept back."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.gateway.openai.events import StreamWatch

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
