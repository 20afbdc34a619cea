"""The station in virtual time, on a simulated machine: what the controller is for."""

import random
from dataclasses import replace
from functools import cache

import pytest

from bench.replica_load import PATTERNS, Pattern
from bench.replica_run import Run
from bench.replica_virtual import Machine, VirtualReplica, station_config

SHORT_STEP = replace(PATTERNS["step"], phases=((20.0, 75.0), (40.0, 150.0)))
SHORT_BURST = replace(PATTERNS["burst"], phases=((5.0, 20.0), (10.0, 150.0), (5.0, 20.0)))


@cache
def play(name: str, *, seed: int, adaptive: bool = True, workers: int = 2) -> Run:
    """A run of a named pattern; tests that look at the same one share it."""
    return run_of(PATTERNS[name], seed=seed, adaptive=adaptive, workers=workers)


def run_of(pattern: Pattern, *, seed: int, adaptive: bool = True, workers: int = 2) -> Run:
    config = station_config(slo_ms=150.0, adaptive=adaptive, workers=workers, batch_size=8)
    return VirtualReplica(pattern, config, Machine(), random.Random(seed)).run()


@pytest.mark.parametrize("seed", [1, 2])
def test_admission_control_is_off_again_within_ten_seconds_of_an_incident(seed: int) -> None:
    run = play("incident", seed=seed)
    assert any(sample.admission_control for sample in run.samples), "the incident was not felt"
    assert run.gate_off_after_s is not None
    assert run.gate_off_after_s <= 10.0


def test_shedding_does_not_outlive_its_reason() -> None:
    run = play("incident", seed=2)
    at_70_s = next(sample for sample in run.samples if sample.at_s >= 70.0)
    late_refusals = run.samples[-1].refused - at_70_s.refused
    assert late_refusals <= 0.01 * 50 * 50, "more than 1 % of fifty quiet seconds was refused"


def test_standard_work_trickles_in_all_through_an_overload() -> None:
    config = station_config(slo_ms=150.0, adaptive=True, workers=2, batch_size=8)
    pattern = replace(PATTERNS["step"], phases=((5.0, 50.0), (20.0, 300.0)))
    replica = VirtualReplica(pattern, config, Machine(), random.Random(5))
    longest_silence_ms = 0.0
    last_ms = 0.0
    start = replica._start

    def watched() -> None:
        nonlocal longest_silence_ms, last_ms
        start()
        now_ms = replica.loop.now_ms()
        if replica.station._running["standard"]:
            longest_silence_ms = max(longest_silence_ms, now_ms - last_ms)
            last_ms = now_ms

    replica._start = watched  # type: ignore[method-assign]
    run = replica.run()
    assert run.refused > 2000, "it was no overload"
    assert longest_silence_ms < 2000.0


def test_p95_keeps_the_objective_while_the_load_doubles_past_capacity() -> None:
    adaptive, static = run_of(SHORT_STEP, seed=1), run_of(SHORT_STEP, seed=1, adaptive=False)
    assert adaptive.kept_ratio is not None
    assert static.kept_ratio is not None
    assert adaptive.kept_ratio >= 0.95
    assert static.kept_ratio < 0.8, "the static server keeps it too: the test proves nothing"
    assert adaptive.in_time > static.in_time


@pytest.mark.parametrize("name", ["burst", "incident"])
def test_no_limit_changes_direction_more_than_twice_a_minute(name: str) -> None:
    run = play(name, seed=1)
    assert run.moves, "nothing was regulated"
    assert run.sign_changes_per_minute <= 2


def test_more_workers_than_cores_are_taken_away_and_the_burst_is_served() -> None:
    adaptive = play("burst", seed=7, workers=4)
    static = play("burst", seed=7, workers=4, adaptive=False)
    assert min(move.max_workers for move in adaptive.moves) < 4
    assert adaptive.in_time > 1.5 * static.in_time


def test_a_load_that_fits_is_left_alone() -> None:
    run = play("steady", seed=8)
    assert run.moves == []
    assert run.refused == run.expired == 0


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_of(SHORT_BURST, seed=9).to_row() == run_of(SHORT_BURST, seed=9).to_row()
