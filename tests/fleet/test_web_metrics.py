"""`/metrics` of the web process: few series, for those who may, and absent is not zero."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fleet import services
from fleet.models import Replica

pytestmark = pytest.mark.django_db


def scraped(client: Client, **options: Any) -> dict[str, float]:
    answer = client.get("/metrics", **options)
    assert answer.status_code == 200
    lines = [line for line in answer.content.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_replicas_are_counted_by_what_is_known_of_them(client: Client) -> None:
    for name in ("a", "b", "c"):
        services.register_replica(
            services.Registration(
                replica_id=name, model="m", version="v1", address="http://127.0.0.1:1"
            ),
            actor="test",
        )
    services.drain_replica("a", actor="test")
    Replica.objects.filter(pk="b").update(heartbeat_at=timezone.now() - timedelta(hours=1))
    seen = scraped(client)
    for state in ("draining", "silent", "serving"):
        assert seen[f'halcyon_replicas_registered{{state="{state}"}}'] == 1


def test_a_beat_that_never_ticked_has_no_age(client: Client) -> None:
    assert "halcyon_beat_age_seconds" not in scraped(client)
    services.note_alive("beat")
    assert scraped(client)["halcyon_beat_age_seconds"] < 5


def test_the_number_of_series_does_not_grow_with_names(client: Client) -> None:
    before = len(scraped(client))
    for number in range(50):
        services.create_tenant(f"t{number}", actor="test")
        services.create_model(f"m{number}", actor="test")
    assert len(scraped(client)) == before


def test_strangers_and_proxies_may_not_scrape(client: Client, settings: Any) -> None:
    assert client.get("/metrics", REMOTE_ADDR="10.9.9.9").status_code in {401, 403}
    assert client.get("/metrics", headers={"X-Forwarded-For": "1.2.3.4"}).status_code in {401, 403}
    settings.HALCYON_METRICS_NETWORKS = ["10.9.0.0/16"]
    assert scraped(client, REMOTE_ADDR="10.9.9.9")
