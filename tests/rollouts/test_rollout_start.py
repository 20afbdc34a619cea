"""Starting: what is refused, and what replaces what."""

import pytest

from engine.errors import InvalidInput, UnknownName
from fleet import services as fleet_services
from fleet.models import Replica
from fleet.services import Conflict
from rollouts import services
from rollouts.models import Rollout
from tests.rollouts.scene import POLICY, fleet, history, run, split_of, start, step

pytestmark = pytest.mark.django_db


def test_starting_gives_the_canary_its_first_share() -> None:
    fleet()
    rollout = start()
    assert (rollout.phase, rollout.percent, rollout.step) == ("progressing", 5.0, 0)
    assert split_of() == ("v1", "v2", 5.0)
    assert rollout.window_start.microsecond == 0


def test_a_version_without_a_ready_replica_is_refused() -> None:
    fleet("v1", "v2")
    Replica.objects.filter(version__name="v2").update(draining=True)
    with pytest.raises(InvalidInput, match="has no ready replica"):
        start()
    assert split_of() == ("v1", None, 0.0)


def test_the_stable_version_cannot_replace_itself() -> None:
    fleet()
    with pytest.raises(InvalidInput, match="is the stable version already"):
        start("v1")


def test_an_unknown_version_is_named_with_the_known_ones() -> None:
    fleet("v1", "v2")
    with pytest.raises(UnknownName, match="known: v1, v2"):
        start("v9")


def test_descending_steps_are_refused_by_name() -> None:
    fleet()
    with pytest.raises(InvalidInput) as error:
        start(policy={"steps": [50, 25]})
    assert error.value.field == "steps"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("intervalS", 0),
        ("intervalS", 2.5),
        ("alpha", 2),
        ("sloMs", "fast"),
        ("latencyToleranceFactor", 1.0),
        ("errorRateToleranceFactor", 0.5),
        ("minimumRequests", -1),
        ("maxDurationMs", 0),
        ("stepss", [5]),
        ("steps", "5,25"),
    ],
)
def test_a_policy_field_that_makes_no_sense_is_named_as_it_was_written(
    field: str, value: object
) -> None:
    fleet()
    with pytest.raises(InvalidInput) as error:
        start(policy={field: value})
    assert error.value.field == field


def test_a_second_rollout_is_refused_with_the_state_of_the_first() -> None:
    fleet()
    start()
    with pytest.raises(Conflict, match=r"rollout to v2 under way \(progressing at 5 %\)"):
        start("v3")
    assert split_of() == ("v1", "v2", 5.0)


def test_the_database_itself_allows_one_active_rollout_a_model() -> None:
    fleet()
    first = start()
    copy = Rollout.objects.get(pk=first.pk)
    copy.pk = None
    copy.canary = "v3"
    with pytest.raises(Exception, match="one_active_rollout_a_model"):
        copy.save(force_insert=True)


def test_a_canary_that_has_traffic_by_hand_is_not_taken_over_silently() -> None:
    fleet()
    fleet_services.set_split("m", baseline="v1", canary="v2", canary_percent=40, actor="ada")
    with pytest.raises(Conflict, match="v2 has 40 % of m by hand"):
        start("v3")
    start("v3", supersede_active=True)
    assert split_of() == ("v1", "v3", 5.0)


def test_a_newer_version_supersedes_and_is_measured_against_the_stable_one() -> None:
    fleet()
    history()
    first = start()
    run(first, windows=4)
    assert first.percent > 5.0
    second = start("v3", supersede_active=True, now=first.window_start)
    first.refresh_from_db()
    assert (first.phase, first.superseded_by_id) == ("superseded", second.pk)
    assert (second.baseline, second.percent) == ("v1", 5.0)
    assert second.salt != first.salt
    assert second.state["columns"]["step"] == []
    assert split_of() == ("v1", "v3", 5.0)


def test_after_a_rollback_the_next_rollout_sends_nothing_to_the_version_that_failed() -> None:
    fleet()
    history()
    first = start()
    assert run(first, faults=0.3)[-1] == "rollback:failures"
    assert split_of() == ("v1", None, 0.0)
    second = start("v3", now=first.window_start)
    assert split_of() == ("v1", "v3", 5.0)
    assert run(second, faults=0.3)[-1] == "rollback:failures"
    assert split_of() == ("v1", None, 0.0)


def test_the_way_back_leads_to_the_version_that_was_promoted_last() -> None:
    fleet()
    history()
    assert run(start())[-1] == "promote"
    ended = Rollout.objects.get()
    second = start("v3", now=ended.window_start)
    assert split_of() == ("v2", "v3", 5.0)
    assert run(second, faults=0.3)[-1] == "rollback:failures"
    assert split_of() == ("v2", None, 0.0)


def test_moving_traffic_needs_a_reason() -> None:
    fleet()
    with pytest.raises(InvalidInput, match="say why"):
        start(reason="  ")


def test_a_model_without_a_stable_version_has_nothing_to_compare_with() -> None:
    fleet()
    fleet_services.clear_split("m", actor="ada")
    with pytest.raises(Conflict, match="no stable version yet"):
        start()


def test_the_fields_of_older_systems_mean_what_they_say() -> None:
    fleet()
    rollout = start(
        policy=POLICY
        | {
            "healthyChecksToAdvance": 3,
            "unhealthyChecksToRollback": 2,
            "minimumRequests": 120,
            "latencyToleranceFactor": 1.4,
            "errorRateToleranceFactor": 2.0,
            "maxDurationMs": 40_000,
        }
    )
    history()
    names = run(rollout, windows=3)
    assert names == ["hold:collecting", "hold:collecting", "hold:collecting"]
    assert rollout.policy["nonInferiorityPercent"] == pytest.approx(40.0)
    run(rollout, windows=7)
    assert rollout.phase == "inconclusive"
    assert "lasted 10 windows" in rollout.decisions.first().text


def test_a_version_slower_within_the_latency_tolerance_factor_is_promoted() -> None:
    fleet()
    history()
    rollout = start(policy=POLICY | {"latencyToleranceFactor": 1.6})
    assert run(rollout, slowdown=0.2)[-1] == "promote"


def test_a_version_slower_than_the_latency_tolerance_factor_is_rolled_back() -> None:
    fleet()
    history()
    rollout = start(policy=POLICY | {"latencyToleranceFactor": 1.1})
    assert run(rollout, slowdown=0.6)[-1] == "rollback:latency"


def test_a_rollout_of_a_model_nobody_knows_is_refused() -> None:
    with pytest.raises(UnknownName):
        services.abort("nothing", actor="ada", reason="x")


def test_a_good_canary_ends_as_the_stable_version() -> None:
    fleet()
    history()
    rollout = start()
    names = run(rollout)
    assert names[-1] == "promote"
    assert (rollout.phase, rollout.percent) == ("promoted", 100.0)
    assert split_of() == ("v2", None, 0.0)
    assert step(rollout) is None
