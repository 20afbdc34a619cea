"""A scheduler with its hands on the table: a manual clock, a fleet, and the actions so far."""

import random
from collections.abc import Iterable
from itertools import count

from engine.actions import Abort, Deliver, Dispatch, ItemResult, LeaseReport
from engine.clock import ManualClock
from engine.errors import Refusal
from engine.outcomes import Outcome
from engine.scheduler import Scheduler
from engine.scheduling.state import SchedulerConfig
from engine.scheduling.ticket import Ticket
from engine.types import (
    FleetSnapshot,
    ModelSpec,
    Priority,
    ReplicaSpec,
    Request,
    SplitSpec,
    TenantSpec,
)

SEED = 20_240_501


def replica(name: str, *, version: str = "v1", model: str = "m", **changes: object) -> ReplicaSpec:
    return ReplicaSpec(
        replica_id=name,
        model=model,
        version=version,
        address=f"http://{name}",
        age_s=3600.0,
        **changes,  # type: ignore[arg-type]
    )


def snapshot(
    replicas: Iterable[ReplicaSpec],
    *,
    revision: int = 1,
    split: SplitSpec | None = None,
    tenants: Iterable[TenantSpec] = (),
    versions: Iterable[str] = (),
    slo_ms: float = 1000.0,
) -> FleetSnapshot:
    """One model "m" over these replicas; its first version takes all traffic unless told."""
    listed = list(replicas)
    names = frozenset({spec.version for spec in listed} | set(versions) | {"v1"})
    return FleetSnapshot(
        revision=revision,
        models={
            "m": ModelSpec(
                model="m",
                versions=names,
                split=split or SplitSpec(model="m", baseline="v1"),
                slo_ms=slo_ms,
            )
        },
        replicas={spec.replica_id: spec for spec in listed},
        tenants={spec.tenant: spec for spec in tenants} or {"acme": TenantSpec(tenant="acme")},
    )


class Table:
    """Drives one scheduler step by step and keeps every action it returned."""

    def __init__(
        self,
        replicas: Iterable[ReplicaSpec] = (),
        *,
        config: SchedulerConfig | None = None,
        shot: FleetSnapshot | None = None,
    ) -> None:
        self.clock = ManualClock(1000.0)
        self.scheduler = Scheduler(self.clock, random.Random(SEED), config)
        self.scheduler.apply(shot or snapshot(replicas))
        self.running: dict[int, Dispatch] = {}
        self.dispatches: list[Dispatch] = []
        self.delivered: dict[str, Deliver] = {}
        self.aborted: list[Abort] = []
        self._names = count(1)

    def submit(
        self,
        *,
        tokens: int = 100,
        deadline_ms: float = 2000.0,
        tenant: str = "acme",
        **changes: object,
    ) -> str | Refusal:
        """Submit one request, `deadline_ms` from now. Returns its id, or why not."""
        name = str(changes.pop("request_id", f"r{next(self._names)}"))
        now_ms = self.clock.now_ms()
        changes.setdefault("priority", Priority.NORMAL)
        answer = self.scheduler.submit(
            Request(
                request_id=name,
                tenant=tenant,
                model=str(changes.pop("model", "m")),
                prompt_tokens=tokens,
                deadline_ms=now_ms + deadline_ms,
                arrived_ms=now_ms,
                **changes,  # type: ignore[arg-type]
            )
        )
        return name if isinstance(answer, Ticket) else answer

    def poll(self) -> list[Dispatch]:
        """Poll once; returns the new dispatches."""
        new = []
        for action in self.scheduler.poll():
            match action:
                case Dispatch():
                    self.running[action.lease_id] = action
                    self.dispatches.append(action)
                    new.append(action)
                case Deliver():
                    assert action.request.request_id not in self.delivered, "answered twice"
                    self.delivered[action.request.request_id] = action
                case Abort():
                    self.aborted.append(action)
        law = self.scheduler.conservation()
        assert law["balanced"], law
        return new

    def advance(self, by_ms: float) -> list[Dispatch]:
        """Let time pass, waking the scheduler whenever it asked to be woken."""
        new = []
        until_ms = self.clock.now_ms() + by_ms
        while True:
            wake_ms = self.scheduler.next_wake_ms()
            if wake_ms is None or wake_ms > until_ms:
                break
            self.clock.set(max(wake_ms, self.clock.now_ms()))
            new += self.poll()
        self.clock.set(until_ms)
        return new + self.poll()

    def finish(
        self,
        dispatch: Dispatch,
        outcome: Outcome = Outcome.SUCCESS,
        *,
        items: list[ItemResult] | None = None,
        **report: object,
    ) -> list[Dispatch]:
        """End an attempt as the driver would, and poll."""
        del self.running[dispatch.lease_id]
        if outcome is Outcome.SUCCESS and items is None:
            items = [
                ItemResult(Outcome.SUCCESS, payload="ok", prompt_tokens=r.prompt_tokens)
                for r in dispatch.requests
            ]
        self.scheduler.complete(
            dispatch.lease_id,
            LeaseReport(outcome, items, **report),  # type: ignore[arg-type]
        )
        return self.poll()

    def serve_everything(self) -> None:
        """Let all that runs and waits end well."""
        for _ in range(1000):
            for dispatch in list(self.running.values()):
                self.finish(dispatch)
            if not self.scheduler.in_flight:
                return
            self.advance(20.0)
        raise AssertionError("work is left after twenty seconds")

    def outcome(self, name: str) -> str:
        """How a request ended: "served", a refusal code, or "pending"."""
        deliver = self.delivered.get(name)
        if deliver is None:
            return "pending"
        return "served" if deliver.refusal is None else str(deliver.refusal.code)
