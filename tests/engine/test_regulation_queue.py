"""Weighted fair queueing: shares under contention, order within a class, bounds, departures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import UnknownName
from engine.regulation.fair_queue import FairQueue, QueueClass, Waiting


def two_classes(capacity: int = 500) -> FairQueue[str]:
    return FairQueue(
        [
            QueueClass(name="premium", weight=3.0, capacity=capacity),
            QueueClass(name="standard", weight=1.0, capacity=capacity),
        ]
    )


def put(queue: FairQueue[str], priority: str, work: float = 1.0) -> Waiting[str] | None:
    return queue.offer(priority, priority=priority, now_ms=0.0, expires_ms=10_000.0, work=work)


def test_premium_gets_three_quarters_of_the_work_while_both_wait() -> None:
    queue = two_classes()
    for _ in range(400):
        put(queue, "premium")
        put(queue, "standard")
    served = [entry.item for _ in range(200) if (entry := queue.pop()) is not None]
    assert served.count("premium") == pytest.approx(150, abs=1)


def test_shares_are_of_work_and_not_of_turns() -> None:
    queue = two_classes()
    for _ in range(400):
        put(queue, "premium", work=4.0)
        put(queue, "standard", work=1.0)
    work = {"premium": 0.0, "standard": 0.0}
    for _ in range(300):
        entry = queue.pop()
        assert entry is not None
        work[entry.item] += entry.work
    assert work["premium"] / work["standard"] == pytest.approx(3.0, rel=0.05)


def test_a_lone_class_gets_everything_and_saves_up_nothing() -> None:
    queue = two_classes()
    for _ in range(100):
        put(queue, "standard")
    for _ in range(100):
        assert queue.pop() is not None
    for _ in range(40):
        put(queue, "premium")
        put(queue, "standard")
    served = [entry.item for _ in range(20) if (entry := queue.pop()) is not None]
    assert served.count("premium") == pytest.approx(15, abs=1)


def test_a_flood_of_standard_does_not_delay_a_premium_request() -> None:
    queue = two_classes()
    for _ in range(300):
        put(queue, "standard")
    put(queue, "premium")
    first = [entry.item for _ in range(2) if (entry := queue.pop()) is not None]
    assert "premium" in first


def test_a_full_class_says_so_and_leaves_the_other_its_room() -> None:
    queue = two_classes(capacity=2)
    assert put(queue, "standard") is not None
    assert put(queue, "standard") is not None
    assert put(queue, "standard") is None
    assert put(queue, "premium") is not None


def test_what_waited_too_long_leaves_in_the_order_of_its_time() -> None:
    queue = two_classes()
    for expires_ms in (30.0, 10.0, 20.0):
        queue.offer("x", priority="standard", now_ms=0.0, expires_ms=expires_ms)
    assert queue.next_expiry_ms() == 10.0
    assert [entry.expires_ms for entry in queue.expire(20.0)] == [10.0, 20.0]
    assert len(queue) == 1


def test_an_unknown_class_is_named_with_those_that_exist() -> None:
    with pytest.raises(UnknownName, match=r"gold.*premium, standard"):
        put(two_classes(), "gold")


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["premium", "standard"]),
            st.just("pop"),
            st.integers(0, 50).map(lambda place: ("remove", place)),
        ),
        max_size=120,
    )
)
def test_whatever_comes_and_goes_the_depth_is_what_waits(
    steps: list[str | tuple[str, int]],
) -> None:
    queue = two_classes(capacity=10)
    inside: dict[str, list[Waiting[str]]] = {"premium": [], "standard": []}
    for step in steps:
        if step == "pop":
            entry = queue.pop()
            everything = inside["premium"] + inside["standard"]
            assert (entry is None) == (not everything)
            if entry is not None:
                assert inside[entry.item].pop(0) is entry
        elif isinstance(step, tuple):
            everything = inside["premium"] + inside["standard"]
            if everything:
                victim = everything[step[1] % len(everything)]
                assert queue.remove(victim)
                assert not queue.remove(victim)
                inside[victim.item].remove(victim)
        elif (put_entry := put(queue, step)) is not None:
            inside[step].append(put_entry)
        for name, entries in inside.items():
            assert queue.depth(name) == len(entries) <= 10
        assert len(queue) == sum(map(len, inside.values()))
