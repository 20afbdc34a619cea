"""How long a slot is, and which sizes are worth serving."""

import math
import random

from engine.batching.arrivals import ArrivalRing
from engine.batching.cost_model import CostPrior
from engine.batching.former import Device
from engine.batching.plan import SlotPlan, first_plan, make_plan
from tests.engine.batching_bench import device, headline_entry


def traffic(rate_per_s: float, *, patience_ms: float | None = None, seed: int = 1) -> ArrivalRing:
    ring = ArrivalRing()
    rng = random.Random(seed)
    now_ms = 0.0
    for _ in range(512):
        now_ms += rng.expovariate(rate_per_s / 1000.0)
        request = headline_entry(rng, now_ms)
        wait_ms = request.deadline_ms - now_ms if patience_ms is None else patience_ms
        ring.add(request.work, request.work, 1.0, wait_ms, now_ms)
    return ring


def plan_for(ring: ArrivalRing, devices: list[Device] | None = None) -> SlotPlan:
    plan = make_plan(ring, devices or [device()], ring.items[-1][4])
    assert plan is not None
    return plan


def test_two_slots_fit_the_tight_deadline_where_load_wants_long_ones() -> None:
    plan = plan_for(traffic(260.0))
    assert 48.0 <= plan.slot_ms <= 60.0


def test_below_saturation_every_size_is_worth_serving() -> None:
    plan = plan_for(traffic(90.0))
    assert plan.theta == math.inf
    assert plan.mode == "edf"
    assert plan.load_ratio is not None
    assert plan.load_ratio < 1.0


def test_past_saturation_theta_falls_as_the_load_rises() -> None:
    plans = [plan_for(traffic(rate)) for rate in (260.0, 320.0, 500.0)]
    assert all(plan.mode == "goodput" for plan in plans)
    assert plans[0].theta > plans[1].theta > plans[2].theta > 16.0


def test_a_slot_is_no_longer_than_its_fixed_cost_warrants() -> None:
    cheap = plan_for(traffic(40.0), [device(prior=CostPrior(fixed_ms=2.0, per_work_ms=0.03))])
    assert 8.0 <= cheap.slot_ms < 16.0
    assert plan_for(traffic(40.0)).slot_ms > 40.0


def test_several_devices_out_of_step_allow_longer_slots() -> None:
    alone = plan_for(traffic(260.0))
    three = plan_for(traffic(780.0), [device(f"gpu{i}") for i in range(3)])
    assert three.slot_ms > 1.3 * alone.slot_ms


def test_places_limit_what_is_worth_serving_as_work_does() -> None:
    narrow = plan_for(traffic(260.0), [device(size=4)])
    assert narrow.theta < plan_for(traffic(260.0)).theta


def test_too_little_traffic_makes_no_plan() -> None:
    ring = ArrivalRing()
    for index in range(5):
        ring.add(100.0, 100.0, 1.0, 900.0, float(index))
    assert make_plan(ring, [device()], 10.0) is None
    assert make_plan(traffic(100.0), [], 10_000.0) is None
    assert first_plan([device()]).slot_ms == 72.0
