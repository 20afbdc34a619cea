"""The station by itself: what is measured, what is refused, what a batch is made of."""

import pytest

from engine.errors import Refusal, RefusalCode, UnknownName
from engine.regulation.controller import RegulationConfig
from engine.regulation.fair_queue import QueueClass, Waiting
from engine.regulation.forecast import Forecast
from engine.regulation.station import Station, StationConfig


def station(*, workers: int = 2, batch_size: int = 4, merge: bool = True) -> Station[str]:
    return Station(
        StationConfig(
            classes=(
                QueueClass(name="premium", weight=3.0, capacity=4),
                QueueClass(name="standard", capacity=6),
            ),
            regulation=RegulationConfig(slo_ms=150.0, max_workers=workers, batch_size=batch_size),
            merge=merge,
        )
    )


def enter(at: Station[str], now_ms: float, priority: str = "standard") -> Waiting[str]:
    entry = at.submit("x", priority=priority, now_ms=now_ms)
    assert isinstance(entry, Waiting)
    return entry


def test_latency_is_wait_and_execution_and_unknown_before_the_first_answer() -> None:
    place = station()
    assert place.view(0.0).p95_ms is None
    assert place.view(0.0).throughput_per_s is None
    enter(place, 0.0)
    job = place.next_batch(40.0)
    assert job is not None
    place.finish(job, 100.0)
    assert place.view(100.0).p95_ms == pytest.approx(100.0, rel=0.02)


def test_percentiles_are_of_a_time_and_not_of_a_number_of_answers() -> None:
    place = station()
    enter(place, 0.0)
    job = place.next_batch(0.0)
    assert job is not None
    place.finish(job, 900.0)
    assert place.view(1000.0).p95_ms is not None
    assert place.view(10_000.0).p95_ms is None


def test_failing_fast_is_not_being_fast() -> None:
    place = station()
    enter(place, 0.0)
    job = place.next_batch(0.0)
    assert job is not None
    place.finish(job, 2.0, ok=False)
    assert place.view(2.0).p95_ms is None
    assert place.forecast_ms("standard") is None
    assert place.limit.in_use == 0


def test_waiting_in_vain_counts_as_the_time_that_was_waited() -> None:
    place = station()
    enter(place, 0.0)
    assert len(place.expire(10_000.0)) == 1
    assert place.view(10_000.0).p95_ms == pytest.approx(10_000.0, rel=0.02)


def test_single_requests_ride_together_and_whole_batches_ride_alone() -> None:
    for merge, riders in ((True, 4), (False, 1)):
        place = station(merge=merge)
        for _ in range(5):
            enter(place, 0.0)
        job = place.next_batch(0.0)
        assert job is not None
        assert len(job.entries) == riders


def test_no_more_batches_start_than_there_are_slots() -> None:
    place = station(workers=2, batch_size=1)
    for _ in range(5):
        enter(place, 0.0)
    first, second = place.next_batch(0.0), place.next_batch(0.0)
    assert first is not None
    assert second is not None
    assert place.next_batch(0.0) is None
    place.finish(first, 10.0)
    assert place.next_batch(10.0) is not None


def test_a_full_queue_names_the_limit_and_when_to_come_back() -> None:
    place = station(workers=1, batch_size=1)
    enter(place, 0.0)
    job = place.next_batch(0.0)
    assert job is not None
    place.finish(job, 80.0)
    for _ in range(6):
        enter(place, 80.0)
    refusal = place.submit("x", priority="standard", now_ms=80.0)
    assert isinstance(refusal, Refusal)
    assert refusal.code is RefusalCode.QUEUE_FULL
    assert (refusal.limit_name, refusal.limit) == ("queue_full", 6.0)
    assert refusal.retry_after_ms == pytest.approx(80.0)
    assert isinstance(place.submit("x", priority="premium", now_ms=80.0), Waiting)


def test_admission_control_never_refuses_the_top_class_and_lets_a_trickle_in() -> None:
    place = station(workers=1, batch_size=1)
    enter(place, 0.0)
    job = place.next_batch(0.0)
    assert job is not None
    place.finish(job, 400.0)
    place.gate.on = True
    enter(place, 400.0)
    refusal = place.submit("x", priority="standard", now_ms=400.0)
    assert isinstance(refusal, Refusal)
    assert refusal.limit_name == "admission_control"
    assert refusal.code is RefusalCode.OVERLOADED
    enter(place, 400.0, "premium")


def test_an_unknown_class_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="premium, standard"):
        station().submit("x", priority="gold", now_ms=0.0)


def test_a_forecast_knows_that_full_batches_take_longer_than_small_ones() -> None:
    forecast = Forecast()
    assert forecast.total_ms(0, entries_per_batch=8, slots=1, free=1) is None
    for step, entries in enumerate([1, 2, 3, 2, 1, 2, 3]):
        forecast.learn(entries, 20.0 + 10.0 * entries, 50.0 * step)
    assert forecast.service_ms(8) == pytest.approx(100.0)
    assert forecast.total_ms(15, entries_per_batch=8, slots=1, free=1) == pytest.approx(200.0)


def test_the_smallest_useful_batch_carries_the_demand_within_the_objective() -> None:
    forecast = Forecast()
    assert forecast.smallest_batch(8, slots=2, demand_per_s=10.0, longest_ms=135.0) == 8
    for step, entries in enumerate([1, 2, 3, 4, 5, 6, 7, 8]):
        forecast.learn(entries, 20.0 + 10.0 * entries, 50.0 * step)
    assert forecast.smallest_batch(8, slots=2, demand_per_s=100.0, longest_ms=135.0) == 2
    assert forecast.smallest_batch(8, slots=2, demand_per_s=149.0, longest_ms=135.0) == 6
    assert forecast.smallest_batch(8, slots=2, demand_per_s=150.0, longest_ms=61.0) == 4
    assert forecast.smallest_batch(8, slots=2, demand_per_s=900.0, longest_ms=20.0) == 8


def test_a_slot_that_was_taken_away_counts_as_room() -> None:
    place = station(workers=2, batch_size=1)
    place.limit.resize(1)
    enter(place, 0.0)
    job = place.next_batch(0.0)
    assert job is not None
    place.finish(job, 1000.0)
    assert place.slot_use_ratio(1000.0) == pytest.approx(0.5)
