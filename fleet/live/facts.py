"""Slow facts beside the live feed: does the database answer, which rollouts are in flight.

Each fact is a blocking function with its own period, run in a thread, never two at once, so
that a database that hangs delays the next look at the facts and nothing else. A fact that
fails keeps its last value and says since when it has been failing; one whose look takes
longer than `LATE_S`, or waits that long behind another's, is failing too.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connection

LATE_S = 6.0  # a connection pool gives up after 5

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Fact:
    """What was last learnt, when, and since when learning fails."""

    load: Callable[[], Any]
    every_s: float
    value: Any = None
    due_s: float = 0.0
    failing_since_ms: int | None = None
    error: str = ""
    awaited: bool = False  # a look was begun and has not ended


class Facts:
    """The registered facts of this process."""

    def __init__(self) -> None:
        self._facts: dict[str, Fact] = {}
        self._task: asyncio.Task[None] | None = None
        self._began_s = 0.0

    def register(self, name: str, load: Callable[[], Any], *, every_s: float) -> None:
        """Look at `load()` every so many seconds. Apps register theirs in `ready()`."""
        self._facts[name] = Fact(load, every_s)

    def get(self, name: str) -> Fact | None:
        return self._facts.get(name)

    def value(self, name: str) -> Any:
        """The last known value; None where nothing was learnt yet."""
        fact = self._facts.get(name)
        return None if fact is None else fact.value

    def now(self, name: str) -> Any:
        """Look at once, in this thread: for a first paint that must not be a second old."""
        fact = self._facts.get(name)
        if fact is None:
            return None
        _learn(fact)
        return fact.value

    def refresh(self, now_s: float) -> None:
        """Start looking at whatever is due, unless a look is still under way."""
        due = [fact for fact in self._facts.values() if fact.due_s <= now_s]
        if self._task is not None and not self._task.done():
            late_s = now_s - self._began_s
            if late_s > LATE_S:
                for fact in self._facts.values():
                    if fact.awaited or fact in due:
                        _failed(fact, f"no answer for {late_s:.0f} s", late_s)
        elif due:
            self._began_s = now_s
            for fact in due:
                fact.due_s = now_s + fact.every_s
                fact.awaited = True
            self._task = asyncio.create_task(self._look(due), name="halcyon-live-facts")

    async def settle(self) -> None:
        """Wait for the look that is under way: a thread cannot be cancelled."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look(self, due: list[Fact]) -> None:
        await sync_to_async(_learn_all, thread_sensitive=False)(due)


def _learn_all(due: list[Fact]) -> None:
    close_old_connections()
    try:
        for fact in due:
            _learn(fact)
    finally:
        close_old_connections()


def _learn(fact: Fact) -> None:
    try:
        fact.value = fact.load()
    except Exception as error:
        _failed(fact, str(error).splitlines()[0] if str(error) else type(error).__name__)
    else:
        fact.failing_since_ms, fact.error = None, ""
    finally:
        fact.awaited = False


def _failed(fact: Fact, error: str, since_s: float = 0.0) -> None:
    if fact.failing_since_ms is None:
        fact.failing_since_ms = round((time.time() - since_s) * 1000)
        log.warning("cannot learn a fact for the dashboard: %s", error)
    fact.error = error


def database_answers() -> bool:
    """The cheapest question there is. Raises where nobody answers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return True


facts = Facts()
facts.register("database", database_answers, every_s=5.0)
