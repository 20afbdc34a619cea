"""The same request twice: joined, replayed, refused, forgotten."""

from typing import Any

import pytest

from fleet.gateway.call import JSON, Call
from fleet.gateway.errors import Headers, Problem
from fleet.gateway.openai.idempotency import MAX_BYTES, MAX_ENTRIES, TTL_S, IdempotencyStore


class HeardCall(Call):
    """A call that keeps what it was told."""

    def __init__(self, body: bytes = b"{}", key: bytes = b"k", who: bytes = b"hk_1") -> None:
        headers = {b"idempotency-key": key, b"x-api-key": who}
        super().__init__("POST", "/v1/completions", b"", headers, body)
        self.said: list[Any] = []

    def answer(self, status: int, body: bytes, headers: Headers = (), media: bytes = JSON) -> None:
        self.said.append((status, body))
        self.settled = True

    def open(self, status: int, headers: Headers = (), media: bytes = b"") -> None:
        self.said.append(status)

    def write(self, chunk: bytes) -> None:
        self.said.append(chunk)

    def close(self) -> None:
        self.settled = True


class Kitchen:
    """An endpoint whose requests run until the test ends them."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.running: list[Call] = []
        self.gone_count = 0
        self.store = IdempotencyStore(lambda: self.now_s)
        self._begin = self.store.wrap(self._start)

    def ask(self, call: HeardCall) -> HeardCall:
        self._begin(call)
        return call

    def gone(self) -> None:
        self.gone_count += 1

    def _start(self, call: Call) -> None:
        call.owner = self
        self.running.append(call)


def test_duplicates_that_come_meanwhile_join_and_hear_it_from_the_beginning() -> None:
    kitchen = Kitchen()
    first = kitchen.ask(HeardCall())
    (running,) = kitchen.running
    running.open(200)
    running.write(b"one")
    second = kitchen.ask(HeardCall())
    running.write(b"two")
    running.close()
    assert len(kitchen.running) == 1
    assert first.said == second.said == [200, b"one", b"two"]
    assert first.settled
    assert second.settled


def test_a_later_duplicate_gets_the_stored_answer_until_it_expires() -> None:
    kitchen = Kitchen()
    kitchen.ask(HeardCall())
    kitchen.running[0].answer(200, b"answer")
    assert kitchen.ask(HeardCall()).said == [(200, b"answer")]
    assert len(kitchen.running) == 1
    kitchen.now_s += TTL_S + 1
    kitchen.ask(HeardCall())
    assert len(kitchen.running) == 2


def test_an_answer_expires_in_its_time_though_an_older_request_still_runs() -> None:
    kitchen = Kitchen()
    kitchen.ask(HeardCall(key=b"long"))
    kitchen.ask(HeardCall(key=b"short"))
    kitchen.running[1].answer(200, b"old")
    kitchen.now_s += TTL_S + 1
    kitchen.ask(HeardCall(key=b"short"))
    assert len(kitchen.running) == 3
    kitchen.ask(HeardCall(key=b"long"))
    assert len(kitchen.running) == 3


def test_the_store_keeps_so_many_answers_and_the_latest() -> None:
    kitchen = Kitchen()
    kitchen.ask(HeardCall(key=b"runs all the time"))
    for number in range(MAX_ENTRIES + 1):
        kitchen.ask(HeardCall(key=b"%d" % number))
        kitchen.running.pop().answer(200, b"answer")
    last, first = b"%d" % MAX_ENTRIES, b"0"
    assert kitchen.ask(HeardCall(key=last)).said == [(200, b"answer")]
    assert kitchen.ask(HeardCall(key=first)).said == []
    kitchen.ask(HeardCall(key=b"runs all the time"))
    assert kitchen.store.joined == 1


def test_the_store_keeps_so_many_bytes_and_the_latest() -> None:
    kitchen = Kitchen()
    answer = bytes(MAX_BYTES // 4)
    for number in range(5):
        kitchen.ask(HeardCall(key=b"%d" % number))
        kitchen.running.pop().answer(200, answer)
    for number in (4, 3, 2, 1):
        assert kitchen.ask(HeardCall(key=b"%d" % number)).said == [(200, answer)]
    assert kitchen.ask(HeardCall(key=b"0")).said == []


def test_the_same_key_with_another_body_is_a_conflict() -> None:
    kitchen = Kitchen()
    kitchen.ask(HeardCall(b"{1}"))
    with pytest.raises(Problem) as caught:
        kitchen.ask(HeardCall(b"{2}"))
    assert caught.value.status == 409


def test_the_same_key_of_another_client_is_another_request() -> None:
    kitchen = Kitchen()
    kitchen.ask(HeardCall(who=b"hk_1"))
    kitchen.ask(HeardCall(who=b"hk_2"))
    assert len(kitchen.running) == 2


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_an_answer_worth_trying_again_is_not_stored(status: int) -> None:
    kitchen = Kitchen()
    kitchen.ask(HeardCall())
    kitchen.running[0].answer(status, b"later")
    kitchen.ask(HeardCall())
    assert len(kitchen.running) == 2


def test_the_work_stops_only_when_the_last_listener_has_left() -> None:
    kitchen = Kitchen()
    first, second = kitchen.ask(HeardCall()), kitchen.ask(HeardCall())
    first.leave()
    assert kitchen.gone_count == 0
    second.leave()
    assert kitchen.gone_count == 1
    kitchen.ask(HeardCall())
    assert len(kitchen.running) == 2
