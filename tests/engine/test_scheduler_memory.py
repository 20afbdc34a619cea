"""What ended leaves nothing behind but its decision record, however far its deadline was."""

import gc
import random

from engine.actions import Dispatch, ItemResult, LeaseReport
from engine.clock import ManualClock
from engine.outcomes import Outcome
from engine.scheduler import Scheduler
from engine.scheduling.state import SchedulerConfig
from engine.scheduling.ticket import Ticket
from engine.types import (
    FleetSnapshot,
    ModelSpec,
    Protocol,
    ReplicaSpec,
    Request,
    SplitSpec,
    TenantSpec,
)

KEPT = 50
TEN_MINUTES_MS = 600_000.0


def scheduler_of_two_servers(clock: ManualClock) -> Scheduler:
    scheduler = Scheduler(clock, random.Random(1), SchedulerConfig(explain_size=KEPT))
    replicas = {
        name: ReplicaSpec(
            replica_id=name,
            model="m",
            version="v1",
            address=f"http://{name}",
            protocol=Protocol.OPENAI,
            max_concurrency=64,
        )
        for name in "ab"
    }
    split = SplitSpec(model="m", baseline="v1")
    models = {"m": ModelSpec(model="m", versions=frozenset({"v1"}), split=split)}
    tenants = {"t": TenantSpec(tenant="t")}
    scheduler.apply(FleetSnapshot(revision=1, models=models, tenants=tenants, replicas=replicas))
    for name in replicas:
        scheduler.replica_reported(name, ready=True)
    return scheduler


def serve(scheduler: Scheduler, clock: ManualClock, count: int) -> int:
    """One request after another, each answered in a millisecond. Returns how many were served."""
    served = 0
    for number in range(count):
        now_ms = clock.now_ms()
        request = Request(
            request_id=f"{now_ms}-{number}",
            tenant="t",
            model="m",
            prompt_tokens=10,
            max_output_tokens=16,
            deadline_ms=now_ms + TEN_MINUTES_MS,
            arrived_ms=now_ms,
        )
        scheduler.submit(request)
        for action in scheduler.poll():
            if isinstance(action, Dispatch):
                clock.advance(1.0)
                item = ItemResult(Outcome.SUCCESS, None, 10, 3)
                scheduler.complete(action.lease_id, LeaseReport(Outcome.SUCCESS, [item]))
                served += 1
        scheduler.poll()
    return served


def test_served_requests_with_deadlines_ten_minutes_away_are_let_go() -> None:
    clock = ManualClock()
    scheduler = scheduler_of_two_servers(clock)
    assert serve(scheduler, clock, 2000) == 2000
    gc.collect()
    tickets = sum(type(each) is Ticket for each in gc.get_objects())
    assert KEPT <= tickets <= KEPT + 256
    assert len(scheduler._state.deadlines) <= 600
    assert len(scheduler._state.hedges) <= 600
