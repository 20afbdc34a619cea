"""The admin's twins: start by form, act with a reason, never edit."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.models import ModelVersion
from rollouts.models import AuditEvent, Rollout
from tests.rollouts.scene import fleet, split_of, start

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin() -> Client:
    fleet()
    client = Client()
    client.force_login(User.objects.create_superuser("root", password="correct horse"))
    return client


def test_a_rollout_is_started_by_form(admin: Client) -> None:
    version = ModelVersion.objects.get(name="v2")
    form = {"version": version.pk, "policy": '{"steps": [10, 100]}', "reason": "faster"}
    answer = admin.post("/admin/rollouts/rollout/add/", form)
    assert answer.status_code == 302, answer.content.decode()
    assert Rollout.objects.get().started_by == "root"
    assert split_of() == ("v1", "v2", 10.0)


def test_a_refusal_is_an_error_of_the_form(admin: Client) -> None:
    stable = ModelVersion.objects.get(name="v1")
    form = {"version": stable.pk, "policy": "{}", "reason": "again"}
    answer = admin.post("/admin/rollouts/rollout/add/", form)
    assert answer.status_code == 200
    assert "is the stable version already" in answer.content.decode()
    assert Rollout.objects.count() == 0


@pytest.mark.parametrize(
    "policy", ["[1]", "0", '"x"', '{"minimumRequests": Infinity}', '{"sloMs": 1e999}']
)
def test_a_policy_that_is_none_is_an_error_of_the_form_and_not_a_crash(
    admin: Client, policy: str
) -> None:
    version = ModelVersion.objects.get(name="v2")
    form = {"version": version.pk, "policy": policy, "reason": "x"}
    answer = admin.post("/admin/rollouts/rollout/add/", form)
    assert answer.status_code == 200
    assert "must be a" in answer.content.decode()
    assert Rollout.objects.count() == 0


def test_actions_need_a_reason_and_are_recorded(admin: Client) -> None:
    rollout = start()
    form = {"action": "abort", "_selected_action": [rollout.pk], "reason": ""}
    answer = admin.post("/admin/rollouts/rollout/", form, follow=True)
    assert "say why" in answer.content.decode()
    admin.post("/admin/rollouts/rollout/", form | {"reason": "enough"})
    rollout.refresh_from_db()
    assert rollout.phase == "aborted"
    event = AuditEvent.objects.order_by("-seq").first()
    assert event is not None
    assert (event.action, event.actor, event.reason) == ("rollout.aborted", "root", "enough")


@pytest.mark.parametrize("page", ["rollout", "decision", "auditevent"])
def test_every_list_opens_and_nothing_can_be_edited(admin: Client, page: str) -> None:
    start()
    assert admin.get(f"/admin/rollouts/{page}/").status_code == 200
    row = AuditEvent.objects.first()
    assert row is not None
    answer = admin.post(f"/admin/rollouts/auditevent/{row.pk}/change/", {"reason": "x"})
    assert answer.status_code == 403
