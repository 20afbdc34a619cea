"""A fleet that grows is not held back by a limit that has yet to find that out."""

import random

from engine.clock import ManualClock
from engine.scheduler import Scheduler
from engine.types import FleetSnapshot, ModelSpec, Protocol, ReplicaSpec, SplitSpec


def limit_of(*replicas: ReplicaSpec) -> float:
    scheduler = Scheduler(ManualClock(), random.Random(1))
    scheduler.apply(
        FleetSnapshot(
            revision=1,
            models={
                "m": ModelSpec(
                    model="m",
                    versions=frozenset({"v1"}),
                    split=SplitSpec(model="m", baseline="v1"),
                )
            },
            replicas={spec.replica_id: spec for spec in replicas},
        )
    )
    return scheduler.view()["admission"]["limit"]


def many(
    count: int, *, protocol: Protocol, at_once: int, draining: bool = False
) -> list[ReplicaSpec]:
    return [
        ReplicaSpec(
            replica_id=f"r{n}",
            model="m",
            version="v1",
            address="http://r",
            protocol=protocol,
            max_concurrency=at_once,
            draining=draining,
        )
        for n in range(count)
    ]


def test_forty_replicas_are_not_given_one_replicas_limit() -> None:
    assert limit_of(*many(40, protocol=Protocol.BATCH, at_once=1)) == 2 * 40 * 32


def test_a_server_of_streams_counts_its_streams() -> None:
    assert limit_of(*many(4, protocol=Protocol.OPENAI, at_once=200)) == 2 * 4 * 200


def test_a_small_fleet_starts_where_nobody_is_refused_without_evidence() -> None:
    assert limit_of(*many(1, protocol=Protocol.BATCH, at_once=1)) == 256.0


def test_replicas_that_drain_promise_nothing() -> None:
    assert limit_of(*many(40, protocol=Protocol.BATCH, at_once=1, draining=True)) == 256.0
