"""A batch under construction keeps every promise it makes."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batching.feasibility import alone_ms, earliest_finish_ms, hopeless, latest_start_ms
from engine.batching.form import Draft
from engine.types import WorkUnit
from tests.engine.batching_bench import ENCODER, device, entry

requests = st.lists(
    st.tuples(
        st.floats(1.0, 5000.0),  # work
        st.floats(1.0, 1000.0),  # deadline
        st.integers(1, 20),  # items
    ),
    max_size=60,
)


@settings(max_examples=60)
@given(requests, st.floats(20.0, 300.0), st.sampled_from(list(WorkUnit)))
def test_no_member_is_past_its_deadline_by_prediction_and_no_limit_is_passed(
    offered: list[tuple[float, float, int]], limit_ms: float, unit: WorkUnit
) -> None:
    gpu = device(unit=unit)
    draft = Draft(gpu, 10.0, limit_ms)
    for work, deadline_ms, items in offered:
        draft.add(entry(work, deadline_ms, items=items))
    members = draft.members
    assert sum(member.items for member in members) <= gpu.max_batch_size
    assert sum(member.work for member in members) <= gpu.max_batch_work
    longest = max((member.work / member.items for member in members), default=0.0)
    items = sum(member.items for member in members)
    run_ms = gpu.cost.predict_ms(sum(member.work for member in members), items, longest)
    if members:
        assert math.isclose(draft.run_ms, run_ms, rel_tol=1e-9)
        assert len(members) == 1 or run_ms <= limit_ms
    for member in members:
        assert 10.0 + draft.run_ms + draft.margin_ms <= member.deadline_ms + 1e-6


@settings(max_examples=40)
@given(requests)
def test_whoever_a_batch_of_one_refuses_for_its_deadline_is_hopeless_and_nobody_else(
    offered: list[tuple[float, float, int]],
) -> None:
    gpu = device()
    for work, deadline_ms, items in offered:
        request = entry(work, deadline_ms, items=items)
        assert Draft(gpu, 0.0).add(request) is not hopeless(request, [gpu], 0.0)


def test_a_request_larger_than_every_device_can_never_start() -> None:
    request = entry(20_000.0, 1e9)
    assert alone_ms(request, [device()]) == math.inf
    assert latest_start_ms(request, [device()]) == -math.inf
    assert earliest_finish_ms(entry(100.0, 1e9), [device()], 50.0, 0.0) > 70.0


def test_a_first_member_may_be_longer_than_the_slot() -> None:
    draft = Draft(device(), 0.0, 60.0)
    assert draft.add(entry(4000.0, 10_000.0))
    assert not draft.add(entry(16.0, 10_000.0))


def test_a_replica_that_failed_a_request_does_not_get_it_again() -> None:
    draft = Draft(device("gpu0"), 0.0)
    assert not draft.add(entry(100.0, 1000.0, tried=("gpu0",)))
    assert draft.add(entry(100.0, 1000.0, tried=("gpu1",)))


def test_a_long_text_does_not_make_fifteen_short_ones_pay_for_its_padding() -> None:
    encoder = device(unit=WorkUnit.PADDED_QUADRATIC, prior=ENCODER)
    draft = Draft(encoder, 0.0)
    for _ in range(15):
        assert draft.add(entry(16.0, 10_000.0))
    assert not draft.add(entry(256.0, 10_000.0))
    assert draft.add(entry(16.0, 10_000.0))
