"""What is remembered of each replica, and which objective the fleet's latency is read against."""

from typing import Any

from fleet.live.merge import AgedView, merge
from fleet.live.objectives import busiest_slo_ms, nearest
from fleet.live.state import LiveState
from fleet.live.tracks import Batch, Tracks
from tests.browser.stage import view


def state_at(second: int, **changes: Any) -> LiveState:
    body = view(second) | changes
    return merge([AgedView(gateway="a", seq=second, age_s=0.1, view=body)])


def test_a_batch_is_kept_once_however_often_its_view_is_repeated() -> None:
    tracks = Tracks()
    for second in (240, 240, 241):
        tracks.add(second * 1000, state_at(second))
    kept = tracks.batches("llama-a100-1")
    assert len(kept) == 2
    assert all(isinstance(batch, Batch) and batch.work > 0 and batch.ms > 0 for batch in kept)


def test_a_replica_that_ran_nothing_has_no_batch_at_zero() -> None:
    tracks = Tracks()
    tracks.add(240_000, state_at(240))
    assert tracks.batches("minilm-cpu-1") == []
    assert tracks.batches("nobody") == []


def test_a_breakers_turns_are_kept_with_the_second_of_each() -> None:
    tracks = Tracks()
    for second in range(290, 302):
        tracks.add(second * 1000, state_at(second))
    turns = [(turn.at_ms, turn.state) for turn in tracks.turns("llama-t4-1")]
    assert turns == [(290_000, "open"), (296_000, "half_open"), (300_000, "open")]


def test_a_replica_that_left_is_forgotten() -> None:
    tracks = Tracks()
    tracks.add(240_000, state_at(240))
    tracks.add(241_000, state_at(241, replicas=[]))
    assert tracks.turns("llama-t4-1") == []


def test_the_objective_jumped_between_models_while_their_traffic_stood_still() -> None:
    seen = set()
    for second in range(240, 300):
        admission = view(second)["admission"] | {"sloMs": 1000.0 if second % 2 else 250.0}
        seen.add(busiest_slo_ms(state_at(second, admission=admission)))
    assert seen == {1000.0}


def test_the_version_nearest_to_its_own_objective_is_the_one_to_look_at() -> None:
    state = state_at(240)
    held = nearest(state)
    assert held is not None
    assert (held.model, held.slo_ms, held.kept) == ("llama-3-8b", 1000.0, True)
    state["models"][1]["versions"][0] = state["models"][1]["versions"][0] | {"p95Ms": 400.0}
    held = nearest(state)
    assert held is not None
    assert (held.model, held.slo_ms, held.kept) == ("minilm", 250.0, False)
    assert nearest(state_at(240, models=[])) is None
