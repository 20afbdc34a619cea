"""The decision feed tells what breakers did, once each."""

from engine.outcomes import Outcome
from tests.engine.harness import Table, replica


def lines(table: Table) -> list[tuple[str, str]]:
    return [(line["subject"], line["text"]) for line in table.scheduler.view()["events"]]


def fail_until_open(table: Table, replica_id: str) -> None:
    """Answer what this replica gets with faults, and what others get well."""
    for _ in range(100):
        if any(replica_id == who and "opened" in text for who, text in lines(table)):
            return
        for _ in range(3):  # one for each: batches are of one
            table.submit(deadline_ms=10_000.0)
        table.advance(10.0)
        for dispatch in list(table.running.values()):
            bad = dispatch.replica_id == replica_id
            table.finish(dispatch, Outcome.FAULT if bad else Outcome.SUCCESS)
    raise AssertionError(f"the breaker of {replica_id} never opened: {lines(table)}")


def serve_well(table: Table) -> None:
    """Half a minute in which every attempt succeeds."""
    for _ in range(300):
        for _ in range(3):
            table.submit(deadline_ms=10_000.0)
        table.advance(100.0)
        for dispatch in list(table.running.values()):
            table.finish(dispatch)


def test_a_trip_and_the_recovery_are_lines_of_the_feed() -> None:
    table = Table([replica(name, max_batch_size=1) for name in "abc"])
    fail_until_open(table, "a")
    opened = [text for who, text in lines(table) if who == "a"]
    assert len(opened) == 1
    assert opened[0].startswith("breaker opened (")
    assert "next try in" in opened[0]
    serve_well(table)
    assert [text for who, text in lines(table) if who == "a"][1:] == [
        "breaker closed: it serves again"
    ]


def test_a_panic_is_told_when_it_begins_and_when_it_is_over() -> None:
    table = Table([replica(name, max_batch_size=1) for name in "ab"])
    for name in ("a", "b"):
        fail_until_open(table, name)
    told = [text for who, text in lines(table) if who == "m/v1"]
    assert told == ["panic: most replicas have tripped, none is ejected"]
    serve_well(table)
    told = [text for who, text in lines(table) if who == "m/v1"]
    assert told[1:] == ["panic is over: tripped replicas are ejected again"]
