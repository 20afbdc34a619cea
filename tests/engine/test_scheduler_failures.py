"""What a scheduler must not do when replicas fail, hang, refuse or come back."""

import pytest

from engine.actions import ItemResult
from engine.errors import InvalidInput, Refusal, RefusalCode
from engine.outcomes import Outcome
from engine.types import TenantSpec
from tests.engine.harness import Table, replica, snapshot


def test_a_batch_that_fails_whole_is_split_once_and_goes_elsewhere() -> None:
    table = Table([replica("a"), replica("b"), replica("c")])
    names = [table.submit() for _ in range(24)]
    first, *others = table.advance(50.0)
    size = len(first.requests)
    assert size > 3
    table.finish(first, Outcome.FAULT)
    for other in others:
        table.finish(other)
    table.serve_everything()
    halves = [d for d in table.dispatches if d.attempt == 2]
    assert sorted(len(d.requests) for d in halves) == sorted([size // 2, size - size // 2])
    assert all(d.replica_id != first.replica_id for d in halves)
    assert all(table.outcome(str(name)) == "served" for name in names)


def test_one_item_that_the_runtime_rejects_does_not_fail_the_others() -> None:
    table = Table([replica("a"), replica("b")])
    names = [table.submit() for _ in range(24)]
    batch, *_ = table.advance(50.0)
    assert len(batch.requests) > 3
    items = [ItemResult(Outcome.SUCCESS) for _ in batch.requests]
    items[2] = ItemResult(Outcome.CLIENT_ERROR, error="bad input")
    table.finish(batch, items=items)
    table.serve_everything()
    outcomes = [table.outcome(str(name)) for name in names]
    assert outcomes.count("served") == 23
    assert outcomes.count("invalid_request") == 1


def test_busy_replicas_never_open_a_breaker_and_serve_the_very_next_request() -> None:
    table = Table([replica("a"), replica("b")])
    attempts = 0
    for _ in range(40):
        table.submit(deadline_ms=300.0)
        for _ in range(6):
            for dispatch in [*table.advance(50.0), *list(table.running.values())]:
                if dispatch.lease_id in table.running:
                    attempts += 1
                    table.finish(dispatch, Outcome.BACKPRESSURE)
    assert attempts <= 44
    breakers = [state["breaker"] for state in table.scheduler.view()["replicas"]]
    assert all(breaker["state"] == "closed" and breaker["trips"] == 0 for breaker in breakers)
    name = table.submit(deadline_ms=2000.0)
    dispatches = table.advance(1500.0)
    assert dispatches
    table.finish(dispatches[0])
    assert table.outcome(str(name)) == "served"


def test_a_hedge_that_fails_fast_does_not_kill_its_primary() -> None:
    table = _table_that_hedges()
    name = table.submit(deadline_ms=5000.0)
    (primary,) = table.advance(20.0)
    hedge = next(d for d in table.advance(2000.0) if d.hedge_of == primary.lease_id)
    table.finish(hedge, Outcome.FAULT)
    assert table.outcome(str(name)) == "pending"
    table.finish(primary)
    assert table.outcome(str(name)) == "served"


def test_when_primary_and_hedge_both_fail_the_primarys_error_is_shown() -> None:
    table = _table_that_hedges()
    name = table.submit(deadline_ms=5000.0)
    (primary,) = table.advance(20.0)
    hedge = next(d for d in table.advance(2000.0) if d.hedge_of == primary.lease_id)
    assert hedge.replica_id != primary.replica_id
    table.finish(primary, Outcome.FAULT, error="disk on fire")
    assert table.outcome(str(name)) == "pending"
    table.finish(hedge, Outcome.FAULT, error="cable unplugged")
    for dispatch in table.advance(50.0):
        table.finish(dispatch, Outcome.FAULT, error="later")
    refusal = table.delivered[str(name)].refusal
    assert refusal is not None
    assert "disk on fire" in refusal.message


def test_a_tenant_with_room_for_one_gets_its_hedge_inside_the_same_permit() -> None:
    table = _table_that_hedges(TenantSpec(tenant="acme", max_in_flight=1))
    name = table.submit(deadline_ms=5000.0)
    (primary,) = table.advance(20.0)
    hedge = next(d for d in table.advance(2000.0) if d.hedge_of == primary.lease_id)
    table.finish(hedge)
    assert table.outcome(str(name)) == "served"
    assert [abort.lease_id for abort in table.aborted] == [primary.lease_id]
    assert not isinstance(table.submit(), Refusal)


def test_a_hanging_replica_costs_its_requests_their_own_deadline_and_nothing_more() -> None:
    table = Table([replica("a")])
    short, long = table.submit(deadline_ms=300.0), table.submit(deadline_ms=900.0)
    (batch,) = table.advance(100.0)
    assert len(batch.requests) == 2
    table.advance(201.0)
    assert (table.outcome(str(short)), table.outcome(str(long))) == (
        "deadline_exceeded",
        "pending",
    )
    assert not table.aborted
    table.advance(600.0)
    assert table.outcome(str(long)) == "deadline_exceeded"
    assert [abort.lease_id for abort in table.aborted] == [batch.lease_id]


def test_a_request_that_waits_for_a_busy_device_is_refused_when_it_becomes_hopeless() -> None:
    table = Table([replica("a")])
    table.submit(deadline_ms=5000.0)
    table.advance(50.0)
    assert len(table.running) == 1
    waiting = table.submit(deadline_ms=200.0)
    table.advance(140.0)
    assert table.outcome(str(waiting)) == "pending"
    table.advance(110.0)
    refusal = table.delivered[str(waiting)].refusal
    assert refusal is not None
    assert refusal.code is RefusalCode.DEADLINE_EXCEEDED
    assert refusal.details["phase"] == "queue"


def test_the_tighter_deadline_runs_first_though_it_came_later() -> None:
    table = Table([replica("a", max_batch_size=1)])
    table.submit(deadline_ms=9000.0)
    (first,) = table.advance(10.0)
    late, tight = table.submit(deadline_ms=5000.0), table.submit(deadline_ms=300.0)
    (second,) = table.finish(first) or table.advance(10.0)
    assert second.requests[0].request_id == tight
    (third,) = table.finish(second) or table.advance(10.0)
    assert third.requests[0].request_id == late


def test_registering_again_under_the_same_id_with_work_in_flight_keeps_every_counter() -> None:
    table = Table([replica("a", max_concurrency=16, max_batch_size=1)])
    for _ in range(10):
        table.submit()
    table.advance(50.0)
    assert len(table.running) == 10
    table.scheduler.apply(snapshot([replica("a", max_concurrency=4, max_batch_size=1)]))
    for dispatch in list(table.running.values()):
        table.finish(dispatch)
        (state,) = table.scheduler.view()["replicas"]
        assert state["inFlight"] >= 0
    assert state["inFlight"] == 0


def test_a_replica_that_leaves_with_work_in_flight_still_settles_it() -> None:
    table = Table([replica("a"), replica("b")])
    name = table.submit()
    (batch,) = table.advance(50.0)
    others = [r for r in ("a", "b") if r != batch.replica_id]
    table.scheduler.apply(snapshot([replica(r) for r in others], revision=2))
    table.finish(batch)
    assert table.outcome(str(name)) == "served"


def test_with_every_replica_draining_a_request_is_refused_at_once_with_a_time() -> None:
    table = Table([replica("a", draining=True), replica("b", draining=True)])
    refusal = table.submit()
    assert isinstance(refusal, Refusal)
    assert refusal.code is RefusalCode.NO_CAPACITY
    assert refusal.retry_after_ms is not None
    assert refusal.retry_after_ms > 0


def test_with_all_breakers_open_a_late_deadline_waits_for_the_probe_and_an_early_one_fails() -> (
    None
):
    table = Table([replica("a")])
    for _ in range(5):
        table.submit()
        for dispatch in table.advance(50.0):
            table.finish(dispatch, Outcome.FAULT)
            for retry in list(table.running.values()):
                table.finish(retry, Outcome.FAULT)
    (state,) = table.scheduler.view()["replicas"]
    assert state["breaker"]["state"] == "open"
    early = table.submit(deadline_ms=20.0)
    assert isinstance(early, Refusal)
    assert early.code is RefusalCode.NO_CAPACITY
    probe_in_ms = early.retry_after_ms
    assert probe_in_ms is not None
    assert probe_in_ms > 20.0
    late = table.submit(deadline_ms=probe_in_ms + 500.0)
    assert not table.advance(probe_in_ms - 1.0)
    (probe,) = table.advance(2.0)
    table.finish(probe)
    assert table.outcome(str(late)) == "served"


def test_two_failing_replicas_do_not_multiply_the_load() -> None:
    table = Table([replica("a", max_batch_size=1), replica("b", max_batch_size=1)])
    offered = 0
    for _ in range(1000):
        if not isinstance(table.submit(deadline_ms=400.0), Refusal):
            offered += 1
        table.advance(20.0)
        for dispatch in list(table.running.values()):
            table.finish(dispatch, Outcome.FAULT)
    assert offered > 0
    assert len(table.dispatches) <= 1.1 * 1000
    assert max(deliver.attempts for deliver in table.delivered.values()) <= 2


def test_a_refused_request_costs_no_quota() -> None:
    tenant = TenantSpec(tenant="acme", requests_per_s=0.01, requests_burst=4.0)
    table = Table(shot=snapshot([replica("a")], tenants=[tenant]))
    table.submit()
    for dispatch in table.advance(50.0):
        table.clock.advance(30.0)
        table.finish(dispatch)
    for _ in range(4):
        refusal = table.submit(tokens=16_000, deadline_ms=10.0)
        assert isinstance(refusal, Refusal)
        assert refusal.code is RefusalCode.DEADLINE_UNREACHABLE
    assert not isinstance(table.submit(deadline_ms=2000.0), Refusal)


def test_a_cancelled_request_leaves_the_queue_and_aborts_its_sole_attempt() -> None:
    table = Table([replica("a", max_batch_size=1)])
    running, queued = table.submit(), table.submit()
    table.advance(10.0)
    assert table.scheduler.cancel(str(queued))
    assert table.scheduler.cancel(str(running))
    assert not table.scheduler.cancel(str(running))
    table.poll()
    assert len(table.aborted) == 1
    table.finish(next(iter(table.running.values())), Outcome.CANCELLED)
    (state,) = table.scheduler.view()["replicas"]
    assert state["breaker"]["trips"] == 0
    assert not table.advance(1000.0)


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("prompt_tokens", {"tokens": 0}),
        ("deadline_ms", {"deadline_ms": float("nan")}),
        ("deadline_ms", {"deadline_ms": float("inf")}),
        ("deadline_ms", {"deadline_ms": -2000.0}),
        ("max_output_tokens", {"max_output_tokens": -1}),
        ("items", {"items": 0}),
    ],
)
def test_nonsense_raises_an_error_that_names_the_field(
    field: str, changes: dict[str, object]
) -> None:
    table = Table([replica("a")])
    with pytest.raises(InvalidInput, match=field):
        table.submit(**changes)  # type: ignore[arg-type]
    assert table.scheduler.conservation()["arrived"] == 0


def _table_that_hedges(*tenants: TenantSpec) -> Table:
    """Two free replicas, and enough history for the scheduler to know what is slow."""
    table = Table(
        shot=snapshot(
            [replica("a", max_batch_size=1), replica("b", max_batch_size=1)],
            tenants=tenants or [TenantSpec(tenant="acme")],
        )
    )
    for _ in range(200):
        table.submit()
        for dispatch in table.poll():
            table.clock.advance(30.0)
            table.finish(dispatch)
    return table


def test_a_saturated_scheduler_sleeps_until_something_can_change() -> None:
    table = Table([replica("a"), replica("b")])
    for number in range(400):
        table.submit(deadline_ms=1500.0 + 3.0 * number)
    table.poll()
    assert len(table.running) == 2
    until_ms = table.clock.now_ms() + 1000.0
    wakes = 0
    while True:
        wake_ms = table.scheduler.next_wake_ms()
        if wake_ms is None or wake_ms > until_ms:
            break
        assert wake_ms >= table.clock.now_ms(), "a wake in the past is a spin"
        table.clock.set(wake_ms)
        table.poll()
        wakes += 1
    assert wakes <= 100, "every replica is busy for the whole second: nothing to do but wait"


def test_what_no_batch_can_hold_is_refused_at_once_and_does_not_wait_for_its_deadline() -> None:
    table = Table([replica("a", max_batch_tokens=1000), replica("b", max_batch_tokens=2000)])
    assert not isinstance(table.submit(tokens=2000), Refusal)
    refusal = table.submit(tokens=2001)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.limit, refusal.used) == ("invalid_request", 2000.0, 2001.0)


def test_a_changed_tenant_leaves_the_batch_size_that_a_replica_asked_for() -> None:
    table = Table([replica("a", max_batch_size=16)])
    table.scheduler.replica_reported("a", max_batch_size=2)
    again = snapshot(
        [replica("a", max_batch_size=16)], tenants=[TenantSpec(tenant="acme", weight=2.0)]
    )
    table.scheduler.apply(again)
    for _ in range(6):
        table.submit()
    assert [len(dispatch.requests) for dispatch in table.poll()] == [2]
