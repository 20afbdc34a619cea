"""The resizable limit: one count, whatever happens to the bar."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import BrokenInvariant, InvalidInput
from engine.regulation.semaphore import ResizableLimit, Slot


@given(
    start=st.integers(1, 8),
    steps=st.lists(
        st.one_of(
            st.just("take"),
            st.integers(0, 20).map(lambda place: ("give", place)),
            st.integers(1, 8).map(lambda limit: ("resize", limit)),
        ),
        max_size=80,
    ),
)
def test_a_resized_limit_never_runs_more_than_were_running_or_are_allowed(
    start: int, steps: list[str | tuple[str, int]]
) -> None:
    limit = ResizableLimit(start)
    held: list[Slot] = []
    running_at_resize = 0
    for step in steps:
        if step == "take":
            before = limit.in_use
            slot = limit.try_acquire()
            assert (slot is not None) == (before < limit.limit)
            if slot is not None:
                held.append(slot)
        elif step[0] == "give" and held:
            held.pop(int(step[1]) % len(held)).release()
            running_at_resize = min(running_at_resize, limit.in_use)
        elif step[0] == "resize":
            running_at_resize = limit.in_use
            limit.resize(int(step[1]))
        assert limit.in_use == len(held) <= max(running_at_resize, limit.limit)
        assert limit.free == max(0, limit.limit - limit.in_use)


def test_a_cut_starts_nothing_until_enough_of_the_old_work_has_ended() -> None:
    limit = ResizableLimit(4)
    slots = [limit.try_acquire() for _ in range(4)]
    limit.resize(2)
    for slot in slots[:2]:
        assert slot is not None
        slot.release()
        assert limit.try_acquire() is None
    assert slots[2] is not None
    slots[2].release()
    assert limit.try_acquire() is not None


def test_a_slot_given_back_twice_is_a_bug_and_not_a_wider_limit() -> None:
    limit = ResizableLimit(1)
    slot = limit.try_acquire()
    assert slot is not None
    slot.release()
    with pytest.raises(BrokenInvariant):
        slot.release()
    assert limit.in_use == 0


def test_a_limit_of_nothing_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="limit=0"):
        ResizableLimit(0)
