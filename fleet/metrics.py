"""What the control plane knows, for Prometheus: few series, none of them by tenant or model.

Read from the database at each scrape, so any web process gives the same answer. What the
data plane does is on the gateways' own `/metrics`.
"""

from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.db import connection
from django.utils import timezone
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleet.models import Model, Replica, Tenant
from fleet.selectors import last_seen, presence

GATEWAY_ALIVE_S = 30.0


class ControlPlane(Collector):
    """One scrape's reading."""

    def collect(self) -> Iterator[Metric]:
        yield self._replicas()
        yield GaugeMetricFamily("halcyon_models", "Models defined.", Model.objects.count())
        yield GaugeMetricFamily("halcyon_tenants", "Tenants defined.", Tenant.objects.count())
        alive = [g for g in presence("gateway:") if g.age_s <= GATEWAY_ALIVE_S]
        yield GaugeMetricFamily(
            "halcyon_gateways_recording", "Gateways that wrote in the last 30 s.", len(alive)
        )
        yield self._revision()
        beat = last_seen("beat")
        if beat is not None:  # absent is not zero
            yield GaugeMetricFamily(
                "halcyon_beat_age_seconds", "Since beat's last tick was done.", beat.age_s
            )

    def _replicas(self) -> Metric:
        silent_since = timezone.now() - timedelta(seconds=settings.HALCYON_REPLICA_SILENT_S)
        rows = Replica.objects.all()
        family = GaugeMetricFamily(
            "halcyon_replicas_registered", "Replicas by what is known of them.", labels=["state"]
        )
        draining = rows.filter(draining=True).count()
        silent = rows.filter(draining=False, heartbeat_at__lt=silent_since).count()
        family.add_metric(["draining"], draining)
        family.add_metric(["silent"], silent)
        family.add_metric(["serving"], rows.count() - draining - silent)
        return family

    def _revision(self) -> Metric:
        with connection.cursor() as cursor:
            cursor.execute("SELECT last_value FROM fleet_config_revision")
            (revision,) = cursor.fetchone()
        return GaugeMetricFamily(
            "halcyon_config_revision", "Grows with each change of configuration.", revision
        )


registry = CollectorRegistry(auto_describe=False)
registry.register(ControlPlane())
