"""Errors for people: each page says what happened, what it means and what to do."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import InterfaceError, OperationalError
from django.test import Client

from fleet.dashboard.pages import tenants
from fleet.models import Replica
from tests.browser import past

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator() -> Client:
    user = User.objects.create_user("otto", password="a-password-for-tests")
    user.groups.add(Group.objects.get_or_create(name="Operator")[0])
    client = Client(raise_request_exception=False, enforce_csrf_checks=True)
    client.force_login(user)
    return client


def text(response: Any) -> str:
    return " ".join(response.content.decode().split())


def failing(error: Exception) -> Any:
    def fail(*_args: object, **_more: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    "error",
    [OperationalError("connection refused"), InterfaceError("the connection is closed")],
    ids=["no connection", "a dead connection"],
)
def test_a_page_without_its_database_is_503_and_says_that_inference_goes_on(
    error: Exception, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "usage_totals", failing(error))
    past.configuration()
    response = operator.get("/tenants/acme/")
    assert response.status_code == 503
    assert response["Retry-After"] == "5"
    body = text(response)
    assert "PostgreSQL does not answer" in body
    assert "Inference is not affected" in body
    assert "manage.py doctor" in body
    assert "connection" not in body  # nothing of the driver's words


def test_a_write_without_its_database_is_refused_plainly(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.configuration()
    monkeypatch.setattr(
        "fleet.dashboard.pages.fleet.drain_replica", failing(OperationalError("away"))
    )
    token = operator.get("/fleet/llama-a100-1/").context["csrf_token"]
    response = operator.post(
        "/fleet/llama-a100-1/drain/", {"reason": "driver", "csrfmiddlewaretoken": str(token)}
    )
    assert response.status_code == 503
    assert "every change wait until the database is back" in text(response)
    assert not Replica.objects.get(pk="llama-a100-1").draining


def test_the_control_api_without_its_database_answers_in_its_own_envelope(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.models.Model.objects.all", failing(OperationalError("away")))
    monkeypatch.setattr(
        "django.contrib.sessions.backends.db.SessionStore.load", failing(OperationalError("away"))
    )
    response = operator.get("/v1/control/models")
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "unavailable"


def test_a_mistake_of_the_dashboard_is_500_and_tells_nothing_of_its_inside(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    past.configuration()
    monkeypatch.setattr(tenants, "usage_totals", failing(KeyError("a secret detail")))
    response = operator.get("/tenants/acme/")
    assert response.status_code == 500
    body = text(response)
    assert "This page broke" in body
    assert "gateways go on serving" in body
    assert "a secret detail" not in body


def test_an_old_form_changes_nothing_and_says_how_to_go_on(operator: Client) -> None:
    past.configuration()
    response = operator.post("/fleet/llama-a100-1/drain/", {"reason": "driver"})
    assert response.status_code == 403
    assert "This form has grown old" in text(response)
    assert not Replica.objects.get(pk="llama-a100-1").draining
