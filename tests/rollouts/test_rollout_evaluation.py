"""From recorded windows to decisions and splits, with a real database."""

import threading
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection

from fleet import services as fleet_services
from fleet.models import Replica, WindowStat
from fleet.selectors import last_seen
from rollouts import services
from rollouts.evaluation import CATCH_UP, evaluate, evaluate_due
from rollouts.models import Decision, Rollout
from rollouts.replay import replay
from rollouts.selectors import status_of
from rollouts.tasks import evaluate_due as celery_tick
from tests.rollouts.scene import POLICY, START, fleet, history, run, split_of, start, step, traffic

pytestmark = pytest.mark.django_db


@pytest.fixture
def rollout() -> Rollout:
    fleet()
    history()
    return start()


def test_a_slow_canary_is_rolled_back_and_its_traffic_returns(rollout: Rollout) -> None:
    names = run(rollout, slowdown=0.6)
    assert names[-1] == "rollback:latency"
    assert rollout.phase == "rolled_back"
    assert split_of() == ("v1", None, 0.0)
    last = rollout.decisions.first()
    assert last is not None
    assert last.verdict["numbers"]["latencyLogE"] >= last.verdict["numbers"]["latencyLimit"]


def test_a_failing_canary_is_rolled_back_soon(rollout: Rollout) -> None:
    assert run(rollout, windows=12, faults=0.2)[-1] == "rollback:failures"


def test_a_bad_baseline_does_not_block_a_good_canary(rollout: Rollout) -> None:
    assert run(rollout, baseline_faults=0.3)[-1] == "promote"


def test_a_cold_canary_waits_and_is_then_promoted(rollout: Rollout) -> None:
    for _ in range(3):
        assert step(rollout, cold=True, slowdown=2.0).name == "hold:warming_up"  # type: ignore[union-attr]
    assert run(rollout)[-1] == "promote"


def test_no_canary_traffic_is_no_data_then_inconclusive(rollout: Rollout) -> None:
    names = run(rollout, windows=150, silent=True)
    assert set(names[:-1]) == {"hold:no_data"}
    assert names[-1] == "hold:inconclusive"
    assert rollout.phase == "inconclusive"
    assert split_of() == ("v1", "v2", 5.0)


def test_too_few_replicas_hold_the_step_and_say_how_many_are_needed() -> None:
    fleet("v1", "v2", replicas=1)
    Replica.objects.update(max_batch_size=2)
    history()
    rollout = start(policy={"steps": [5, 60, 100], "intervalS": 4})
    names = run(rollout, windows=8, per_s=900)
    assert names[-1] == "hold:capacity_limited"
    assert "rollback" not in " ".join(names)
    last = rollout.decisions.first()
    assert last is not None
    assert last.verdict["numbers"]["replicasNeeded"] > 1


def test_a_lull_of_one_second_lets_no_step_through_the_capacity_gate() -> None:
    fleet("v1", "v2", replicas=1)
    Replica.objects.update(max_batch_size=2)
    history(25, per_s=2000)
    rollout = start(policy={"steps": [5, 90, 100], "intervalS": 1, "healthyChecksToAdvance": 1})
    first = step(rollout, per_s=2000)
    lull = step(rollout, per_s=60)
    assert first is not None
    assert lull is not None
    assert (first.name, lull.name) == ("hold:capacity_limited", "hold:capacity_limited")
    assert lull.facts["offered_per_s"] > 1000


def test_the_evidence_of_all_gateways_is_summed(rollout: Rollout) -> None:
    decision = step(rollout, gateways=4)
    assert decision is not None
    rows = WindowStat.objects.filter(window_start__gte=decision.window_start, arm="canary")
    assert {row.gateway for row in rows} == {"g0", "g1", "g2", "g3"}
    assert decision.counts["canary_ended"] == sum(row.served + row.faults for row in rows)
    baseline = WindowStat.objects.filter(window_start__gte=decision.window_start, arm="baseline")
    assert decision.counts["baseline_timed"] == sum(sum(row.execution.values()) for row in baseline)


def test_testers_and_other_models_are_not_evidence(rollout: Rollout) -> None:
    start_at = rollout.window_start
    traffic(start_at, 4, baseline="v3", seed=9)
    traffic(start_at, 4, model="other", canary="v2", percent=50, seed=9)
    decision = step(rollout)
    assert decision is not None
    mine = WindowStat.objects.filter(window_start__gte=start_at, model="m", version="v1")
    assert decision.counts["baseline_ended"] == sum(row.served for row in mine)


def test_a_tick_before_the_window_is_complete_judges_nothing(rollout: Rollout) -> None:
    assert rollout.due_at is not None
    evaluate_due(rollout.due_at - timedelta(milliseconds=1))
    assert rollout.decisions.count() == 0


def test_the_same_window_twice_is_judged_once(rollout: Rollout) -> None:
    due = rollout.due_at
    step(rollout)
    for _ in range(3):
        evaluate_due(due)
        assert evaluate(rollout.pk, now=due) is None
    assert rollout.decisions.count() == 1


def test_a_tick_forty_seconds_late_judges_each_missed_window_once(rollout: Rollout) -> None:
    traffic(rollout.window_start, 48, canary="v2", percent=5.0)
    assert rollout.due_at is not None
    evaluate_due(rollout.due_at + timedelta(seconds=40))
    rows = list(rollout.decisions.order_by("seq"))
    spans = [(row.window_start, row.window_end) for row in rows]
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert "advance" in [row.name for row in rows]
    moved = next(row for row in rows if row.act == "advance")
    later = [row for row in rows if row.seq > moved.seq]
    assert all(row.window_start > moved.at for row in later)


def test_an_hour_without_a_worker_is_not_judged_as_if_it_were_now(rollout: Rollout) -> None:
    assert rollout.due_at is not None
    late = rollout.due_at + timedelta(hours=1)
    evaluate_due(late)
    rows = list(rollout.decisions.order_by("seq"))
    assert 0 < len(rows) <= CATCH_UP
    assert late - rows[0].window_start < timedelta(seconds=POLICY["intervalS"] * (CATCH_UP + 2))  # type: ignore[operator]


def test_a_split_that_somebody_changed_by_hand_ends_the_rollout(rollout: Rollout) -> None:
    fleet_services.set_split("m", baseline="v1", canary="v3", canary_percent=10, actor="ada")
    assert step(rollout) is None
    assert rollout.phase == "superseded"
    assert split_of() == ("v1", "v3", 10.0)


def test_a_paused_rollout_is_not_judged_and_resumes_with_a_fresh_window(rollout: Rollout) -> None:
    step(rollout)
    services.pause("m", actor="ada", reason="lunch")
    evaluate_due(rollout.window_start + timedelta(seconds=60))
    assert rollout.decisions.count() == 1
    later = rollout.window_start + timedelta(seconds=600)
    services.resume("m", actor="ada", reason="back", now=later)
    rollout.refresh_from_db()
    assert rollout.window_start > later
    decision = step(rollout)
    assert decision is not None
    assert decision.resumed
    assert decision.seq == 2


def test_an_inconclusive_rollout_goes_on_once_resumed(rollout: Rollout) -> None:
    run(rollout, windows=150, silent=True)
    services.resume("m", actor="ada", reason="traffic is back", now=rollout.window_start)
    rollout.refresh_from_db()
    assert rollout.phase == "progressing"
    assert run(rollout)[-1] == "promote"


def test_a_shadow_that_looks_good_is_left_to_an_operator() -> None:
    fleet()
    history()
    rollout = start(shadow=True)
    names = run(rollout)
    assert names[-1] == "promote"
    assert rollout.phase == "inconclusive"
    assert rollout.due_at is None
    assert split_of()[0] == "v1"


def test_one_rollout_that_cannot_be_judged_hides_no_other(rollout: Rollout) -> None:
    fleet("v1", "v2", model="other")
    history(model="other")
    second = services.start(
        "other", "v2", policy=POLICY, actor="ada", reason="too", now=START + timedelta(seconds=1)
    )
    Rollout.objects.filter(pk=rollout.pk).update(state={"phase": "no such phase"})
    due = second.due_at
    assert due is not None
    outcomes = {o.rollout: o for o in evaluate_due(due)}
    assert "no such phase" in outcomes[rollout.pk].error
    assert outcomes[second.pk].decisions == 1


def test_a_worker_that_is_gone_is_noticed_and_nothing_moves(rollout: Rollout) -> None:
    assert rollout.due_at is not None
    soon = status_of(rollout, rollout.due_at + timedelta(seconds=5))
    late = status_of(rollout, rollout.due_at + timedelta(seconds=30))
    assert soon.overdue_s is None
    assert late.overdue_s == pytest.approx(30.0)
    assert split_of() == ("v1", "v2", 5.0)


def test_a_tick_that_waits_in_the_queue_dies_before_many_have_piled_up(settings: Any) -> None:
    for name, entry in settings.CELERY_BEAT_SCHEDULE.items():
        assert 0 < entry["options"]["expires"] <= 2 * entry["schedule"], name
    assert settings.CELERY_BEAT_SCHEDULE["judge rollouts"]["schedule"] == 2.0


def test_the_tick_says_that_it_lives(rollout: Rollout) -> None:
    celery_tick()
    seen = last_seen("rollouts")
    assert seen is not None
    assert seen.age_s < 60


def test_without_history_the_judge_calibrates_on_the_first_windows() -> None:
    fleet()
    rollout = start()
    first = step(rollout)
    assert first is not None
    assert first.name == "hold:calibrating"
    assert first.calibration is None
    second = step(rollout)
    assert second is not None
    assert second.calibration is not None
    assert run(rollout)[-1] == "promote"


def test_a_disturbed_history_does_not_leave_a_good_canary_undecided_for_ever() -> None:
    fleet()
    traffic(START - timedelta(seconds=60), 60, slow_by=1.0)
    rollout = start()
    assert run(rollout)[-1] == "promote"
    calibrated = [d for d in rollout.decisions.order_by("seq") if d.calibration is not None]
    assert len(calibrated) == 2
    before, after = (d.calibration["threshold"] for d in calibrated if d.calibration)
    assert after < 0.7 * before
    assert all(one.same for one in replay(rollout))


def test_a_disturbed_history_hides_no_slow_canary() -> None:
    fleet()
    traffic(START - timedelta(seconds=60), 60, slow_by=1.0)
    assert run(start(), slowdown=0.6)[-1] == "rollback:latency"


@pytest.mark.django_db(transaction=True)
def test_two_evaluators_at_once_decide_once() -> None:
    fleet()
    history()
    rollout = start()
    traffic(rollout.window_start, 4, canary="v2", percent=5.0)
    barrier = threading.Barrier(4)
    failed: list[BaseException] = []

    def tick() -> None:
        try:
            barrier.wait(10)
            evaluate_due(rollout.due_at)
        except BaseException as error:
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=tick) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert Decision.objects.filter(rollout=rollout).count() == 1
