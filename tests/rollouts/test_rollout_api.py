"""The control API of rollouts: who may, what is refused, what it says."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone
from rest_framework.test import APIClient

from fleet.models import Replica
from rollouts.models import AuditEvent, Rollout
from tests.rollouts.scene import POLICY, fleet, history, run, split_of, start

pytestmark = pytest.mark.django_db

ROLLOUTS = "/v1/control/rollouts"
START_BODY = {"model": "m", "version": "v2", "policy": POLICY, "reason": "faster kernels"}


def person(role: str) -> APIClient:
    user = User.objects.create_user(role, password="correct horse")
    user.groups.add(Group.objects.get(name=role.capitalize()))
    client = APIClient()
    client.force_login(user)
    return client


@pytest.fixture
def operator() -> APIClient:
    fleet()
    return person("operator")


def test_an_operator_starts_watches_and_aborts(operator: APIClient) -> None:
    started = operator.post(ROLLOUTS, START_BODY)
    assert started.status_code == 201, started.json()
    body = started.json()
    assert (body["phase"], body["percent"], body["steps"]) == ("progressing", 5, [5, 25, 50, 100])
    assert body["streaks"] == {"healthy": 0, "unhealthy": 0}
    assert body["nextEvaluationAt"]
    assert body["decidedAt"] is None
    assert operator.get(f"{ROLLOUTS}/m").json()["id"] == body["id"]
    aborted = operator.post(f"{ROLLOUTS}/m/abort", {"reason": "enough"})
    assert (aborted.status_code, aborted.json()["phase"]) == (200, "aborted")
    again = operator.post(f"{ROLLOUTS}/m/abort", {"reason": "enough"})
    assert again.status_code == 200
    late = operator.post(f"{ROLLOUTS}/m/promote", {"reason": "after all"})
    assert late.status_code == 409
    assert "aborted" in late.json()["error"]["message"]


def test_the_state_carries_every_rollout_under_way(operator: APIClient) -> None:
    assert operator.get("/v1/control/state").json()["rollouts"] == []
    operator.post(ROLLOUTS, START_BODY)
    shown = operator.get("/v1/control/state").json()["rollouts"]
    assert [(r["model"], r["phase"], r["step"], r["percent"]) for r in shown] == [
        ("m", "progressing", 0, 5)
    ]
    operator.post(f"{ROLLOUTS}/m/abort", {"reason": "enough"})
    assert operator.get("/v1/control/state").json()["rollouts"] == []


def test_a_viewer_looks_and_moves_nothing(operator: APIClient) -> None:
    viewer = person("viewer")
    assert viewer.post(ROLLOUTS, START_BODY).status_code == 403
    operator.post(ROLLOUTS, START_BODY)
    assert viewer.get(ROLLOUTS).json()["count"] == 1
    assert viewer.get(f"{ROLLOUTS}/m/history").status_code == 200
    for act in ("promote", "abort", "pause", "resume"):
        assert viewer.post(f"{ROLLOUTS}/m/{act}", {"reason": "x"}).status_code == 403, act
    assert split_of() == ("v1", "v2", 5.0)
    assert Rollout.objects.get().phase == "progressing"


@pytest.mark.parametrize("act", ["promote", "abort", "pause", "resume"])
def test_every_act_of_an_operator_needs_a_reason(operator: APIClient, act: str) -> None:
    operator.post(ROLLOUTS, START_BODY)
    for body in ({}, {"reason": ""}, {"reason": "  "}):
        refused = operator.post(f"{ROLLOUTS}/m/{act}", body)
        assert refused.status_code == 400
        assert refused.json()["error"]["details"]["field"] == "reason"
    assert split_of() == ("v1", "v2", 5.0)


def test_a_dead_worker_is_said_by_the_api_and_the_split_holds(operator: APIClient) -> None:
    operator.post(ROLLOUTS, START_BODY)
    assert operator.get(f"{ROLLOUTS}/m").json()["overdueS"] is None
    Rollout.objects.update(due_at=timezone.now() - timedelta(minutes=5))
    assert operator.get(f"{ROLLOUTS}/m").json()["overdueS"] >= 300
    assert split_of() == ("v1", "v2", 5.0)
    assert operator.post(f"{ROLLOUTS}/m/abort", {"reason": "no worker"}).status_code == 200
    assert split_of() == ("v1", None, 0.0)


def test_without_a_session_nothing_is_shown() -> None:
    assert APIClient().get(ROLLOUTS).status_code == 401


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"reason": ""}, 400, "reason"),
        ({"reason": None}, 400, "reason"),
        ({"version": "v1"}, 400, "stable version"),
        ({"version": "v9"}, 400, "no such version"),
        ({"model": "nothing"}, 400, "no such model"),
        ({"policy": {"steps": [50, 5]}}, 400, "steps"),
        ({"policy": {"speed": 3}}, 400, "speed"),
        ({"policy": []}, 400, "policy"),
        ({"wat": 1}, 400, "wat"),
    ],
)
def test_a_start_that_cannot_work_names_what_is_wrong(
    operator: APIClient, change: dict[str, object], status: int, says: str
) -> None:
    answer = operator.post(ROLLOUTS, START_BODY | change)
    assert answer.status_code == status, answer.json()
    assert says in answer.json()["error"]["message"]


def test_a_canary_without_ready_replicas_and_a_second_rollout_are_refused(
    operator: APIClient,
) -> None:
    Replica.objects.filter(version__name="v3").update(draining=True)
    refused = operator.post(ROLLOUTS, START_BODY | {"version": "v3"})
    assert refused.status_code == 400
    assert "no ready replica" in refused.json()["error"]["message"]
    assert operator.post(ROLLOUTS, START_BODY).status_code == 201
    second = operator.post(ROLLOUTS, START_BODY)
    assert second.status_code == 409
    assert "under way" in second.json()["error"]["message"]
    assert operator.post(ROLLOUTS, START_BODY | {"supersede": True}).status_code == 201


def test_history_shows_every_decision_with_its_arithmetic(operator: APIClient) -> None:
    history()
    rollout = start()
    run(rollout, slowdown=0.6)
    answer = operator.get(f"{ROLLOUTS}/m/history", {"rollout": rollout.pk}).json()
    assert answer["count"] == rollout.decisions.count()
    newest = answer["results"][0]
    assert newest["verdict"] == "rollback:latency"
    assert newest["numbers"]["latencyLogE"] >= newest["numbers"]["latencyLimit"]
    assert newest["percent"] == 0
    assert operator.get(f"{ROLLOUTS}/m/history", {"rollout": "x"}).status_code == 400
    assert operator.get(f"{ROLLOUTS}/nothing/history").status_code == 404


def test_pause_and_resume_hold_and_go_on(operator: APIClient) -> None:
    operator.post(ROLLOUTS, START_BODY)
    paused = operator.post(f"{ROLLOUTS}/m/pause", {"reason": "lunch"}).json()
    assert (paused["phase"], paused["nextEvaluationAt"]) == ("paused", None)
    assert operator.post(f"{ROLLOUTS}/m/resume", {"reason": "back"}).json()["phase"] == (
        "progressing"
    )


def test_the_audit_is_filtered_and_says_who_from_where(operator: APIClient) -> None:
    operator.post(ROLLOUTS, START_BODY)
    found = operator.get("/v1/control/audit", {"kind": "rollout"}).json()
    assert [event["action"] for event in found["results"]] == ["rollout.started"]
    event = found["results"][0]
    assert (event["actor"], event["origin"]) == ("operator", "127.0.0.1")
    assert event["reason"] == "faster kernels"
    assert operator.get("/v1/control/audit", {"start": "yesterday"}).status_code == 400
    assert operator.get("/v1/control/audit", {"actor": "oper\0"}).status_code == 400
    checked = operator.get("/v1/control/audit/verify").json()
    assert checked["intact"]
    assert checked["events"] == AuditEvent.objects.count()


def test_the_document_describes_every_address(operator: APIClient) -> None:
    paths = operator.get("/api/schema/", {"format": "json"}).content.decode()
    for act in ("promote", "abort", "pause", "resume", "history"):
        assert f"/rollouts/{{model}}/{act}" in paths


def test_a_filter_that_is_neither_true_nor_false_is_not_ignored(operator: APIClient) -> None:
    assert operator.get(f"{ROLLOUTS}?active=true").json()["count"] == 0
    refused = operator.get(f"{ROLLOUTS}?active=maybe")
    assert refused.status_code == 400
    assert refused.json()["error"]["details"]["field"] == "active"
