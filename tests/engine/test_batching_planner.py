"""The planner's queue: who rides, who waits, who is told at once that it cannot be."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.batching.former import BatchPlan, Queued, Wait
from engine.batching.planner import PlannerConfig
from engine.errors import InvalidInput
from engine.types import FlushReason, Lane
from tests.engine.batching_bench import device, entry, form, headline_entry, offer_all, planner


def test_an_urgent_request_runs_before_one_that_was_queued_first_and_can_wait() -> None:
    gpu = device(size=1)
    queue = planner([gpu])
    patient, urgent = offer_all(queue, [entry(100.0, 5000.0), entry(100.0, 300.0)])
    assert form(queue, gpu, 0.0).members == [urgent]
    assert form(queue, gpu, 25.0).members == [patient]


@settings(max_examples=30)
@given(st.lists(st.floats(100.0, 60_000.0), min_size=1, max_size=40))
def test_pools_of_one_request_at_a_time_run_by_earliest_deadline(deadlines: list[float]) -> None:
    gpu = device(size=1)
    queue = planner([gpu])
    offer_all(queue, [entry(100.0, deadline_ms) for deadline_ms in deadlines])
    order = []
    while len(queue) > 0:
        order += [member.deadline_ms for member in form(queue, gpu, 0.0).members]
    assert order == sorted(deadlines)


def test_below_saturation_deferrable_work_leaves_by_earliest_deadline() -> None:
    gpu = device(size=3)
    queue = planner([gpu])
    waiting = offer_all(queue, [entry(100.0, 5000.0 - 100.0 * i) for i in range(9)])
    taken = [member for _ in range(3) for member in form(queue, gpu, 0.0).members]
    assert taken == waiting[::-1]


def test_two_requests_of_twenty_items_are_not_merged_where_a_batch_holds_thirty_two() -> None:
    gpu = device(size=32)
    queue = planner([gpu])
    offer_all(queue, [entry(500.0, 5000.0, items=20), entry(500.0, 5000.0, items=20)])
    assert len(form(queue, gpu, 0.0).members) == 1
    assert len(form(queue, gpu, 0.0).members) == 1


def test_a_batch_limit_of_one_works() -> None:
    gpu = device(size=1)
    queue = planner([gpu])
    offer_all(queue, [entry(100.0, 5000.0) for _ in range(3)])
    assert [len(form(queue, gpu, 0.0).members) for _ in range(3)] == [1, 1, 1]
    assert queue.form(gpu, 0.0) is None


class PickyModel:
    """A cost estimate that raises for one size."""

    fixed_ms = 18.0
    per_work_ms = 0.022
    deviation_ms = 1.0
    deviation_ratio = 0.05

    def __init__(self) -> None:
        self.unit = device().cost.unit

    def predict_ms(self, work: float, count: int = 1, longest: float = 0.0) -> float:
        if work == 13.0:
            raise ArithmeticError("no estimate for 13 tokens")
        return 18.0 + 0.022 * work


def test_a_cost_estimate_that_raises_fails_its_own_request_alone() -> None:
    healthy = device()
    gpu = type(healthy)(
        replica_id="gpu0", cost=PickyModel(), max_batch_size=32, max_batch_work=16_384.0
    )
    queue = planner([gpu])
    offer_all(queue, [entry(100.0, 5000.0)])
    with pytest.raises(ArithmeticError):
        queue.offer(entry(13.0, 5000.0), 0.0)
    offer_all(queue, [entry(200.0, 5000.0)])
    assert len(queue) == 2
    assert [member.work for member in form(queue, gpu, 0.0).members] == [100.0, 200.0]


@pytest.mark.parametrize("work", [0.0, -1.0, math.nan, math.inf])
def test_a_size_that_makes_no_sense_is_refused_and_keeps_nothing(work: float) -> None:
    queue = planner()
    with pytest.raises(InvalidInput, match="work"):
        queue.offer(entry(work, 5000.0), 0.0)
    assert len(queue) == 0
    assert queue.numbers()["queued_work"] == 0.0


def test_a_prompt_of_nine_hundred_kilobytes_is_costed_by_its_size() -> None:
    gpu = device(work=300_000.0)
    queue = planner([gpu])
    (large,) = offer_all(queue, [entry(225_000.0, 60_000.0)])
    plan = form(queue, gpu, 0.0)
    assert plan.members == [large]
    assert plan.predicted_ms == pytest.approx(18.0 + 0.022 * 225_000.0)


def test_what_no_device_has_room_for_is_handed_back_at_once() -> None:
    queue = planner([device(work=16_384.0)])
    (large,) = offer_all(queue, [entry(20_000.0, 60_000.0)])
    assert queue.expire(0.0) == [large]
    assert len(queue) == 0


def test_a_request_is_handed_back_at_the_moment_it_becomes_hopeless() -> None:
    queue = planner()
    (request,) = offer_all(queue, [entry(1000.0, 200.0)])
    assert queue.expire(100.0) == []
    at_ms = queue.next_wake_ms(100.0)
    assert at_ms is not None
    assert 150.0 < at_ms < 160.0  # 200 - (18 + 22) x (1 + 1.3 x 0.08) - 1
    assert queue.expire(at_ms) == [request]
    assert not request.queued
    assert queue.next_wake_ms(at_ms) is None


def test_members_of_a_batch_that_failed_ride_with_their_own_half_alone() -> None:
    first, second = device("gpu0"), device("gpu1")
    queue = planner([first, second])
    failed = [entry(100.0, 2000.0, tried=("gpu0",), split_group=i // 2) for i in range(4)]
    offer_all(queue, [*failed, *(entry(100.0, 2000.0) for _ in range(3))])
    assert form(queue, second, 0.0).members == failed[:2]
    assert form(queue, second, 0.0).members == failed[2:]
    assert len(form(queue, second, 0.0).members) == 3


def test_a_replica_that_failed_a_request_is_not_offered_it_again() -> None:
    first, second = device("gpu0"), device("gpu1")
    queue = planner([first, second])
    (again,) = offer_all(queue, [entry(100.0, 2000.0, tried=("gpu0",))])
    assert queue.form(first, 0.0) is None
    assert queue.expire(1.0) == []
    assert form(queue, second, 1.0).members == [again]


def test_a_request_that_every_replica_failed_is_handed_back() -> None:
    queue = planner([device("gpu0")])
    (again,) = offer_all(queue, [entry(100.0, 2000.0, tried=("gpu0",))])
    assert queue.expire(0.0) == [again]


def test_bulk_work_uses_what_the_interactive_lane_leaves() -> None:
    gpu = device(size=4)
    queue = planner([gpu])
    bulk = offer_all(queue, [entry(100.0, 60_000.0, lane=Lane.BULK) for _ in range(4)])
    fast = offer_all(queue, [entry(100.0, 2000.0) for _ in range(2)])
    assert form(queue, gpu, 0.0).members == fast + bulk[:2]


def test_bulk_work_that_waited_long_becomes_interactive() -> None:
    gpu = device(size=1)
    queue = planner([gpu])
    (old,) = offer_all(queue, [entry(100.0, 60_000.0, lane=Lane.BULK)])
    young = offer_all(queue, [entry(100.0, 90_000.0, arrived_ms=5_000.0)], 5_000.0)
    queue.expire(5_000.0)
    assert form(queue, gpu, 5_000.0).members == [old]
    assert form(queue, gpu, 5_000.0).members == young


def test_a_cancelled_request_leaves_without_a_trace() -> None:
    gpu = device()
    queue = planner([gpu])
    gone, stays = offer_all(queue, [entry(100.0, 2000.0), entry(200.0, 2000.0)])
    assert queue.remove(gone)
    assert not queue.remove(gone)
    assert len(queue) == 1
    assert queue.numbers()["queued_work"] == 200.0
    assert form(queue, gpu, 0.0).members == [stays]


def test_a_queue_that_five_thousand_left_keeps_nothing_of_them() -> None:
    queue = planner()
    for each in offer_all(queue, [entry(100.0, 600_000.0 + i) for i in range(5000)]):
        queue.remove(each)
    held = [queue._agenda._items, queue._queue._fill._items, queue._line]  # type: ignore[attr-defined]
    assert max(len(items) for items in held) < 200


def test_a_busy_queue_does_not_ask_to_be_woken_again_and_again() -> None:
    gpu = device()
    queue = planner([gpu])
    rng = random.Random(3)
    now_ms, wakes = 0.0, 0
    while now_ms < 10_000.0:
        next_arrival_ms = now_ms + rng.expovariate(0.5)
        while (wake_ms := queue.next_wake_ms(now_ms)) is not None and wake_ms < next_arrival_ms:
            assert wake_ms > now_ms  # never the moment that was just handled
            now_ms = wake_ms
            wakes += 1
            queue.expire(now_ms)
        now_ms = next_arrival_ms
        queue.expire(now_ms)
        queue.offer(headline_entry(rng, now_ms), now_ms)
        if rng.random() < 0.05:
            queue.form(gpu, now_ms)
            queue.on_finished(8, now_ms)
    assert wakes <= 10_000  # 5,000 arrivals, two moments each at the most


def test_the_mode_and_the_plan_are_told() -> None:
    gpu = device()
    queue = planner([gpu])
    assert queue.numbers()["mode"] == "idle"
    rng = random.Random(4)
    now_ms = 0.0
    for _ in range(600):
        now_ms += rng.expovariate(0.5)
        queue.offer(headline_entry(rng, now_ms), now_ms)
        queue.expire(now_ms)
    plan = form(queue, gpu, now_ms)
    numbers = queue.numbers()
    assert numbers["mode"] == "goodput"
    assert isinstance(numbers["theta"], float)
    assert isinstance(numbers["oldest_ms"], float)
    assert plan.reason in (FlushReason.GOODPUT, FlushReason.DEADLINE)
    assert plan.numbers["slot_ms"] == numbers["slot_ms"]


def test_a_config_out_of_range_names_the_field() -> None:
    with pytest.raises(InvalidInput, match="size_lottery"):
        PlannerConfig(size_lottery=1.5)
    with pytest.raises(InvalidInput, match="overrun_ratio"):
        PlannerConfig(overrun_ratio=0.5)


class PlannerLaw(RuleBasedStateMachine):
    """offered = queued + taken + expired + removed, at every step, and nobody twice."""

    def __init__(self) -> None:
        super().__init__()
        self.devices = [device("gpu0"), device("gpu1", size=4)]
        self.queue = planner(self.devices)
        self.now_ms = 0.0
        self.waiting: dict[int, Queued] = {}

    def _leaves(self, gone: Queued) -> None:
        assert self.waiting.pop(id(gone)) is gone
        assert gone.slot is None
        assert not gone.queued

    @rule(
        work=st.floats(1.0, 6000.0),
        patience_ms=st.floats(1.0, 2000.0),
        items=st.integers(1, 6),
        lane=st.sampled_from(list(Lane)),
        tried=st.sampled_from([(), ("gpu0",), ("gpu1",)]),
        group=st.sampled_from([None, None, None, 1, 2]),
    )
    def offer(
        self,
        work: float,
        patience_ms: float,
        items: int,
        lane: Lane,
        tried: tuple[str, ...],
        group: int | None,
    ) -> None:
        made = entry(
            work,
            self.now_ms + patience_ms,
            arrived_ms=self.now_ms,
            items=items,
            lane=lane,
            tried=tried,
            split_group=group,
        )
        self.queue.offer(made, self.now_ms)
        self.waiting[id(made)] = made

    @rule(by_ms=st.floats(0.1, 300.0))
    def pass_time(self, by_ms: float) -> None:
        self.now_ms += by_ms
        for gone in self.queue.expire(self.now_ms):
            self._leaves(gone)

    @rule(which=st.integers(0, 1))
    def form_batch(self, which: int) -> None:
        gpu = self.devices[which]
        plan = self.queue.form(gpu, self.now_ms)
        if isinstance(plan, Wait):
            assert plan.until_ms > self.now_ms
        if not isinstance(plan, BatchPlan):
            return
        assert plan.members
        assert sum(member.items for member in plan.members) <= gpu.max_batch_size
        assert len({member.split_group for member in plan.members}) == 1
        for member in plan.members:
            self._leaves(member)
            assert gpu.replica_id not in member.tried
            finish_ms = self.now_ms + plan.predicted_ms + plan.margin_ms
            assert finish_ms <= member.deadline_ms + 1e-6
        self.now_ms += plan.predicted_ms
        self.queue.on_finished(len(plan.members), self.now_ms)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.waiting:
            gone = data.draw(st.sampled_from(list(self.waiting.values())))
            assert self.queue.remove(gone)
            self._leaves(gone)

    @rule(size=st.sampled_from([1, 4]))
    def replace_devices(self, size: int) -> None:
        self.devices = [device("gpu0", size=32 if size > 1 else 1), device("gpu1", size=size)]
        self.queue.set_devices(self.devices, self.now_ms)

    @invariant()
    def nobody_is_lost(self) -> None:
        assert len(self.queue) == len(self.waiting)
        work = sum(waiting.work for waiting in self.waiting.values())
        assert self.queue.numbers()["queued_work"] == pytest.approx(work, abs=1e-6)
        assert all(waiting.queued for waiting in self.waiting.values())


TestPlannerLaw = PlannerLaw.TestCase
TestPlannerLaw.settings = settings(max_examples=25, stateful_step_count=30)
