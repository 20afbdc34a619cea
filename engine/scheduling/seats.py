"""Which pools does a replica sit in? One process may serve several models.

A replica is registered for one version of one model. Where it declares more loaded models, it
serves those too, each from a seat of its own over the same places (see `shared_places`):

    "b"       model b, in the version under which this replica is registered
    "b@v3"    exactly version v3 of model b

Names that are no model of this fleet, or no version of that model, give no seat: they still
count as loaded. A server of the OpenAI protocol names there what it calls the model that it
serves, and has one seat.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from engine.routing.replica_state import ReplicaState
from engine.routing.shared_places import SharedPlaces
from engine.types import ModelSpec, Protocol, ReplicaSpec

SeatKey = tuple[str, str]  # model, version
Seats = dict[SeatKey, ReplicaState]


def served_by(spec: ReplicaSpec, models: Mapping[str, ModelSpec]) -> list[SeatKey]:
    """The (model, version) pairs it serves besides the one it is registered for."""
    if spec.protocol is Protocol.OPENAI:
        return []
    keys = []
    for name in sorted(spec.loaded_models):
        model, version = name, spec.version
        if name not in models and "@" in name:
            model, _, version = name.rpartition("@")
        known = models.get(model)
        if known is not None and version in known.versions:
            key = (model, version)
            if key != (spec.model, spec.version) and key not in keys:
                keys.append(key)
    return keys


def warm(loaded: frozenset[str]) -> frozenset[str]:
    """What is loaded, by the names of models alone too."""
    if not any("@" in name for name in loaded):
        return loaded
    return loaded | {name.rpartition("@")[0] for name in loaded if "@" in name}


def take_seats(
    first: ReplicaState,
    before: Seats,
    models: Mapping[str, ModelSpec],
    rng: random.Random,
    now_ms: float,
) -> Seats:
    """The further seats of the replica whose own seat is `first`. Those that stay keep their
    leases and what they learned; those that go give back what they hold when it ends."""
    wanted = served_by(first.spec, models)
    if not wanted and not before:
        return before
    places = first.shared or SharedPlaces(first)
    for key in [key for key in before if key not in wanted]:
        places.leave(before[key])
    seats: Seats = {}
    for key in wanted:
        spec = replace(
            first.spec,
            model=key[0],
            version=key[1],
            loaded_models=warm(first.spec.loaded_models),
        )
        seat = before.get(key)
        if seat is None:
            seat = ReplicaState(spec, now_ms, random.Random(rng.getrandbits(64)), first.config)
            seat.ready = first.ready
            places.join(seat, now_ms)
        elif seat.spec != spec:
            seat.update(spec, now_ms)
        seats[key] = seat
    return seats
