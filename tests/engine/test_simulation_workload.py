"""Workloads and devices are what their names say, and a pure function of the seed."""

import random
import statistics

import pytest

from engine.errors import InvalidInput
from engine.simulation.device import (
    Fault,
    FaultKind,
    SimulatedReplica,
    affine,
    drifting,
    jittered,
    noisy,
    padded,
    scaled,
)
from engine.simulation.workload import HEADLINE, Mix, SizeMix, mmpp, poisson, requests
from engine.types import ReplicaSpec

SPEC = ReplicaSpec(replica_id="gpu0", model="m", version="v1", address="sim://0")


def test_a_poisson_process_has_its_rate_and_ends() -> None:
    times = list(poisson(200.0, random.Random(1), 60_000.0))
    assert len(times) == pytest.approx(12_000, rel=0.03)
    assert times == sorted(times)
    assert times[-1] < 60_000.0


def test_a_workload_is_a_pure_function_of_its_seed() -> None:
    def make(seed: int) -> list[object]:
        rng = random.Random(seed)
        return list(requests(poisson(100.0, rng, 5000.0), HEADLINE, rng))

    assert make(1) == make(1)
    assert make(1) != make(2)


def test_the_headline_mix_has_its_sizes_and_deadlines() -> None:
    rng = random.Random(2)
    offered = list(requests(poisson(200.0, rng, 60_000.0), HEADLINE, rng))
    assert statistics.mean(each.tokens for each in offered) == pytest.approx(182.0, rel=0.05)
    urgent = sum(each.deadline_ms - each.at_ms < 200.0 for each in offered) / len(offered)
    assert urgent == pytest.approx(0.3, abs=0.02)
    assert min(each.tokens for each in offered) >= 16


def test_bursts_come_and_go() -> None:
    times = list(mmpp([(50.0, 2000.0), (500.0, 1000.0)], random.Random(3), 120_000.0))
    per_second = [0] * 121
    for at_ms in times:
        per_second[int(at_ms // 1000)] += 1
    assert max(per_second) > 400
    assert statistics.median(per_second) < 200
    assert times == sorted(times)


def test_few_sessions_carry_most_of_a_skewed_load() -> None:
    rng = random.Random(4)
    mix = Mix(sessions=100, zipf=1.1)
    sessions = [each.session for each in requests(poisson(500.0, rng, 10_000.0), mix, rng)]
    assert sessions.count("s0") > 10 * max(sessions.count("s99"), 1)


def test_a_mix_that_does_not_add_up_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="deadlines"):
        Mix(deadlines=((0.5, 100.0),))
    with pytest.raises(InvalidInput, match="most"):
        SizeMix(least=10, most=5)
    with pytest.raises(InvalidInput, match="states"):
        list(mmpp([], random.Random(1), 10.0))


def test_devices_cost_what_they_say() -> None:
    rng = random.Random(5)
    assert affine(18.0, 0.022)([100.0, 100.0], 0.0, rng) == pytest.approx(22.4)
    assert padded(2.0, 0.1, 0.001)([10.0, 100.0], 0.0, rng) == pytest.approx(2 + 20 + 20)
    assert scaled(affine(18.0, 0.022), 0.6)([100.0], 0.0, rng) == pytest.approx(20.2 / 0.6)
    later = drifting(affine(18.0, 0.022), affine(18.0, 0.0352), 60_000.0)
    assert later([1000.0], 59_999.0, rng) == pytest.approx(40.0)
    assert later([1000.0], 60_000.0, rng) == pytest.approx(53.2)


def test_noise_has_the_width_it_says() -> None:
    rng = random.Random(6)
    uniform = [jittered(affine(100.0, 1e-9), 0.08)([1.0], 0.0, rng) for _ in range(2000)]
    assert 92.0 <= min(uniform) < 93.0
    assert 107.0 < max(uniform) <= 108.0
    normal = [noisy(affine(100.0, 1e-9), 0.1)([1.0], 0.0, rng) for _ in range(2000)]
    assert statistics.stdev(normal) == pytest.approx(10.0, rel=0.1)


def test_a_fault_strikes_in_its_time_and_at_its_rate() -> None:
    rng = random.Random(7)
    fault = Fault(kind=FaultKind.FAIL, start_ms=100.0, end_ms=200.0, ratio=0.5)
    replica = SimulatedReplica(spec=SPEC, service=affine(18.0, 0.022), faults=[fault])
    before = [replica.run([100.0], 50.0, rng).fault for _ in range(100)]
    inside = [replica.run([100.0], 150.0, rng).fault for _ in range(1000)]
    assert before == [None] * 100
    assert sum(each is fault for each in inside) == pytest.approx(500, abs=60)
    hanging = Fault(kind=FaultKind.HANG)
    assert (
        SimulatedReplica(spec=SPEC, service=affine(1.0, 1.0), faults=[hanging])
        .run([1.0], 0.0, rng)
        .service_ms
        is None
    )
