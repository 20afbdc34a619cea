"""Facts that are slow to learn: what a page says while a database fails, hangs and comes back."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from fleet.live.facts import LATE_S, Facts

NOW_S = 1000.0


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """Set it, and the database answers again."""
    answers = threading.Event()
    yield answers
    answers.set()


async def test_a_fact_that_fails_keeps_its_last_value_and_says_since_when() -> None:
    facts = Facts()
    said: list[object] = [7, OSError("connection refused\nIs it running?"), 8]

    def load() -> object:
        value = said.pop(0)
        if isinstance(value, Exception):
            raise value
        return value

    facts.register("number", load, every_s=1.0)
    for second, value, error in ((0, 7, ""), (1, 7, "connection refused"), (2, 8, "")):
        facts.refresh(NOW_S + second)
        await facts.settle()
        fact = facts.get("number")
        assert fact is not None
        assert (fact.value, fact.error) == (value, error)
        assert (fact.failing_since_ms is not None) == bool(error)


async def test_a_database_that_hung_was_not_said_to_be_away(hanging: threading.Event) -> None:
    facts = Facts()
    facts.register("hangs", lambda: hanging.wait(60), every_s=2.0)
    facts.register("behind it", lambda: True, every_s=5.0)
    facts.refresh(NOW_S)
    facts.refresh(NOW_S + LATE_S - 1)
    known = [facts.get("hangs"), facts.get("behind it")]
    assert [fact.failing_since_ms for fact in known if fact] == [None, None]
    facts.refresh(NOW_S + LATE_S + 1)
    for fact in known:
        assert fact is not None
        assert fact.failing_since_ms is not None
        assert fact.failing_since_ms <= (time.time() - LATE_S) * 1000
        assert fact.error == "no answer for 7 s"
    hanging.set()
    await facts.settle()
    assert [fact.failing_since_ms for fact in known if fact] == [None, None]


async def test_nobody_waits_for_a_fact(hanging: threading.Event) -> None:
    facts = Facts()
    facts.register("hangs", lambda: hanging.wait(60), every_s=1.0)
    for second in range(5):
        facts.refresh(NOW_S + second)
        await asyncio.sleep(0)
    assert threading.active_count() < 20
    assert facts.value("hangs") is None
    hanging.set()
    await facts.settle()
    assert facts.value("hangs") is True
