"""The admin: comfortable, honest about secrets, and no back door around the history."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from fleet import events, services
from fleet.models import ApiKey, Replica, Tenant, TrafficSplit, UsageMinute

pytestmark = pytest.mark.django_db


@pytest.fixture
def boss(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("boss", password="correct horse"))
    return client


@pytest.fixture
def changes() -> Iterator[list[events.Change]]:
    seen: list[events.Change] = []
    events.register_listener(seen.append)
    yield seen
    events.unregister_listener(seen.append)


@pytest.fixture
def fleet(db: None) -> None:
    given: Any = {"model": "llama", "address": "http://127.0.0.1:1"}
    services.register_replica(
        services.Registration(replica_id="r1", version="v1", **given), actor="test"
    )
    services.register_replica(
        services.Registration(replica_id="r2", version="v2", **given), actor="test"
    )
    services.set_split("llama", baseline="v1", actor="test")
    tenant = services.create_tenant("acme", actor="test", requests_per_minute=60)
    services.issue_key(tenant, "main", actor="test")
    services.issue_token("replicas", actor="test")
    services.note_alive("beat")


PAGES = [
    "model",
    "modelversion",
    "replica",
    "tenant",
    "apikey",
    "trafficsplit",
    "accesstoken",
    "windowstat",
    "usageminute",
    "heartbeat",
]


@pytest.mark.parametrize("page", PAGES)
def test_every_list_opens_and_can_be_searched(boss: Client, fleet: None, page: str) -> None:
    url = reverse(f"admin:fleet_{page}_changelist")
    assert boss.get(url).status_code == 200
    assert boss.get(url, {"q": "a"}).status_code == 200


@pytest.mark.parametrize("page", PAGES[:7])
def test_every_form_opens(boss: Client, fleet: None, page: str) -> None:
    if page != "replica":
        assert boss.get(reverse(f"admin:fleet_{page}_add")).status_code == 200
    row = apps.get_model("fleet", page).objects.first()
    assert boss.get(reverse(f"admin:fleet_{page}_change", args=[row.pk])).status_code == 200


def tenant_form(**other: Any) -> dict[str, Any]:
    return {
        "enabled": "on",
        "priority": "1",
        "weight": "1",
        "requests_per_minute": "60",
        "requests_burst": "",
        "tokens_per_minute": "",
        "tokens_burst": "",
        "max_in_flight": "",
        "keys-TOTAL_FORMS": "0",
        "keys-INITIAL_FORMS": "0",
        **other,
    }


def test_a_new_key_is_shown_once_and_kept_nowhere(
    boss: Client, fleet: None, changes: list[events.Change]
) -> None:
    tenant = Tenant.objects.get()
    url = reverse("admin:fleet_tenant_change", args=[tenant.pk])
    old = tenant.keys.get()
    answer = boss.post(
        url,
        tenant_form(
            **{
                "keys-TOTAL_FORMS": "2",
                "keys-INITIAL_FORMS": "1",
                "keys-0-id": old.pk,
                "keys-0-tenant": tenant.pk,
                "keys-0-name": "renamed",
                "keys-1-id": "",
                "keys-1-tenant": tenant.pk,
                "keys-1-name": "second",
            }
        ),
    )
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    text = answer.content.decode()
    secret = text.split("<code>")[1].split("</code>")[0]
    key = ApiKey.objects.get(name="second")
    assert secret.startswith(f"{key.prefix}_")
    assert secret not in boss.get(url).content.decode()
    assert {change.action for change in changes} == {"key.changed", "key.issued"}
    assert {change.actor for change in changes} == {"boss"}
    old.refresh_from_db()
    assert old.name == "renamed"


def test_a_key_made_on_its_own_page_is_shown_once_too(boss: Client, fleet: None) -> None:
    tenant = Tenant.objects.get()
    answer = boss.post(reverse("admin:fleet_apikey_add"), {"tenant": tenant.pk, "name": "second"})
    assert "<code>hk_" in answer.content.decode()


def test_a_token_is_shown_once(boss: Client, fleet: None) -> None:
    answer = boss.post(reverse("admin:fleet_accesstoken_add"), {"kind": "fleet", "name": "more"})
    assert "<code>hf_" in answer.content.decode()


def test_a_quota_edit_is_told_with_who_and_what(
    boss: Client, fleet: None, changes: list[events.Change]
) -> None:
    tenant = Tenant.objects.get()
    url = reverse("admin:fleet_tenant_change", args=[tenant.pk])
    assert boss.post(url, tenant_form(requests_per_minute="90")).status_code == 302
    assert [(c.action, c.actor, c.before, c.after) for c in changes] == [
        ("tenant.changed", "boss", {"requests_per_minute": 60}, {"requests_per_minute": 90})
    ]


@pytest.mark.parametrize(
    "wrong", [{"requests_burst": "5", "requests_per_minute": ""}, {"weight": "0"}]
)
def test_a_quota_that_cannot_be_is_an_error_in_the_form(
    boss: Client, fleet: None, wrong: dict[str, str]
) -> None:
    tenant = Tenant.objects.get()
    url = reverse("admin:fleet_tenant_change", args=[tenant.pk])
    answer = boss.post(url, tenant_form(**wrong))
    assert answer.status_code == 200
    assert "errornote" in answer.content.decode()
    tenant.refresh_from_db()
    assert tenant.requests_per_minute == 60


def test_a_split_that_names_another_models_version_is_an_error_in_the_form(
    boss: Client, fleet: None
) -> None:
    other = services.create_model("other", actor="test")
    foreign = services.create_version(other, "v9", actor="test")
    split = TrafficSplit.objects.get()
    url = reverse("admin:fleet_trafficsplit_change", args=[split.pk])
    form = {"baseline": split.baseline.pk, "canary": foreign.pk, "canary_percent": "5"}
    answer = boss.post(url, form)
    assert answer.status_code == 200
    assert "v9 is no version of llama" in answer.content.decode()


def test_a_split_is_changed_through_its_service(
    boss: Client, fleet: None, changes: list[events.Change]
) -> None:
    split = TrafficSplit.objects.get()
    canary = split.model.versions.get(name="v2")
    url = reverse("admin:fleet_trafficsplit_change", args=[split.pk])
    form = {"baseline": split.baseline.pk, "canary": canary.pk, "canary_percent": "5"}
    assert boss.post(url, form).status_code == 302
    split.refresh_from_db()
    assert (split.canary, split.canary_percent) == (canary, 5.0)
    assert split.salt
    assert [change.action for change in changes] == ["split.changed"]


@pytest.mark.parametrize(
    ("protocol", "said", "kept"),
    [("openai", "", 256), ("batch", "", 1), ("openai", "12", 12), ("batch", "3", 3)],
)
def test_an_openai_server_written_down_in_the_admin_is_not_held_to_one_request_at_a_time(
    boss: Client, fleet: None, protocol: str, said: str, kept: int
) -> None:
    url = reverse("admin:fleet_replica_add")
    assert b'name="max_concurrency"' in boss.get(url).content
    first = Replica.objects.get(pk="r1")
    form = {
        "replica_id": "r3",
        "version": first.version.pk,
        "address": "http://127.0.0.1:3",
        "protocol": protocol,
        "weight": "1",
        "work_unit": "tokens",
        "max_batch_size": "32",
        "max_batch_tokens": "16384",
        "max_concurrency": said,
        "loaded_models": "[]",
    }
    answer = boss.post(url, form)
    assert answer.status_code == 302, answer.context["errors"]
    assert Replica.objects.get(pk="r3").max_concurrency == kept


def test_an_address_outside_the_networks_is_an_error_in_the_form(boss: Client, fleet: None) -> None:
    replica = Replica.objects.get(pk="r1")
    url = reverse("admin:fleet_replica_change", args=["r1"])
    form = {
        "version": replica.version.pk,
        "address": "http://169.254.169.254",
        "protocol": "batch",
        "weight": "1",
        "loaded_models": "[]",
        "work_unit": "tokens",
        "max_batch_size": "32",
        "max_batch_tokens": "16384",
        "max_concurrency": "1",
    }
    answer = boss.post(url, form)
    assert "link-local" in answer.content.decode()
    form["address"] = "http://127.0.0.1:2"
    assert boss.post(url, form).status_code == 302
    replica.refresh_from_db()
    assert replica.address == "http://127.0.0.1:2"
    assert boss.post(url, form | {"draining": "on"}).status_code == 302
    replica.refresh_from_db()
    assert replica.drain_ordered, "a drain ordered in the form outlives a restart too"


@pytest.mark.parametrize(
    ("page", "action", "check"),
    [
        ("replica", "drain", lambda: Replica.objects.filter(draining=True).count() == 2),
        ("apikey", "revoke", lambda: ApiKey.objects.get().revoked_at is not None),
    ],
)
def test_actions_reach_every_selected_row(
    boss: Client, fleet: None, page: str, action: str, check: Any
) -> None:
    rows = apps.get_model("fleet", page).objects.all()
    boss.post(
        reverse(f"admin:fleet_{page}_changelist"),
        {"action": action, "_selected_action": [row.pk for row in rows]},
    )
    assert check()


def test_recorded_rows_cannot_be_touched(boss: Client, fleet: None) -> None:
    row = UsageMinute.objects.create(gateway="g", tenant="t", model="m", minute=timezone.now())
    assert boss.get(reverse("admin:fleet_usageminute_add")).status_code == 403
    delete = reverse("admin:fleet_usageminute_delete", args=[row.pk])
    assert boss.post(delete, {"post": "yes"}).status_code == 403
    change = reverse("admin:fleet_usageminute_change", args=[row.pk])
    assert boss.post(change, {"requests": "9"}).status_code == 403


def test_a_viewer_looks_and_an_operator_drains(client: Client, fleet: None) -> None:
    for role, changes_replicas in [("Viewer", 403), ("Operator", 200)]:
        user = User.objects.create_user(role, password="correct horse", is_staff=True)
        user.groups.add(Group.objects.get(name=role))
        client.force_login(user)
        assert client.get(reverse("admin:fleet_replica_changelist")).status_code == 200
        url = reverse("admin:fleet_tenant_add")
        assert client.get(url).status_code == 403
        answer = client.post(reverse("admin:fleet_replica_change", args=["r1"]), {})
        assert answer.status_code == changes_replicas
