"""What pages and panels are told."""

from datetime import timedelta

import pytest

from engine.errors import InvalidInput
from fleet.live.facts import facts
from rollouts import selectors
from rollouts.models import Rollout
from tests.rollouts.scene import START, fleet, history, run, start, step

pytestmark = pytest.mark.django_db


@pytest.fixture
def rollout() -> Rollout:
    fleet()
    history()
    return start()


def test_the_page_holds_the_ladder_the_evidence_and_the_decisions(rollout: Rollout) -> None:
    run(rollout, windows=6)
    page = selectors.rollout_page(rollout.pk)
    assert page.status.percent == rollout.percent
    assert [point.seq for point in page.points] == list(range(1, 7))
    assert [decision.seq for decision in page.decisions] == list(range(6, 0, -1))
    assert page.points[0].canary_slow_ratio is not None
    assert page.points[0].percent == 5.0
    assert page.limits["latency"] > 0
    assert page.threshold is not None
    assert page.capacity.ready == 2
    assert {change.what for change in page.changes} >= {"rollback: slower by more than 10%"}


def test_a_rollout_without_a_decision_has_a_page_too(rollout: Rollout) -> None:
    page = selectors.rollout_page(rollout.pk)
    assert page.points == page.changes == []
    assert page.status.verdict == ""
    assert page.capacity.ready is None


def test_what_would_change_names_what_was_short(rollout: Rollout) -> None:
    decision = step(rollout)
    assert decision is not None
    changes = selectors.what_would_change(decision)
    assert all(not change.met for change in changes if change.what.startswith("rollback"))


def test_a_preview_explains_a_policy_or_names_its_fault() -> None:
    seen = selectors.preview({"steps": [5, 100], "intervalS": 10}, slo_ms=500.0)
    assert seen.soonest_s >= 30
    assert any("500 ms" in sentence for sentence in seen.sentences)
    with pytest.raises(InvalidInput, match="steps"):
        selectors.preview({"steps": []})


def test_the_overview_learns_of_each_rollout_under_way(rollout: Rollout) -> None:
    step(rollout)
    assert facts.now("rollouts") == selectors.summaries()
    summary = selectors.summaries()[0]
    assert (summary["model"], summary["canary"], summary["percent"]) == ("m", "v2", 5.0)
    assert summary["verdict"] == "hold"
    Rollout.objects.filter(pk=rollout.pk).update(phase="aborted")
    assert selectors.summaries() == []


def test_charts_are_marked_where_the_split_moved(rollout: Rollout) -> None:
    run(rollout, slowdown=0.6)
    marks = selectors.markers(START, START + timedelta(hours=1), "m")
    assert marks[-1]["text"].startswith("v2: ")
    assert any("rollback to 0 %" in mark["text"] for mark in marks)
    assert selectors.markers(START, START + timedelta(hours=1), "other") == []
