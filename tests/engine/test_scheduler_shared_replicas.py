"""One replica, several models: traffic for each of them, and one ceiling for all."""

from collections import Counter
from dataclasses import replace

import pytest

from engine.actions import Dispatch
from engine.errors import Refusal
from engine.outcomes import Outcome
from engine.types import (
    FleetSnapshot,
    ModelSpec,
    Priority,
    Protocol,
    ReplicaSpec,
    RequestType,
    SplitSpec,
    Strategy,
)
from tests.engine.harness import Table, replica, snapshot


def fleet(
    replicas: list[ReplicaSpec],
    *,
    models: tuple[str, ...] = ("m", "n", "o"),
    strategy: Strategy = Strategy.PEAK_EWMA,
    revision: int = 1,
) -> FleetSnapshot:
    """These models, each with versions v1 and v2 and all traffic on v1."""
    shot = snapshot(replicas, revision=revision)
    specs = {
        name: ModelSpec(
            model=name,
            versions=frozenset({"v1", "v2"}),
            split=SplitSpec(model=name, baseline="v1"),
            strategy=strategy,
        )
        for name in models
    }
    return replace(shot, models=specs)


def shared(name: str, *loaded: str, **changes: object) -> ReplicaSpec:
    return replica(name, loaded_models=frozenset(loaded), **changes)


def test_a_replica_with_three_loaded_models_gets_traffic_for_each_of_them() -> None:
    table = Table(shot=fleet([shared("a", "m", "n", "o", max_concurrency=3)]))
    for model in ("m", "n", "o"):
        table.submit(model=model)
    table.advance(200.0)
    assert {(d.replica_id, d.model) for d in table.dispatches} == {
        ("a", "m"),
        ("a", "n"),
        ("a", "o"),
    }
    assert table.scheduler.view()["replicas"][0]["inFlight"] == 3


def test_models_that_share_a_replica_never_hold_more_than_its_one_ceiling() -> None:
    table = Table(shot=fleet([shared("a", "m", "n", "o", max_batch_size=1, max_concurrency=2)]))
    for _ in range(4):
        for model in ("m", "n", "o"):
            table.submit(model=model, deadline_ms=60_000.0)
    table.advance(200.0)
    for _ in range(12):
        assert len(table.running) <= 2
        table.finish(next(iter(table.running.values())))
    assert table.scheduler.in_flight == 0
    assert Counter(d.model for d in table.dispatches) == {"m": 4, "n": 4, "o": 4}


def test_no_model_keeps_a_shared_replica_to_itself_however_long_its_queue_is() -> None:
    table = Table(shot=fleet([shared("a", "m", "n", "o", max_batch_size=1)]))
    for _ in range(40):
        table.submit(model="m", deadline_ms=60_000.0)
    table.poll()
    for model in ("n", "o"):
        for _ in range(3):
            table.submit(model=model, deadline_ms=60_000.0)
    for _ in range(10):
        table.finish(next(iter(table.running.values())))
    served = Counter(d.model for d in table.dispatches[:10])
    assert served["n"] == served["o"] == 3


def test_a_loaded_model_with_a_version_is_served_in_that_version_only() -> None:
    table = Table(shot=fleet([shared("a", "m", "n@v2", max_concurrency=4)]))
    pools = table.scheduler._state.pools
    assert list(pools["n", "v2"].devices) == ["a"]
    assert list(pools["n", "v1"].devices) == []
    table.submit(model="n", version="v2")
    (dispatch,) = table.advance(100.0)
    assert (dispatch.model, dispatch.version) == ("n", "v2")


@pytest.mark.parametrize("loaded", ["unheard", "n@v7", "m", "m@v1"])
def test_a_name_that_is_no_model_of_the_fleet_gives_no_seat(loaded: str) -> None:
    table = Table(shot=fleet([shared("a", loaded)]))
    assert table.scheduler._state.seats == {}


def test_a_server_with_a_name_of_its_own_for_its_model_serves_that_model_only() -> None:
    spec = shared("a", "n", protocol=Protocol.OPENAI, max_concurrency=4)
    table = Table(shot=fleet([spec]))
    assert table.scheduler._state.seats == {}


def test_a_model_that_fails_on_a_shared_replica_does_not_trip_the_others() -> None:
    table = Table(shot=fleet([shared("a", "m", "n"), shared("b", "m", "n")]))
    for _ in range(12):
        table.submit(model="m", deadline_ms=500.0)
        for dispatch in table.advance(50.0):
            table.finish(dispatch, Outcome.FAULT)
    state = table.scheduler._state
    assert state.replicas["a"].breaker.trips + state.replicas["b"].breaker.trips > 0
    assert all(seats["n", "v1"].breaker.trips == 0 for seats in state.seats.values())
    table.submit(model="n")
    (dispatch,) = table.advance(100.0)
    assert dispatch.model == "n"


def test_a_model_taken_off_a_shared_replica_gives_back_what_it_held() -> None:
    table = Table(shot=fleet([shared("a", "m", "n")]))
    table.submit(model="n")
    (running,) = table.advance(100.0)
    table.scheduler.apply(fleet([shared("a", "m")], revision=2))
    table.submit(model="m", deadline_ms=5000.0)
    assert table.advance(50.0) == []  # its one place is still taken
    (after,) = table.finish(running) or table.advance(50.0)
    assert after.model == "m"
    table.finish(after)
    assert table.scheduler._state.replicas["a"].elsewhere == 0


def test_a_draining_or_unready_replica_is_out_for_all_of_its_models() -> None:
    table = Table(shot=fleet([shared("a", "m", "n")]))
    table.scheduler.replica_reported("a", ready=False)
    for model in ("m", "n"):
        refusal = table.submit(model=model)
        assert isinstance(refusal, Refusal)
        assert refusal.code == "no_capacity"
    table.scheduler.replica_reported("a", ready=True, max_concurrency=2)
    for model in ("m", "n"):
        table.submit(model=model)
    assert {d.model for d in table.advance(100.0)} == {"m", "n"}


def test_a_report_of_fewer_places_lowers_the_one_ceiling_of_all_models() -> None:
    table = Table(shot=fleet([shared("a", "m", "n", max_concurrency=4)]))
    table.scheduler.replica_reported("a", max_concurrency=1)
    for model in ("m", "n"):
        table.submit(model=model, deadline_ms=5000.0)
    table.advance(100.0)
    assert len(table.running) == 1
    table.scheduler.replica_reported("a", max_concurrency=2)
    table.advance(100.0)
    assert len(table.running) == 2


def test_with_affinity_a_model_goes_where_it_is_warm_and_moves_once_it_is_warm_elsewhere() -> None:
    both = [shared(name, "m", "n", max_concurrency=4) for name in "ab"]
    table = Table(shot=fleet(both, strategy=Strategy.AFFINITY))
    table.scheduler.replica_reported("a", loaded_models=frozenset({"m"}))
    table.scheduler.replica_reported("b", loaded_models=frozenset({"n"}))
    assert _served(table, "m") == {"a"}
    assert _served(table, "n") == {"b"}
    table.scheduler.replica_reported("b", loaded_models=frozenset({"n", "m"}))
    table.scheduler.replica_reported("a", loaded_models=frozenset({"n"}))
    assert _served(table, "m") == {"b"}


def _served(table: Table, model: str) -> set[str]:
    """Who serves ten requests of `model`, one after another."""
    before = len(table.dispatches)
    for _ in range(10):
        table.submit(model=model)
        for dispatch in table.advance(60.0):
            table.finish(dispatch)
    return {d.replica_id for d in table.dispatches[before:] if d.model == model}


def _one(table: Table, **request: object) -> Dispatch:
    table.submit(**request)  # type: ignore[arg-type]
    (dispatch,) = table.advance(60.0)
    return dispatch


def test_a_batch_of_updates_goes_to_the_least_loaded_though_affinity_has_a_home_for_it() -> None:
    specs = [shared(name, "m", max_concurrency=16) for name in "ab"]
    table = Table(shot=fleet(specs, strategy=Strategy.AFFINITY))
    homes = {_one(table, deadline_ms=5000.0).replica_id for _ in range(2)}
    updates = [_one(table, request_type=RequestType.UPDATE, deadline_ms=5000.0) for _ in range(4)]
    assert len({d.replica_id for d in updates}) == 2, homes
    for dispatch in updates:
        record = table.scheduler.explain(dispatch.requests[0].request_id)
        assert "least_loaded" in str(record)


def test_an_urgent_batch_under_affinity_has_a_wider_choice_than_its_home() -> None:
    specs = [shared(name, "m", max_concurrency=16) for name in "abcdef"]
    table = Table(shot=fleet(specs, strategy=Strategy.AFFINITY))

    def rule(priority: Priority) -> str:
        (request,) = _one(table, priority=priority, deadline_ms=20_000.0).requests
        return str(table.scheduler.explain(request.request_id))

    assert "'home'" in rule(Priority.NORMAL)
    assert "'widened'" in rule(Priority.HIGH)
    assert "'widened'" in rule(Priority.CRITICAL)


def test_a_busy_answer_to_one_model_keeps_the_others_of_that_process_away_too() -> None:
    table = Table(shot=fleet([shared("a", "m", "n", max_concurrency=4)]))
    table.submit(model="m", deadline_ms=60_000.0)
    (first,) = table.advance(100.0)
    table.finish(first, Outcome.BACKPRESSURE)
    pause_ms = table.scheduler._state.replicas["a"].busy.until_ms - table.clock.now_ms()
    assert pause_ms > 50.0
    table.submit(model="n", deadline_ms=60_000.0)
    assert table.advance(pause_ms - 1.0) == [], "the process said that it has no place"
    assert "n" in {d.model for d in table.advance(50.0)}


def test_an_update_does_not_ride_to_the_warm_home_of_the_inference_beside_it() -> None:
    specs = [shared(name, "m", max_concurrency=16) for name in "abcd"]
    table = Table(shot=fleet(specs, strategy=Strategy.AFFINITY))
    for number in range(40):
        kind = RequestType.UPDATE if number % 2 else RequestType.INFER
        table.submit(request_type=kind, deadline_ms=5000.0)
    table.advance(100.0)
    assert sum(len(d.requests) for d in table.dispatches) == 40
    for dispatch in table.dispatches:
        assert len({request.request_type for request in dispatch.requests}) == 1
    records = [
        str(table.scheduler.explain(d.requests[0].request_id))
        for d in table.dispatches
        if d.requests[0].request_type is RequestType.UPDATE
    ]
    assert records
    assert all("least_loaded" in record for record in records)
