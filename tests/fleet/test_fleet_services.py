"""Every write checks what it is given, happens once, and is told to whoever keeps history."""

import socket
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from engine.errors import InvalidInput, UnknownName
from fleet import events, services
from fleet.addresses import valid_address
from fleet.models import ApiKey, Model, ModelVersion, Replica, Tenant, TrafficSplit
from fleet.secret import API_KEY, derived_secret, prefix_of
from fleet.services import Registration

pytestmark = pytest.mark.django_db


@pytest.fixture
def changes() -> Iterator[list[events.Change]]:
    seen: list[events.Change] = []
    events.register_listener(seen.append)
    yield seen
    events.unregister_listener(seen.append)


def registration(**other: object) -> Registration:
    given = {"replica_id": "r1", "model": "llama", "version": "v1"}
    return Registration(**{"address": "http://127.0.0.1:9101", **given, **other})  # type: ignore[arg-type]


def test_registering_again_changes_nothing_but_the_heartbeat(
    changes: list[events.Change],
) -> None:
    first, is_new = services.register_replica(registration(), actor="fleet")
    assert is_new
    changes.clear()
    again, is_new = services.register_replica(registration(), actor="fleet")
    assert not is_new
    assert again.heartbeat_at > first.heartbeat_at
    assert again.registered_at == first.registered_at
    assert changes == []


def test_the_same_id_at_a_new_address_is_moved_and_told(changes: list[events.Change]) -> None:
    services.register_replica(registration(), actor="fleet")
    services.register_replica(registration(address="http://10.1.2.3:9101"), actor="fleet")
    moved = changes[-1]
    assert moved.action == "replica.moved"
    assert moved.before == {"address": "http://127.0.0.1:9101"}
    assert moved.after == {"address": "http://10.1.2.3:9101"}
    assert Replica.objects.get().address == "http://10.1.2.3:9101"


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254",
        "http://[fe80::1]:80",
        "http://[fe80::1%25eth0]:80",
        "http://[::ffff:169.254.169.254]",
        "http://[::ffff:a9fe:a9fe]:80",
        "http://2852039166",
        "http://0xa9fea9fe",
        "http://0251.0376.0251.0376",
        "http://169.254.43518",
        "http://[fd00:ec2::254]",
        "http://no-such-host.invalid",
        "http://0.0.0.0:80",
        "http://8.8.8.8:80",
        "ftp://10.0.0.1",
        "file:///etc/passwd",
        "gopher://127.0.0.1:70",
        "//127.0.0.1:80",
        "http://user:pw@127.0.0.1:80",
        "http://127.0.0.1:80/path",
        "http://127.0.0.1:80?x=1",
        "http://127.0.0.1:99999",
        "http://",
        "",
    ],
)
def test_an_address_outside_the_allowed_networks_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        services.register_replica(registration(address=address), actor="fleet")
    assert refused.value.field == "address"
    assert not Replica.objects.exists()


EVERYWHERE = ("0.0.0.0/0", "::/0")


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "[fe80::1]", "[ff02::1]", "[::]", "0.0.0.0", "224.0.0.1"),
        *("[::ffff:169.254.169.254]", "[::169.254.169.254]", "[2002:a9fe:a9fe::1]"),
        *("[64:ff9b::a9fe:a9fe]", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376"),
        *("[fd00:ec2::254]", "[fd20:ce::254]", "168.63.129.16", "100.100.100.200"),
    ],
)
def test_what_is_never_allowed_is_refused_though_every_network_is_open(host: str) -> None:
    with pytest.raises(InvalidInput, match="never allowed"):
        valid_address(f"http://{host}:80", EVERYWHERE)
    assert valid_address("http://8.8.8.8:80", EVERYWHERE)


def test_a_name_is_judged_by_every_address_that_it_resolves_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolved(host: str, *_: object, **__: object) -> list[object]:
        ips = {"good.test": ["10.0.0.1"], "trap.test": ["10.0.0.1", "169.254.169.254"]}[host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in ips]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    assert valid_address("http://good.test:80/") == "http://good.test:80"
    with pytest.raises(InvalidInput, match="never allowed"):
        valid_address("http://trap.test:80")


def test_a_heartbeat_does_not_undo_an_operators_drain(changes: list[events.Change]) -> None:
    services.register_replica(registration(), actor="fleet")
    services.drain_replica("r1", actor="ada", reason="maintenance")
    services.drain_replica("r1", actor="ada", reason="maintenance")
    services.register_replica(registration(), actor="fleet")
    assert Replica.objects.get().draining
    drained = [change for change in changes if change.kind == "replica"][-1]
    assert (drained.action, drained.actor, drained.reason) == (
        "replica.drained",
        "ada",
        "maintenance",
    )
    services.undrain_replica("r1", actor="ada")
    assert not Replica.objects.get().draining


def test_a_restart_of_the_replica_does_not_undo_an_operators_drain() -> None:
    services.register_replica(registration(draining=False), actor="fleet")
    services.drain_replica("r1", actor="ada", reason="maintenance")
    services.register_replica(registration(draining=True), actor="fleet")  # it leaves
    services.register_replica(registration(draining=False), actor="fleet")  # and is back
    assert Replica.objects.get().draining
    services.undrain_replica("r1", actor="ada")
    assert not Replica.objects.get().draining


def test_a_drain_of_the_replicas_own_ends_with_its_restart() -> None:
    services.register_replica(registration(draining=True), actor="fleet")
    assert Replica.objects.get().draining
    services.register_replica(registration(draining=False), actor="fleet")
    assert not Replica.objects.get().draining


@pytest.mark.parametrize("what", ["requests", "tokens"])
def test_a_burst_without_a_rate_is_refused_by_the_fields_name(what: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        services.create_tenant("acme", actor="ada", **{f"{what}_burst": 5})
    assert refused.value.field == f"{what}_burst"
    tenant = services.create_tenant("acme", actor="ada", **{f"{what}_per_minute": 60})
    services.update_tenant(tenant, actor="ada", **{f"{what}_burst": 5})
    with pytest.raises(InvalidInput) as refused:
        services.update_tenant(tenant, actor="ada", **{f"{what}_per_minute": None})
    assert refused.value.field == f"{what}_burst"


def test_draining_a_replica_that_nobody_knows_says_which_are_known() -> None:
    services.register_replica(registration(), actor="fleet")
    with pytest.raises(UnknownName, match="known: r1"):
        services.drain_replica("r9", actor="ada")


def test_a_registering_version_is_created_and_gets_no_traffic() -> None:
    services.register_replica(registration(), actor="fleet")
    services.set_split("llama", baseline="v1", actor="ada")
    services.register_replica(registration(replica_id="r2", version="v2"), actor="fleet")
    split = TrafficSplit.objects.get()
    assert (split.baseline.name, split.canary, split.canary_percent) == ("v1", None, 0)


@pytest.mark.parametrize(
    "wrong", [{"weight": 0}, {"max_batch_size": 0}, {"protocol": "smoke"}, {"work_unit": "x"}]
)
def test_a_registration_out_of_range_names_its_field(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        services.register_replica(registration(**wrong), actor="fleet")


def test_a_split_that_names_an_unknown_version_is_refused() -> None:
    model = services.create_model("llama", actor="ada")
    services.create_version(model, "v1", actor="ada")
    with pytest.raises(UnknownName, match="canary='v7': no such canary"):
        services.set_split("llama", baseline="v1", canary="v7", canary_percent=5, actor="ada")
    with pytest.raises(UnknownName, match="no such model"):
        services.set_split("gpt", baseline="v1", actor="ada")
    assert not TrafficSplit.objects.exists()


def test_a_split_cannot_name_another_models_version_even_in_plain_sql() -> None:
    llama, other = Model.objects.create(name="llama"), Model.objects.create(name="other")
    own = ModelVersion.objects.create(model=llama, name="v1")
    foreign = ModelVersion.objects.create(model=other, name="v1")
    split = TrafficSplit.objects.create(model=llama, baseline=own)
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("update fleet_trafficsplit set baseline_id = %s", [foreign.pk])
    split.refresh_from_db()
    assert split.baseline == own


@pytest.mark.parametrize(
    "wrong",
    [
        {"canary_percent": 101},
        {"canary_percent": -1},
        {"canary_percent": float("nan")},
        {"canary_percent": 5},
        {"canary": "v1", "canary_percent": 5},
    ],
)
def test_an_impossible_split_is_refused(wrong: dict[str, object]) -> None:
    model = services.create_model("llama", actor="ada")
    services.create_version(model, "v1", actor="ada")
    with pytest.raises(InvalidInput):
        services.set_split("llama", baseline="v1", actor="ada", **wrong)  # type: ignore[arg-type]


def test_widening_a_canary_keeps_its_salt_and_a_new_canary_draws_a_new_one() -> None:
    model = services.create_model("llama", actor="ada")
    for name in ("v1", "v2", "v3"):
        services.create_version(model, name, actor="ada")
    salts = [
        services.set_split(
            "llama", baseline="v1", canary=canary, canary_percent=percent, actor="ada"
        ).salt
        for canary, percent in [("v2", 5), ("v2", 25), ("v3", 1)]
    ]
    assert salts[0] == salts[1] != salts[2]


def test_a_key_is_shown_once_and_only_its_digest_is_kept(changes: list[events.Change]) -> None:
    tenant = services.create_tenant("acme", actor="ada")
    issued = services.issue_key(tenant, "main", actor="ada")
    kind, head, tail = issued.secret.split("_")
    assert (kind, len(head), len(tail)) == ("hk", 8, 32)
    row = ApiKey.objects.values().get()
    assert tail not in str(row)
    assert tail not in str(changes)
    assert row["prefix"] == f"hk_{head}"


def test_a_revoked_key_frees_its_name_and_stays_revoked() -> None:
    tenant = services.create_tenant("acme", actor="ada")
    old = services.issue_key(tenant, "main", actor="ada").key
    with pytest.raises(InvalidInput):
        services.issue_key(tenant, "main", actor="ada")
    revoked = services.revoke_key(old, actor="ada")
    assert services.revoke_key(old, actor="eve").revoked_at == revoked.revoked_at
    services.issue_key(tenant, "main", actor="ada")
    assert old.tenant.keys.count() == 2


def test_a_derived_secret_is_the_same_after_a_restart_and_differs_by_purpose() -> None:
    assert derived_secret(API_KEY, "acme/main") == derived_secret(API_KEY, "acme/main")
    assert derived_secret(API_KEY, "acme/main") != derived_secret(API_KEY, "acme/other")
    assert prefix_of(derived_secret(API_KEY, "acme/main").text) is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 4},
        {"weight": 0},
        {"requests_per_minute": 0},
        {"requests_burst": 5},
        {"max_in_flight": 0},
        {"colour": "red"},
    ],
)
def test_a_quota_out_of_range_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        services.create_tenant("acme", actor="ada", **wrong)
    assert not Tenant.objects.exists()


def test_a_changed_quota_is_told_with_both_values(changes: list[events.Change]) -> None:
    tenant = services.create_tenant("acme", actor="ada", requests_per_minute=60)
    services.update_tenant(tenant, requests_per_minute=90, actor="bob", reason="contract")
    services.update_tenant(tenant, requests_per_minute=90, actor="bob")
    told = [change for change in changes if change.action == "tenant.changed"]
    assert [(c.before, c.after, c.reason) for c in told] == [
        ({"requests_per_minute": 60}, {"requests_per_minute": 90}, "contract")
    ]


def test_what_cannot_be_recorded_does_not_happen() -> None:
    def full(change: events.Change) -> None:
        raise DatabaseError("disk full")

    events.register_listener(full)
    try:
        with pytest.raises(DatabaseError):
            services.create_tenant("acme", actor="ada")
    finally:
        events.unregister_listener(full)
    assert not Tenant.objects.exists()


def test_a_model_in_use_is_not_removed() -> None:
    services.register_replica(registration(), actor="fleet")
    model = Model.objects.get()
    with pytest.raises(services.Conflict, match="r1"):
        services.remove_model(model, actor="ada")
    services.remove_replica("r1", actor="ada")
    services.set_split(model, baseline="v1", actor="ada")
    services.remove_model(model, actor="ada")
    assert not Model.objects.exists()


def test_a_token_is_verified_until_it_expires_or_is_revoked() -> None:
    issued = services.issue_token("replicas", actor="ada")
    assert services.verify_token(issued.secret) == issued.token
    assert services.verify_token(issued.secret[:-1] + "!") is None
    assert services.verify_token("nonsense") is None
    issued.token.expires_at = timezone.now() - timedelta(seconds=1)
    issued.token.save()
    assert services.verify_token(issued.secret) is None
    second = services.issue_token("replicas", actor="ada")
    services.revoke_token(second.token, actor="ada")
    assert services.verify_token(second.secret) is None
