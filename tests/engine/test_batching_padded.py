"""Padded pools: members of like length ride together, and only as far as it pays."""

import random

from engine.batching.former import Device
from engine.types import WorkUnit
from tests.engine.batching_bench import ENCODER, device, entry, form, offer_all, planner


def encoder(name: str = "cpu0", *, size: int = 32) -> Device:
    return device(name, size=size, unit=WorkUnit.PADDED_QUADRATIC, prior=ENCODER)


def test_fifteen_short_texts_and_a_long_one_leave_as_two_batches() -> None:
    gpu = encoder()
    queue = planner([gpu])
    short = [entry(16.0, 10_000.0) for _ in range(15)]
    long = entry(256.0, 9_000.0)
    offer_all(queue, [*short[:7], long, *short[7:]])
    plans = [form(queue, gpu, 0.0), form(queue, gpu, 0.0)]
    assert {len(plan.members) for plan in plans} == {1, 15}
    assert sum(plan.predicted_ms for plan in plans) < 150.0  # padded together: 1,400 ms


def test_lengths_close_to_each_other_share_a_batch() -> None:
    gpu = encoder()
    queue = planner([gpu])
    offer_all(queue, [entry(float(length), 10_000.0) for length in (30, 31, 32, 33, 34)])
    assert len(form(queue, gpu, 0.0).members) == 5


def test_below_saturation_the_most_urgent_length_leaves_first() -> None:
    gpu = encoder()
    queue = planner([gpu])
    _, urgent = offer_all(queue, [entry(16.0, 5000.0), entry(200.0, 300.0)])
    assert form(queue, gpu, 0.0).members == [urgent]


def test_everybody_of_a_mixed_queue_leaves_once() -> None:
    gpu = encoder()
    queue = planner([gpu])
    rng = random.Random(1)
    waiting = offer_all(queue, [entry(rng.uniform(1.0, 300.0), 60_000.0) for _ in range(200)])
    left = []
    while len(queue) > 0:
        left += form(queue, gpu, 0.0).members
    assert sorted(map(id, left)) == sorted(map(id, waiting))


def test_a_batch_is_not_filled_for_its_own_sake_where_the_fixed_cost_is_small() -> None:
    """Long slots gain an encoder nothing: whoever could leave now would only wait."""
    gpu = encoder(size=512)
    queue = planner([gpu])
    now_ms = 0.0
    for _ in range(300):  # light traffic teaches the plan
        queue.expire(now_ms)
        offer_all(queue, [entry(32.0, now_ms + 2000.0, arrived_ms=now_ms)], now_ms)
        plan = form(queue, gpu, now_ms)
        now_ms += plan.predicted_ms
        queue.on_finished(len(plan.members), now_ms)
        now_ms += 20.0
    offer_all(queue, [entry(32.0, now_ms + 2000.0, arrived_ms=now_ms) for _ in range(200)], now_ms)
    assert form(queue, gpu, now_ms).predicted_ms < 100.0  # all 200 at once: 1,300 ms
