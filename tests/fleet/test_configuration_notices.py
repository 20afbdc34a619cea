"""Every change of configuration is announced by the database itself."""

from collections.abc import Iterator

import psycopg
import pytest
from django.db import connection, transaction
from django.utils import timezone

from fleet.database import conninfo
from fleet.models import ApiKey, Model, ModelVersion, Replica, Tenant, TrafficSplit

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def listener(transactional_db: None) -> Iterator[psycopg.Connection]:
    with psycopg.connect(conninfo(), autocommit=True) as listening:
        listening.execute("listen halcyon_config")
        yield listening


def heard(listening: psycopg.Connection) -> list[str]:
    return [notice.payload for notice in listening.notifies(timeout=0.3)]


@pytest.fixture
def version(transactional_db: None) -> ModelVersion:
    return ModelVersion.objects.create(model=Model.objects.create(name="llama"), name="v1")


def test_each_kind_of_configuration_announces_its_table(
    version: ModelVersion, listener: psycopg.Connection
) -> None:
    tenant = Tenant.objects.create(name="acme")
    ApiKey.objects.create(tenant=tenant, name="main", prefix="hk_a", digest="0" * 64)
    TrafficSplit.objects.create(model=version.model, baseline=version)
    Replica.objects.create(replica_id="r1", version=version, address="http://127.0.0.1:1")
    assert set(heard(listener)) == {
        "fleet_tenant",
        "fleet_apikey",
        "fleet_trafficsplit",
        "fleet_replica",
    }


def test_a_bulk_update_and_plain_sql_are_announced_too(
    version: ModelVersion, listener: psycopg.Connection
) -> None:
    Model.objects.update(slo_ms=500)
    assert heard(listener) == ["fleet_model"]
    with connection.cursor() as cursor:
        cursor.execute("update fleet_modelversion set name = 'v9'")
    assert heard(listener) == ["fleet_modelversion"]


def test_a_thousand_tenants_in_one_transaction_are_one_notice(
    listener: psycopg.Connection,
) -> None:
    with transaction.atomic():
        Tenant.objects.bulk_create(Tenant(name=f"t{n}") for n in range(1000))
    assert heard(listener) == ["fleet_tenant"]


def test_a_heartbeat_alone_or_a_key_being_used_is_not_news(
    version: ModelVersion, listener: psycopg.Connection
) -> None:
    Replica.objects.create(replica_id="r1", version=version, address="http://127.0.0.1:1")
    tenant = Tenant.objects.create(name="acme")
    ApiKey.objects.create(tenant=tenant, name="main", prefix="hk_a", digest="0" * 64)
    heard(listener)
    Replica.objects.update(heartbeat_at=timezone.now())
    ApiKey.objects.update(last_used_at=timezone.now())
    assert heard(listener) == []
    Replica.objects.update(draining=True)
    assert heard(listener) == ["fleet_replica"]


def test_a_change_that_is_rolled_back_is_never_announced(listener: psycopg.Connection) -> None:
    with transaction.atomic():
        Tenant.objects.create(name="acme")
        transaction.set_rollback(True)
    assert heard(listener) == []
