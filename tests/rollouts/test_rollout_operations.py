"""What operators do: idempotent, reasoned, recorded, and possible without Celery."""

import pytest

from engine.errors import InvalidInput
from fleet.services import Conflict
from rollouts import services
from rollouts.models import AuditEvent, Rollout
from tests.rollouts.scene import fleet, split_of, start

pytestmark = pytest.mark.django_db


@pytest.fixture
def rollout() -> Rollout:
    fleet()
    return start()


def test_abort_takes_the_traffic_away_at_once(rollout: Rollout) -> None:
    done = services.abort("m", actor="ada", reason="looks odd")
    assert (done.phase, done.percent) == ("aborted", 0.0)
    assert split_of() == ("v1", None, 0.0)


def test_aborting_again_changes_nothing_and_is_no_error(rollout: Rollout) -> None:
    services.abort("m", actor="ada", reason="looks odd")
    events = AuditEvent.objects.count()
    assert services.abort("m", actor="bob", reason="me too").phase == "aborted"
    assert AuditEvent.objects.count() == events


def test_promoting_what_was_aborted_is_a_conflict_that_says_the_state(rollout: Rollout) -> None:
    services.abort("m", actor="ada", reason="looks odd")
    with pytest.raises(Conflict, match="is aborted: it cannot be promoted"):
        services.promote("m", actor="ada", reason="after all")
    assert split_of() == ("v1", None, 0.0)


def test_promote_makes_the_canary_the_stable_version(rollout: Rollout) -> None:
    assert services.promote("m", actor="ada", reason="sure").phase == "promoted"
    assert split_of() == ("v2", None, 0.0)
    assert services.promote("m", actor="ada", reason="sure").phase == "promoted"


def test_a_paused_rollout_keeps_its_split(rollout: Rollout) -> None:
    services.pause("m", actor="ada", reason="lunch")
    assert split_of() == ("v1", "v2", 5.0)
    assert services.resume("m", actor="ada", reason="back").phase == "progressing"


@pytest.mark.parametrize("act", ["promote", "abort", "pause", "resume"])
def test_every_act_needs_a_reason(rollout: Rollout, act: str) -> None:
    with pytest.raises(InvalidInput, match="reason"):
        getattr(services, act)("m", actor="ada", reason=" ")


def test_every_act_is_in_the_history_with_who_and_why(rollout: Rollout) -> None:
    services.pause("m", actor="ada", reason="lunch")
    services.abort("m", actor="bob", reason="enough")
    events = AuditEvent.objects.filter(kind="rollout").order_by("seq")
    assert [(e.action, e.actor, e.reason) for e in events] == [
        ("rollout.started", "ada", "because"),
        ("rollout.paused", "ada", "lunch"),
        ("rollout.aborted", "bob", "enough"),
    ]
    last = events.last()
    assert last is not None
    assert last.before == {"phase": "paused", "percent": 5.0}
    assert last.after == {"phase": "aborted", "percent": 0.0}


def test_a_model_that_never_had_a_rollout_says_so() -> None:
    fleet()
    with pytest.raises(Conflict, match="m has no rollout"):
        services.abort("m", actor="ada", reason="why not")
