"""What the SLO says of answers that are written: to the first token, not to the last."""

from engine.actions import ItemResult
from engine.outcomes import Outcome
from engine.types import Protocol
from tests.engine.harness import Table, replica

SLO_MS = 1000.0  # of the harness' model, the default
AT_ONCE, WAVES = 40, 30


def servers() -> Table:
    """Four servers with room for sixteen each."""
    names = ("a", "b", "c", "d")
    return Table([replica(name, protocol=Protocol.OPENAI, max_concurrency=16) for name in names])


def wave(
    table: Table, *, first_ms: float | None, total_ms: float, tokens: int, deadline_ms: float = 6e4
) -> int:
    """`AT_ONCE` requests side by side, as streams or (first_ms None) as whole answers. Returns
    how many were refused."""
    sent = [
        table.submit(tokens=64, max_output_tokens=4000, deadline_ms=deadline_ms)
        for _ in range(AT_ONCE)
    ]
    table.poll()
    running = list(table.running.values())
    if first_ms is not None:
        table.advance(first_ms)
        for dispatch in running:
            table.scheduler.first_byte(dispatch.lease_id)
    table.advance(total_ms - (first_ms or 0.0))
    for dispatch in running:
        if dispatch.lease_id in table.running:
            item = ItemResult(Outcome.SUCCESS, None, 64, tokens)
            table.finish(dispatch, items=[item], first_byte_ms=first_ms)
    return sum(not isinstance(name, str) for name in sent)


def limit(table: Table) -> float:
    return table.scheduler.view()["admission"]["limit"]


def test_streams_that_last_longer_than_the_slo_do_not_shrink_the_limit() -> None:
    table = servers()
    before = limit(table)
    refused = [wave(table, first_ms=40.0, total_ms=8 * SLO_MS, tokens=400) for _ in range(WAVES)]
    assert sum(refused) == 0
    assert limit(table) >= before


def test_long_answers_do_not_shrink_the_limit() -> None:
    table = servers()
    before = limit(table)
    refused = [wave(table, first_ms=None, total_ms=8 * SLO_MS, tokens=1200) for _ in range(WAVES)]
    assert sum(refused) == 0
    assert limit(table) >= before


def test_streams_that_their_deadline_cuts_short_do_not_shrink_the_limit() -> None:
    table = servers()
    before = limit(table)
    for _ in range(WAVES):
        wave(table, first_ms=40.0, total_ms=9000.0, tokens=400, deadline_ms=5000.0)
    assert limit(table) >= before


def test_streams_that_begin_late_shrink_the_limit() -> None:
    table = servers()
    before = limit(table)
    seen = []
    for _ in range(WAVES):
        wave(table, first_ms=3 * SLO_MS, total_ms=4 * SLO_MS, tokens=50)
        seen.append(limit(table))
    assert min(seen) < before  # and back where it does not help


def test_short_answers_that_take_too_long_shrink_the_limit() -> None:
    table = servers()
    before = limit(table)
    seen = []
    for _ in range(WAVES):
        wave(table, first_ms=None, total_ms=4 * SLO_MS, tokens=50)
        seen.append(limit(table))
    assert min(seen) < before
