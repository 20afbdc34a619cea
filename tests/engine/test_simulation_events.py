"""Virtual time: in order, exactly once, and never backwards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInput
from engine.simulation.events import EventLoop


@given(st.lists(st.floats(0.0, 1000.0), max_size=50))
def test_events_run_in_the_order_of_their_time_and_of_scheduling(times: list[float]) -> None:
    loop = EventLoop()
    seen: list[tuple[float, int]] = []
    for index, at_ms in enumerate(times):
        loop.at(at_ms, lambda at_ms=at_ms, index=index: seen.append((at_ms, index)))  # type: ignore[misc]
    assert loop.run() == len(times)
    assert seen == sorted(seen)


def test_an_event_sees_the_time_it_was_scheduled_for() -> None:
    loop = EventLoop()
    seen: list[float] = []
    for at_ms in (0.1, 0.1 + 0.2, 0.3, 1e9 + 0.1):
        loop.at(at_ms, lambda: seen.append(loop.now_ms()))
    loop.run()
    assert seen == [0.1, 0.3, 0.1 + 0.2, 1e9 + 0.1]


def test_what_is_cancelled_does_not_happen() -> None:
    loop = EventLoop()
    loop.at(5.0, lambda: pytest.fail("cancelled")).cancel()
    assert loop.next_ms() is None
    assert loop.run() == 0


def test_an_event_may_schedule_others() -> None:
    loop = EventLoop()
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(loop.now_ms())
        loop.after(10.0, tick)

    loop.after(10.0, tick)
    loop.run(until_ms=35.0)
    assert ticks == [10.0, 20.0, 30.0]
    assert loop.now_ms() == 35.0
    assert loop.next_ms() == 40.0


def test_the_past_is_closed() -> None:
    loop = EventLoop(100.0)
    with pytest.raises(InvalidInput, match="at_ms"):
        loop.at(99.0, lambda: None)
    with pytest.raises(InvalidInput, match="at_ms"):
        loop.at(float("nan"), lambda: None)
