"""What the decision feed says of breakers and panic, and what may not push it out."""

from dataclasses import replace
from typing import Any

from engine.outcomes import Outcome
from engine.scheduling.state import SchedulerConfig
from engine.types import Strategy
from engine.view import EventView
from tests.engine.harness import Table, replica, snapshot


def in_turn(config: SchedulerConfig | None = None) -> Table:
    """Three replicas that take turns, so that a failing one goes on getting requests."""
    shot = snapshot([replica(name) for name in "abc"])
    model = replace(shot.models["m"], strategy=Strategy.ROUND_ROBIN)
    return Table(shot=replace(shot, models={"m": model}), config=config)


def feed(table: Table, kind: str) -> list[EventView]:
    return [event for event in table.scheduler.view()["events"] if event["kind"] == kind]


def fail(table: Table, requests: int, bad: str) -> None:
    """Send requests one by one; `bad` fails what it gets, the others serve it."""
    for _ in range(requests):
        table.submit(deadline_ms=3_000.0)
        table.advance(20.0)
        while table.running:
            dispatch = next(iter(table.running.values()))
            broken = dispatch.replica_id in bad
            table.finish(dispatch, Outcome.FAULT if broken else Outcome.SUCCESS)


def test_a_breaker_that_trips_and_heals_leaves_lines_with_the_numbers_compared() -> None:
    table = in_turn()
    fail(table, 60, "a")
    (opened, *_) = feed(table, "breaker")
    assert opened["subject"] == "a"
    assert opened["text"].startswith("opened: ")
    numbers: Any = opened["numbers"]
    assert numbers["state"] == "open"
    assert numbers["inARow"] >= 5 or numbers["faults"] / numbers["samples"] > 0.2
    assert numbers["retryInMs"] > 0.0
    table.advance(5_000.0)
    fail(table, 40, "")
    closed = feed(table, "breaker")[-1]
    assert closed["text"] == "closed after 3 good answers to probes"
    assert closed["numbers"]["trips"] == 1


def test_a_probe_that_fails_says_that_the_breaker_stays_open() -> None:
    table = in_turn()
    fail(table, 60, "a")
    for _ in range(3):
        table.advance(5_000.0)
        fail(table, 5, "a")
    again = feed(table, "breaker")[1:]
    assert again
    assert all(event["text"].startswith("stays open, a probe failed") for event in again)
    assert all(event["numbers"]["trips"] == 1 for event in again)


def test_panic_says_how_many_have_tripped_and_when_it_is_over() -> None:
    table = in_turn()
    fail(table, 150, "ab")
    begun = feed(table, "panic")[0]
    assert begun["subject"] == "m v1"
    assert begun["numbers"] == {"panic": True, "tripped": 2, "available": 3, "limit": 0.5}
    assert "2 of 3" in begun["text"]
    for _ in range(20):
        table.advance(2_000.0)
        fail(table, 20, "")
    over = feed(table, "panic")[-1]
    assert over["numbers"]["panic"] is False
    assert over["text"].startswith("panic is over")


def test_many_hedges_do_not_wash_a_breaker_out_of_the_feed() -> None:
    table = in_turn(SchedulerConfig(event_size=8))
    fail(table, 60, "a")
    for number in range(100):
        table.scheduler._state.event("hedge", "a", f"hedge {number}", {})
    assert feed(table, "breaker")
    shown = table.scheduler.view()["events"]
    assert len(shown) <= 8
    assert [event["seq"] for event in shown] == sorted(event["seq"] for event in shown)


def test_a_replica_that_started_anew_was_told_as_a_breaker_that_had_closed() -> None:
    shot = snapshot([replica(name) for name in "abc"])
    table = Table(shot=shot)
    table.advance(60_000.0)
    newcomer = replace(shot.replicas["a"], age_s=1.0)
    table.scheduler.apply(replace(shot, revision=2, replicas={**shot.replicas, "a": newcomer}))
    table.advance(20.0)
    assert feed(table, "breaker") == []
