"""Whatever happens in whatever order: nothing is lost, answered twice, or leaked."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.actions import ItemResult
from engine.errors import Refusal
from engine.outcomes import Outcome
from engine.types import FleetSnapshot, ModelSpec, ReplicaSpec, SplitSpec, TenantSpec
from tests.engine.harness import Table, replica, snapshot

FLEET = [
    replica("a"),
    replica("b", max_concurrency=2),
    replica("c", version="v2"),
    replica("d", version="v2", max_batch_size=1, max_concurrency=4),
    replica("e", max_concurrency=2, loaded_models=frozenset({"m", "n", "m@v2"})),
]
TENANTS = [
    TenantSpec(tenant="acme"),
    TenantSpec(tenant="small", requests_per_s=5.0, requests_burst=3.0),
]


def fleet(replicas: list[ReplicaSpec], ratio: float, revision: int = 1) -> FleetSnapshot:
    """Two models; `e` serves both, and both versions of the first, from two places."""
    split = SplitSpec(model="m", baseline="v1", canary="v2", canary_ratio=ratio, salt="s")
    shot = snapshot(
        replicas, revision=revision, split=split, tenants=TENANTS, versions=["v1", "v2"]
    )
    other = ModelSpec(
        model="n", versions=frozenset({"v1"}), split=SplitSpec(model="n", baseline="v1")
    )
    return replace(shot, models={**shot.models, "n": other})


class Conservation(RuleBasedStateMachine):
    """Random lives of requests, replicas and configurations."""

    @initialize()
    def start(self) -> None:
        self.table = Table(shot=fleet(FLEET, 0.3))
        self.known: list[str] = []
        self.cancelled: set[str] = set()
        self.revision = 1

    @rule(
        tokens=st.integers(1, 4000),
        deadline_ms=st.integers(1, 3000),
        tenant=st.sampled_from(["acme", "small", "nobody"]),
        items=st.integers(1, 4),
        where=st.sampled_from([("m", None), ("m", None), ("m", "v2"), ("n", None)]),
    )
    def submit(
        self, tokens: int, deadline_ms: int, tenant: str, items: int, where: tuple[str, str | None]
    ) -> None:
        model, version = where
        name = self.table.submit(
            tokens=tokens,
            deadline_ms=deadline_ms,
            tenant=tenant,
            items=items,
            model=model,
            version=version,
        )
        if not isinstance(name, Refusal):
            self.known.append(name)

    @rule(by_ms=st.floats(0, 400))
    def wait(self, by_ms: float) -> None:
        self.table.advance(by_ms)

    @precondition(lambda self: self.table.running)
    @rule(
        pick=st.integers(0, 100),
        outcome=st.sampled_from(
            [Outcome.SUCCESS, Outcome.SUCCESS, Outcome.FAULT, Outcome.BACKPRESSURE]
        ),
    )
    def end_attempt(self, pick: int, outcome: Outcome) -> None:
        running = sorted(self.table.running)
        self.table.finish(self.table.running[running[pick % len(running)]], outcome)

    @precondition(lambda self: self.table.running)
    @rule(pick=st.integers(0, 100), bad=st.integers(0, 31))
    def one_item_fails(self, pick: int, bad: int) -> None:
        running = sorted(self.table.running)
        dispatch = self.table.running[running[pick % len(running)]]
        items = [ItemResult(Outcome.SUCCESS) for _ in dispatch.requests]
        items[bad % len(items)] = ItemResult(Outcome.FAULT, error="rejected")
        self.table.finish(dispatch, items=items)

    @precondition(lambda self: self.known)
    @rule(pick=st.integers(0, 1000))
    def client_leaves(self, pick: int) -> None:
        name = self.known[pick % len(self.known)]
        if self.table.scheduler.cancel(name):
            self.cancelled.add(name)
        self.table.poll()

    @precondition(lambda self: self.table.running)
    @rule(pick=st.integers(0, 100))
    def stream_begins(self, pick: int) -> None:
        running = sorted(self.table.running)
        self.table.scheduler.first_byte(running[pick % len(running)])

    @rule(gone=st.sets(st.sampled_from("abcd"), max_size=3), ratio=st.floats(0, 1))
    def reconfigure(self, gone: set[str], ratio: float) -> None:
        self.revision += 1
        left = [spec for spec in FLEET if spec.replica_id not in gone]
        self.table.scheduler.apply(fleet(left, ratio, self.revision))
        self.table.poll()

    @rule(loaded=st.sets(st.sampled_from(["m", "n", "m@v2", "unheard of"])), ratio=st.floats(0, 1))
    def the_shared_replica_serves_something_else(self, loaded: set[str], ratio: float) -> None:
        self.revision += 1
        specs = [
            replace(spec, loaded_models=frozenset(loaded)) if spec.replica_id == "e" else spec
            for spec in FLEET
        ]
        self.table.scheduler.apply(fleet(specs, ratio, self.revision))
        self.table.poll()

    @invariant()
    def everything_is_somewhere(self) -> None:
        if hasattr(self, "table"):
            law = self.table.scheduler.conservation()
            assert law["balanced"], law

    @invariant()
    def a_shared_replica_counts_every_lease_once_and_keeps_its_ceiling(self) -> None:
        if not hasattr(self, "table"):
            return
        state = self.table.scheduler._state
        shared = state.replicas["e"]
        out = sum(dispatch.replica_id == "e" for dispatch in self.table.running.values())
        assert out <= 2
        for seat in (shared, *state.seats.get("e", {}).values()):
            assert seat.in_flight + seat.elsewhere == out

    def teardown(self) -> None:
        """Let all of it end: every request has one answer, every lease and permit is back."""
        if not hasattr(self, "table"):
            return
        table = self.table
        for _ in range(200):
            table.advance(100.0)
            for dispatch in list(table.running.values()):
                table.finish(dispatch)
            if not table.scheduler.in_flight and not table.running:
                break
        assert table.scheduler.in_flight == 0
        assert table.scheduler.running_attempts == 0
        for name in self.known:
            assert (name in table.delivered) != (name in self.cancelled)
        view = table.scheduler.view()
        assert view["admission"]["inFlight"] == 0
        assert all(replica["inFlight"] == 0 for replica in view["replicas"])
        assert all(tenant["inFlight"] == 0 for tenant in view["tenants"])
        assert all(queue["queued"] == 0 for queue in view["queues"])


TestConservation = Conservation.TestCase
TestConservation.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_exit_of_an_attempt_returns_its_lease_and_its_permit(outcome: Outcome) -> None:
    table = Table([replica("a"), replica("b")])
    name = table.submit()
    (dispatch,) = table.poll()
    table.finish(dispatch, outcome)
    for other in list(table.running.values()):
        table.finish(other, outcome)
    table.advance(3000.0)
    for other in list(table.running.values()):
        table.finish(other)
    assert isinstance(name, str)
    assert table.outcome(name) != "pending"
    view = table.scheduler.view()
    assert view["admission"]["inFlight"] == 0
    assert all(state["inFlight"] == 0 for state in view["replicas"])
