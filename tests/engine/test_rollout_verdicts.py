"""What the judge says of good, bad, silent, broken and cramped canaries."""

import json
from math import inf, nan

import pytest

from engine.errors import InvalidInput
from engine.rollout.capacity import CapacityFacts, largest_ratio, replicas_needed
from engine.rollout.controller import judge
from engine.rollout.counts import ArmSum, WindowCounts, count_window
from engine.rollout.policy import RolloutPolicy
from engine.rollout.state import JudgeState
from engine.rollout.verdict import Phase
from engine.stats.histogram import LogHistogram
from tests.engine.rollout_scenes import QUIET, Scene


def test_a_good_canary_climbs_every_step_and_is_promoted() -> None:
    scene = Scene()
    assert scene.run(60).name == "promote"
    ratios = [v.ratio for v in scene.verdicts if v.name == "advance"]
    assert ratios == [0.05, 0.25, 0.5, 1.0]
    assert scene.last.phase is Phase.PROMOTED
    earned = [v for v in scene.verdicts if v.reason == "non_inferior"]
    assert [v.step for v in earned] == [4]


def test_a_slow_canary_is_rolled_back_with_the_numbers_that_were_compared() -> None:
    scene = Scene()
    assert scene.run(60, slow=0.27, slower=0.2).name == "rollback:latency"
    numbers = scene.last.numbers
    assert numbers["latencyLogE"] >= numbers["latencyLimit"]  # type: ignore[operator]
    assert "log E" in scene.last.text
    assert scene.last.ratio == 0.0


def test_a_slow_canary_is_not_condemned_by_one_window() -> None:
    scene = Scene(total=200, step=3)
    assert scene.window(slow=0.2, slower=0.15).act == "hold"


def test_failures_of_five_per_cent_are_found_within_three_windows() -> None:
    scene = Scene(total=4000)
    assert scene.run(3, faults=0.05).name == "rollback:failures"


def test_five_failures_in_five_hundred_are_seen_where_the_baseline_had_none() -> None:
    policy = RolloutPolicy(steps=(0.05, 0.5))
    scene = Scene(policy, total=5000)
    for faults in (3, 2):
        scene.window(canary_faults=faults)
    assert scene.last.name == "rollback:failures"


def test_one_dead_batch_is_an_incident_and_not_a_pattern() -> None:
    scene = Scene(total=4000)
    scene.window(canary_faults=16)
    assert scene.last.act == "hold"
    assert scene.run(40).name == "promote"


def test_a_canary_that_sheds_everything_is_caught_and_not_called_insufficient_data() -> None:
    scene = Scene(total=4000)
    shape = {"canary_sheds": 40, "canary_timed": 0, "slow_canary": 0, "canary_answered": 0}
    assert scene.run(4, **shape).name == "rollback:failures"


def test_a_canary_that_misses_deadlines_is_rolled_back() -> None:
    scene = Scene(total=4000)
    scene.run(10, canary_misses=12)
    assert scene.last.name == "rollback:misses"


def test_no_canary_traffic_is_no_data_and_then_inconclusive_never_latency() -> None:
    scene = Scene()
    scene.window()
    before = (scene.state.healthy, scene.state.unhealthy)
    silent = {"canary_ended": 0, "canary_timed": 0, "slow_canary": 0}
    scene.run(19, **silent)
    assert set(scene.names[1:]) == {"hold:no_data"}
    assert (scene.state.healthy, scene.state.unhealthy) == before
    assert scene.window(**silent).name == "hold:inconclusive"
    assert scene.state.phase is Phase.INCONCLUSIVE
    assert "no traffic for 20 windows" in scene.last.text


@pytest.mark.parametrize("value", [nan, None, inf, -3, "many", True])
def test_a_metric_that_is_no_number_is_no_data_and_moves_nothing(value: object) -> None:
    scene = Scene()
    data = scene.counts().to_json() | {"canary_ended": value}
    counts = WindowCounts.from_json(data)
    assert counts.canary_ended is None
    assert scene.window(counts).name == "hold:no_data"
    assert (scene.state.healthy, scene.state.unhealthy) == (0, 0)


def test_a_missing_histogram_neither_acquits_nor_condemns() -> None:
    scene = Scene(step=3)
    for _ in range(8):
        scene.window(slow_canary=None, slow_baseline=None)
    assert scene.state.phase is Phase.PROGRESSING
    assert scene.last.numbers["latencyLogE"] == 0.0
    assert scene.last.name == "hold:collecting"


def test_too_few_replicas_hold_the_step_and_never_roll_back() -> None:
    scene = Scene(RolloutPolicy(steps=(0.05, 0.25, 0.6, 1.0)))
    facts = CapacityFacts(canary_ready=1, canary_per_s=40.0, offered_per_s=80.0)
    for _ in range(60):
        scene.window(facts=facts)
    assert scene.last.name == "hold:capacity_limited"
    assert scene.state.step == 1
    assert scene.last.numbers["replicasNeeded"] == 2
    assert "2 replicas would, 1 are ready" in scene.last.text


def test_sheds_and_misses_beyond_capacity_are_nobodys_evidence() -> None:
    scene = Scene(RolloutPolicy(steps=(0.05, 0.25, 0.6, 1.0)), step=2)
    facts = CapacityFacts(canary_ready=1, canary_per_s=40.0, offered_per_s=80.0)
    for _ in range(40):
        scene.window(facts=facts, canary_sheds=150, canary_misses=120)
    assert set(scene.names) == {"hold:capacity_limited"}
    assert scene.last.numbers["missesLogE"] == 0.0


def test_what_nobody_knows_of_capacity_limits_nothing() -> None:
    policy = RolloutPolicy()
    assert largest_ratio(CapacityFacts(canary_ready=3), policy) is None
    assert largest_ratio(CapacityFacts(canary_ready=0), policy) == 0.0
    assert replicas_needed(0.5, CapacityFacts(canary_ready=3), policy) is None


def test_a_cold_canary_is_not_a_slow_one() -> None:
    scene = Scene()
    for _ in range(3):
        scene.window(canary_timed=0, slow_canary=0, slower_canary=0)
        assert scene.last.name == "hold:warming_up"
    assert scene.run(60).name == "promote"


def test_a_bad_baseline_does_not_block_a_good_canary() -> None:
    scene = Scene()
    assert scene.run(60, base_faults=0.3).name == "promote"


def test_a_bad_baseline_is_no_excuse_for_a_worse_canary() -> None:
    scene = Scene(total=4000)
    assert scene.run(60, base_faults=0.1, faults=0.4).name == "rollback:failures"


def test_a_split_that_is_not_the_configured_one_holds() -> None:
    scene = Scene(RolloutPolicy(steps=(0.25, 0.5), healthy_windows=10))
    for _ in range(4):
        scene.window(canary_sessions=400.0, baseline_sessions=600.0)
    assert scene.last.name == "hold:invalid_srm"


def test_a_gross_mismatch_of_requests_holds_where_nobody_counts_sessions() -> None:
    scene = Scene(RolloutPolicy(steps=(0.05, 0.5), healthy_windows=10))
    for _ in range(3):
        scene.window(canary_requests=300, baseline_requests=700)
    assert scene.last.name == "hold:invalid_srm"


def test_a_baseline_that_differs_from_itself_forbids_a_latency_verdict() -> None:
    scene = Scene(total=8000, step=3)
    for _ in range(12):
        scene.window(slow=0.2, slower=0.15, base_slow=0.05, half_slow=20)
    assert scene.last.name == "hold:invalid_aa"
    assert scene.state.phase is Phase.PROGRESSING


def test_windows_of_one_second_still_show_a_baseline_that_differs_from_itself() -> None:
    scene = Scene(total=8000, step=3)
    for number in range(12):
        all_even = number % 2 == 0
        shape = {"half_timed": 4000, "half_slow": 320} if all_even else {"half_timed": 0}
        base_slow = 0.08 if all_even else 0.02
        scene.window(slow=0.2, slower=0.15, base_slow=base_slow, **{"half_slow": 0, **shape})
    assert scene.last.name == "hold:invalid_aa"


def test_windows_of_one_second_of_a_steady_baseline_are_trusted() -> None:
    scene = Scene(total=8000, step=3)
    for number in range(12):
        half = 4000 if number % 2 == 0 else 0
        scene.window(slow=0.2, slower=0.15, half_timed=half, half_slow=half // 20)
        if scene.state.phase is Phase.ROLLED_BACK:
            break
    assert scene.last.name == "rollback:latency"


def test_an_absolute_slo_is_met_or_nothing_advances() -> None:
    scene = Scene(RolloutPolicy(slo_ms=200.0))
    for _ in range(10):
        scene.window(canary_over_slo=5, canary_answered=20)
    assert scene.last.name == "hold:slo_missed"
    assert scene.state.step == 0


def test_promotion_has_to_be_earned_and_time_alone_never_promotes() -> None:
    scene = Scene(RolloutPolicy(max_wait_windows=30), total=400, step=3)
    scene.run(30, slow=0.05, slower=0.04)
    assert scene.names[-1] == "hold:inconclusive"
    assert scene.state.phase is Phase.INCONCLUSIVE
    assert "promote" not in scene.names


def test_an_inconclusive_rollout_is_still_watched_for_harm() -> None:
    scene = Scene(RolloutPolicy(max_wait_windows=3), total=4000, step=3)
    scene.run(3, slow=0.05, slower=0.04)
    assert scene.state.phase is Phase.INCONCLUSIVE
    scene.run(10, slow=0.3, slower=0.25)
    assert scene.last.name == "rollback:latency"


def test_harm_at_full_traffic_is_judged_against_the_step_before() -> None:
    scene = Scene(total=4000)
    while scene.state.step < 4:
        scene.window()
    scene.run(4, faults=0.05)
    assert scene.last.name == "rollback:failures"


def test_the_same_window_twice_counts_once() -> None:
    scene = Scene()
    counts = scene.counts()
    scene.window(counts)
    state = scene.state
    assert scene.window(counts).name == "hold:duplicate"
    assert scene.state == state


def test_a_restart_between_two_windows_changes_no_bit() -> None:
    through, restarted = Scene(), Scene()
    for _ in range(12):
        through.window(slow=0.04)
        restarted.window(slow=0.04)
        restarted.restart()
    assert through.state == restarted.state
    assert [v.to_json() for v in through.verdicts] == [v.to_json() for v in restarted.verdicts]


def test_every_verdict_can_be_replayed_from_what_was_written_down() -> None:
    scene = Scene(RolloutPolicy(slo_ms=500.0))
    facts = CapacityFacts(canary_ready=2, canary_per_s=700.0, offered_per_s=100.0)
    for number in range(25):
        scene.window(facts=facts, slow=0.02 + 0.001 * number)
    written = json.loads(
        json.dumps(
            [
                (c.to_json(), f.to_json(), v.to_json())
                for (c, f), v in zip(scene.inputs, scene.verdicts, strict=True)
            ]
        )
    )
    state = JudgeState(calibration=scene.state.calibration)
    for counts, known, expected in written:
        state, verdict = judge(
            state, WindowCounts.from_json(counts), scene.policy, CapacityFacts.from_json(known)
        )
        assert json.loads(json.dumps(verdict.to_json())) == expected


def test_a_rollback_can_be_made_to_need_several_unhealthy_windows() -> None:
    eager, patient = Scene(total=1500), Scene(RolloutPolicy(unhealthy_windows=4), total=1500)
    for scene in (eager, patient):
        scene.run(60, slow=0.11, slower=0.09)
        assert scene.last.name == "rollback:latency"
    assert len(patient.verdicts) >= len(eager.verdicts)
    assert patient.state.unhealthy >= 4


def test_a_step_needs_its_minimum_of_requests() -> None:
    scene = Scene(RolloutPolicy(minimum_requests=100))
    scene.run(9)
    assert scene.state.step == 0
    assert "90 of 100 requests" in scene.last.text
    assert scene.window().name == "advance"


def test_where_no_minimum_is_set_nobody_reads_of_so_many_of_0_requests() -> None:
    scene = Scene()
    scene.window()
    assert scene.last.text == "1 of 2 healthy windows at 1%"


def test_the_observed_failure_ratio_can_be_bounded_too() -> None:
    policy = RolloutPolicy(
        steps=(0.25, 0.5), error_tolerance_factor=1.2, failure_allowance_ratio=0.0
    )
    scene = Scene(policy, total=400)
    scene.run(3, faults=0.02, base_faults=0.01)
    assert scene.last.name == "hold:errors_above_tolerance"


def test_a_threshold_that_nothing_of_the_baseline_lies_above_wants_to_be_fixed_anew() -> None:
    scene = Scene(total=400)
    scene.run(4, base_slow=0.0, slow=0.0, slower=0.0)
    assert not scene.state.wants_calibration
    scene.run(1, base_slow=0.0, slow=0.0, slower=0.0)
    assert scene.state.wants_calibration
    scene.state = scene.state.calibrated(QUIET)
    assert not scene.state.wants_calibration  # what was counted against the old one is past
    resumed = JudgeState.from_json(json.loads(json.dumps(scene.state.to_json())))
    assert resumed == scene.state


@pytest.mark.parametrize("base_slow", [0.03, 0.05, 0.1])
def test_a_threshold_that_is_nearly_right_stays(base_slow: float) -> None:
    scene = Scene(total=400)
    scene.run(12, base_slow=base_slow)
    assert not scene.state.wants_calibration


def test_an_uncalibrated_judge_waits_for_its_threshold() -> None:
    scene = Scene(calibration=None)
    assert scene.window().name == "hold:calibrating"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("steps", {"steps": ()}),
        ("steps", {"steps": (0.5, 0.25)}),
        ("steps", {"steps": (0.25, 0.25)}),
        ("steps", {"steps": (1.0,)}),
        ("steps", {"steps": (0.5, 1.5)}),
        ("alpha", {"alpha": 0.0}),
        ("non_inferiority_ratio", {"non_inferiority_ratio": 0.05}),
        ("capacity_rho", {"capacity_rho": 2.0}),
        ("slo_ms", {"slo_ms": nan}),
    ],
)
def test_a_policy_that_makes_no_sense_names_its_field(
    field: str, values: dict[str, object]
) -> None:
    with pytest.raises(InvalidInput) as error:
        RolloutPolicy(**values)  # type: ignore[arg-type]
    assert error.value.field == field


def test_histograms_become_counts_against_a_fixed_threshold() -> None:
    timings = LogHistogram()
    for value in (1.0, 1.0, 1.7, 1.9, 2.5):
        timings.record(value)
    arm = ArmSum(served=5, execution=timings, latency=timings)
    counts = count_window(7, arm, arm, None, 1.6, RolloutPolicy(slo_ms=2.0))
    assert (counts.slow_baseline, counts.slow_canary, counts.slower_canary) == (3, 2, 1)
    assert counts.canary_over_slo == 1
    assert counts.half_timed is None
    blind = count_window(7, arm, None, None, None, RolloutPolicy())
    assert blind.slow_baseline is None
    assert blind.canary_ended is None
