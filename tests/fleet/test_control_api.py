"""The control API: who may do what, what is refused and how, and what history hears of it."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from fleet import events, services
from fleet.models import AccessToken, Replica, UsageMinute

pytestmark = pytest.mark.django_db


def person(role: str) -> APIClient:
    user = User.objects.create_user(role, password="correct horse")
    if role != "nobody":
        user.groups.add(Group.objects.get(name=role.capitalize()))
    client = APIClient()
    client.force_login(user)
    return client


@pytest.fixture
def admin() -> APIClient:
    return person("admin")


@pytest.fixture
def operator() -> APIClient:
    return person("operator")


@pytest.fixture
def viewer() -> APIClient:
    return person("viewer")


@pytest.fixture
def replica_client() -> APIClient:
    token = services.issue_token("replicas", actor="test").secret
    return APIClient(headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def changes() -> Iterator[list[events.Change]]:
    seen: list[events.Change] = []
    events.register_listener(seen.append)
    yield seen
    events.unregister_listener(seen.append)


REGISTRATION = {
    "replicaId": "r1",
    "modelId": "meta-llama/Llama-3-8b",
    "version": "v1",
    "address": "http://127.0.0.1:9101",
    "maxBatchSize": 16,
}


def test_nobody_gets_in_without_a_session_or_a_token() -> None:
    for path in ("models", "replicas", "tenants", "tokens", "state", "usage", "whoami"):
        answer = APIClient().get(f"/v1/control/{path}")
        assert answer.status_code == 401, path
        assert answer.json()["error"]["code"] == "unauthorized"
        assert answer["WWW-Authenticate"].startswith("Bearer")


def test_a_person_without_a_role_sees_nothing() -> None:
    answer = person("nobody").get("/v1/control/models")
    assert answer.status_code == 403
    assert answer.json()["error"]["message"] == "this needs the role Viewer"


def test_each_role_may_do_what_the_one_before_may_and_more(
    viewer: APIClient, operator: APIClient, admin: APIClient
) -> None:
    services.register_replica(
        services.Registration(
            replica_id="r1", model="m", version="v1", address="http://127.0.0.1:1"
        ),
        actor="test",
    )
    for client, reads, drains, makes_tenants in [
        (viewer, 200, 403, 403),
        (operator, 200, 200, 403),
        (admin, 200, 200, 201),
    ]:
        assert client.get("/v1/control/replicas").status_code == reads
        assert client.post("/v1/control/replicas/r1/drain").status_code == drains
        tenant = client.post("/v1/control/tenants", {"name": f"t{makes_tenants}"})
        assert tenant.status_code == makes_tenants


def test_a_session_without_its_csrf_token_changes_nothing() -> None:
    user = User.objects.create_superuser("root", password="correct horse")
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    answer = client.post("/v1/control/tenants", {"name": "acme"}, content_type="application/json")
    assert answer.status_code == 403
    assert "CSRF" in answer.json()["error"]["message"]


def test_a_user_token_acts_with_its_users_role_until_the_user_is_disabled(
    operator: APIClient,
) -> None:
    made = operator.post("/v1/control/tokens", {"kind": "user", "name": "laptop"})
    assert made.status_code == 201
    assert made["Cache-Control"] == "no-store"
    client = APIClient(headers={"Authorization": f"Bearer {made.json()['token']}"})
    assert client.get("/v1/control/whoami").json() == {
        "user": "operator",
        "role": "operator",
        "token": made.json()["prefix"],
    }
    assert made.json()["token"] not in str(operator.get("/v1/control/tokens").json())
    User.objects.update(is_active=False)
    assert client.get("/v1/control/whoami").status_code == 401


def test_a_user_token_expires_by_itself(viewer: APIClient) -> None:
    made = viewer.post("/v1/control/tokens", {"kind": "user", "name": "laptop"}).json()
    assert made["expiresAt"] is not None
    AccessToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    client = APIClient(headers={"Authorization": f"Bearer {made['token']}"})
    assert client.get("/v1/control/models").status_code == 401


def test_only_an_admin_makes_fleet_tokens(operator: APIClient, admin: APIClient) -> None:
    body = {"kind": "fleet", "name": "replicas"}
    assert operator.post("/v1/control/tokens", body).status_code == 403
    assert admin.post("/v1/control/tokens", body).json()["token"].startswith("hf_")


def test_nobody_sees_or_revokes_another_persons_token(
    operator: APIClient, viewer: APIClient, admin: APIClient
) -> None:
    prefix = operator.post("/v1/control/tokens", {"kind": "user", "name": "a"}).json()["prefix"]
    assert viewer.get("/v1/control/tokens").json()["count"] == 0
    assert viewer.delete(f"/v1/control/tokens/{prefix}").status_code == 404
    assert admin.delete(f"/v1/control/tokens/{prefix}").json()["revokedAt"] is not None


def test_the_fleet_token_registers_replicas_and_does_nothing_else(
    replica_client: APIClient,
) -> None:
    first = replica_client.post("/v1/replicas/register", REGISTRATION)
    assert first.status_code == 201
    assert first.json()["modelId"] == "meta-llama/Llama-3-8b"
    again = replica_client.post("/v1/replicas/register", REGISTRATION)
    assert again.status_code == 200
    assert again.json()["heartbeatAt"] > first.json()["heartbeatAt"]
    assert replica_client.get("/v1/control/replicas").status_code == 403
    assert replica_client.post("/v1/control/replicas", REGISTRATION).status_code == 403
    assert replica_client.delete("/v1/control/replicas/r1").status_code == 403


@pytest.mark.parametrize(("protocol", "kept"), [("openai", 256), ("batch", 1)])
def test_how_much_runs_at_once_suits_the_protocol_where_a_registration_does_not_say(
    replica_client: APIClient, protocol: str, kept: int
) -> None:
    words = {name: value for name, value in REGISTRATION.items() if name != "maxConcurrency"}
    answer = replica_client.post("/v1/replicas/register", {**words, "protocol": protocol})
    assert (answer.status_code, answer.json()["maxConcurrency"]) == (201, kept)
    said = {**words, "protocol": protocol, "maxConcurrency": 7}
    assert replica_client.post("/v1/replicas/register", said).json()["maxConcurrency"] == 7


def test_a_registration_without_a_token_or_by_a_viewer_is_refused(viewer: APIClient) -> None:
    assert APIClient().post("/v1/replicas/register", REGISTRATION).status_code == 401
    assert viewer.post("/v1/replicas/register", REGISTRATION).status_code == 403
    assert not Replica.objects.exists()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"address": "http://169.254.169.254"}, "address"),
        ({"address": "http://93.184.216.34:80"}, "address"),
        ({"address": "ftp://127.0.0.1"}, "address"),
        ({"maxBatchSize": 0}, "maxBatchSize"),
        ({"maxBatchSize": "16"}, "maxBatchSize"),
        ({"maxBatchSize": True}, "maxBatchSize"),
        ({"weight": -1}, "weight"),
        ({"protocol": "smoke-signals"}, "protocol"),
        ({"replicaId": "a b"}, "replicaId"),
        ({"replicaId": None}, "replicaId"),
        ({"modelId": "x" * 129}, "modelId"),
        ({"colour": "red"}, "colour"),
        ({"startedAt": "yesterday"}, "startedAt"),
        ({"startedAt": "2999-01-01T00:00:00Z"}, "startedAt"),
        ({"version": "a\0b"}, "version"),
    ],
)
def test_a_wrong_registration_names_the_field(
    replica_client: APIClient, change: dict[str, object], field: str
) -> None:
    answer = replica_client.post("/v1/replicas/register", {**REGISTRATION, **change})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_request"
    assert answer.json()["error"]["details"]["field"] == field
    assert not Replica.objects.exists()


def test_a_replica_that_moves_is_updated_and_history_hears_of_it(
    replica_client: APIClient, changes: list[events.Change]
) -> None:
    replica_client.post("/v1/replicas/register", REGISTRATION)
    moved = {**REGISTRATION, "address": "http://10.0.0.7:9101"}
    assert replica_client.post("/v1/replicas/register", moved).status_code == 200
    assert Replica.objects.get().address == "http://10.0.0.7:9101"
    assert changes[-1].action == "replica.moved"
    assert changes[-1].actor.startswith("fleet (token hf_")


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"[1]", "application/json", 400),
        (b"null", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'{"weight": NaN}', "application/json", 400),
        (b"name=acme", "application/x-www-form-urlencoded", 415),
        (b'{"name": "' + b"x" * 2_000_000 + b'"}', "application/json", 413),
    ],
)
def test_a_body_that_is_no_registration_gets_the_envelope(
    replica_client: APIClient, body: bytes, content_type: str, status: int
) -> None:
    answer = replica_client.generic("POST", "/v1/replicas/register", body, content_type)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}


def test_a_wrong_method_gets_the_envelope_too(admin: APIClient) -> None:
    answer = admin.put("/v1/control/models", {})
    assert answer.status_code == 405
    assert answer.json()["error"]["code"] == "method_not_allowed"


def test_operators_drain_undrain_and_remove(
    operator: APIClient, changes: list[events.Change]
) -> None:
    made = operator.post("/v1/control/replicas", REGISTRATION)
    assert made.status_code == 201
    assert made.json()["heartbeatAt"] is None
    drained = operator.post("/v1/control/replicas/r1/drain", {"reason": "new driver"})
    assert drained.json()["draining"] is True
    assert (changes[-1].actor, changes[-1].reason) == ("operator", "new driver")
    assert operator.post("/v1/control/replicas/r1/undrain").json()["draining"] is False
    assert operator.delete("/v1/control/replicas/r1").status_code == 204
    missing = operator.post("/v1/control/replicas/r1/drain")
    assert missing.status_code == 404
    assert "'r1'" in missing.json()["error"]["message"]


def test_a_split_or_quota_that_names_the_unknown_is_refused(admin: APIClient) -> None:
    admin.post("/v1/control/models", {"name": "llama"})
    admin.post("/v1/control/models/llama/versions", {"name": "v1"})
    url = "/v1/control/models/llama/split"
    wrong = admin.put(url, {"baseline": "v9"})
    assert wrong.status_code == 400
    assert "known: v1" in wrong.json()["error"]["message"]
    assert wrong.json()["error"]["details"]["field"] == "baseline"
    wrong = admin.put(url, {"baseline": "v1", "canary": "v9", "canaryPercent": 5})
    assert wrong.json()["error"]["details"]["field"] == "canary"
    assert admin.put("/v1/control/models/gpt/split", {"baseline": "v1"}).status_code == 404
    assert admin.put("/v1/control/tenants/ghost/quota", {}).status_code == 404
    assert admin.get(url).status_code == 404
    assert admin.put(url, {"baseline": "v1", "canaryPercent": 5}).status_code == 400
    assert admin.put(url, {"baseline": "v1"}).json()["baseline"] == "v1"
    assert admin.get("/v1/control/models/llama").json()["split"]["canary"] is None


def test_a_quota_that_is_set_whole_drops_what_is_not_named(admin: APIClient) -> None:
    admin.post(
        "/v1/control/tenants",
        {"name": "acme", "requestsPerMinute": 60, "tokensPerMinute": 1000, "maxInFlight": 4},
    )
    changed = admin.patch("/v1/control/tenants/acme", {"maxInFlight": None}).json()
    assert (changed["maxInFlight"], changed["requestsPerMinute"]) == (None, 60)
    quota = admin.put("/v1/control/tenants/acme/quota", {"requestsPerMinute": 90}).json()
    assert quota["requestsPerMinute"] == 90
    assert quota["tokensPerMinute"] is None
    misspelt = admin.put("/v1/control/tenants/acme/quota", {"requestPerMinute": 90})
    assert misspelt.json()["error"]["details"]["field"] == "requestPerMinute"


def test_a_key_is_in_the_answer_that_made_it_and_nowhere_else(admin: APIClient) -> None:
    admin.post("/v1/control/tenants", {"name": "acme"})
    made = admin.post("/v1/control/tenants/acme/keys", {"name": "main"})
    assert made["Cache-Control"] == "no-store"
    key, prefix = made.json()["key"], made.json()["prefix"]
    assert key.startswith(prefix)
    listed = admin.get("/v1/control/tenants/acme/keys").json()
    assert listed["results"][0]["status"] == "active"
    assert key not in str(listed)
    revoked = admin.delete(f"/v1/control/tenants/acme/keys/{prefix}").json()
    assert revoked["status"] == "revoked"


def test_the_same_name_twice_is_refused_by_field(admin: APIClient) -> None:
    admin.post("/v1/control/tenants", {"name": "acme"})
    again = admin.post("/v1/control/tenants", {"name": "acme"})
    assert again.status_code == 400
    assert again.json()["error"]["details"]["field"] == "name"


def test_a_model_with_replicas_is_not_removed(operator: APIClient, admin: APIClient) -> None:
    operator.post("/v1/control/replicas", {**REGISTRATION, "modelId": "llama"})
    answer = admin.delete("/v1/control/models/llama")
    assert answer.status_code == 409
    assert "r1" in answer.json()["error"]["message"]


def test_usage_pages_add_up_to_the_totals_on_each_page(viewer: APIClient) -> None:
    start = timezone.now().replace(second=0, microsecond=0) - timedelta(hours=40)
    UsageMinute.objects.bulk_create(
        UsageMinute(
            gateway="g",
            tenant="acme",
            model="llama",
            minute=start + timedelta(minutes=n),
            requests=n,
            served=n,
            refused={"overloaded": 1},
        )
        for n in range(1500)
    )
    query = {
        "start": start.isoformat(),
        "period": "minute",
        "zone": "Asia/Kathmandu",
        "pageSize": "100",
    }
    seen = pages = 0
    page = 1
    while page:
        answer = viewer.get("/v1/control/usage", {**query, "page": str(page)}).json()
        assert answer["totals"]["requests"] == sum(range(1500))
        assert answer["totals"]["refused"] == {"overloaded": 1500}
        seen += sum(row["requests"] for row in answer["results"])
        assert answer["results"][0]["start"].endswith("+05:45")
        pages += 1
        page = page + 1 if answer["next"] else 0
    assert seen == sum(range(1500))
    assert pages == 15


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"start": "soon"}, "start"),
        ({"start": "2026-13-01"}, "start"),
        ({"start": "2026-01-02", "end": "2026-01-01"}, "start"),
        ({"period": "fortnight"}, "period"),
        ({"zone": "Mars/Base"}, "zone"),
        ({"zone": "../../etc/passwd"}, "zone"),
        ({"tenant": "a\0"}, "tenant"),
    ],
)
def test_a_wrong_range_names_its_field(
    viewer: APIClient, query: dict[str, str], field: str
) -> None:
    answer = viewer.get("/v1/control/usage", query)
    assert answer.status_code == 400
    assert answer.json()["error"]["details"]["field"] == field


def test_no_gateway_is_an_empty_state_not_zeros(viewer: APIClient) -> None:
    state = viewer.get("/v1/control/state").json()
    assert state["status"] == "empty"
    assert state["traffic"] is None


def test_the_documents_page_needs_nothing_from_elsewhere(client: Client) -> None:
    page = client.get("/api/docs/")
    assert page.status_code == 200
    text = page.content.decode()
    assert "http://" not in text.replace("http://testserver", "")
    assert "https://" not in text
    assert "<style" not in text
    assert "unsafe-inline" not in page["Content-Security-Policy"].split("style-src-attr")[0]


def test_every_page_carries_the_strict_policy(client: Client) -> None:
    policy = client.get("/admin/login/")["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
