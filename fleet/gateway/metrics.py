"""`/metrics`: one gateway's numbers for Prometheus, from all its processes.

A custom collector, because prometheus-client's multiprocess mode writes files on the hot
path. Each process hands over one `numbers` dictionary; the one that was asked turns them
into families. Label sets are bounded: models, versions and replicas come from the
configuration, tenants are the `TENANTS` busiest and one `other`, paths come from the routing
table and one `other`. Whatever names clients invent, the number of series stays.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from fleet.gateway.process import Process

TENANTS = 50
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
BREAKERS = {"closed": 0, "half_open": 1, "open": 2}
DEGRADABLE = ("configuration", "limits", "live", "recorder")


def numbers(process: Process) -> dict[str, Any]:
    """What one process contributes."""
    view = process.scheduler.view()
    return {
        "process": process.identity.process,
        "conservation": view["conservation"],
        "refusedTotal": dict(process.refused_by_code),
        "traffic": {k: v for k, v in view["traffic"].items() if k.endswith("Ms")},
        "admission": view["admission"],
        "queues": view["queues"],
        "replicas": [_of_replica(replica) for replica in view["replicas"]],
        "tenants": _busiest(view["tenants"]),
        "answers": [[path, status, n] for (path, status), n in process.answers.items()],
        "gauges": {
            **process.numbers,
            "event_loop_lag_ms": process.lag_ms,
            "snapshot_age_seconds": process.snapshot_age_s(),
            "snapshot_revision": process.snapshot.revision,
            "driver_faults_total": process.driver.faults,
            "waiting": len(process.driver.waiting),
            "attempts_running": process.driver.running_attempts,
        },
        "degraded": {name: int(name in process.degraded) for name in DEGRADABLE},
    }


def render(parts: Iterable[Mapping[str, Any]]) -> bytes:
    """The exposition of all processes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(list(parts)))
    return generate_latest(registry)


class _Collector:
    def __init__(self, parts: list[Mapping[str, Any]]) -> None:
        self._parts = parts

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from _requests(self._parts)
        yield from _gauges(self._parts)
        yield from _scheduling(self._parts)
        yield from _replicas(self._parts)
        yield from _tenants(self._parts)


def _requests(parts: list[Mapping[str, Any]]) -> Iterator[Metric]:
    ended = CounterMetricFamily(
        "halcyon_requests",
        "Requests by what became of them: arrived is the sum of the others, always.",
        labels=["process", "state"],
    )
    waiting = GaugeMetricFamily(
        "halcyon_requests_in_flight", "Requests held now.", labels=["process", "state"]
    )
    balanced = GaugeMetricFamily(
        "halcyon_conservation_balanced",
        "1 while arrived = served + refused + failed + cancelled + queued + running.",
        labels=["process"],
    )
    refused = CounterMetricFamily(
        "halcyon_refusals", "Requests not served, by reason.", labels=["process", "code"]
    )
    answers = CounterMetricFamily(
        "halcyon_http_responses", "Answers by route and status.", labels=["process", "path", "code"]
    )
    for part in parts:
        name = str(part["process"])
        law = part["conservation"]
        for state in ("arrived", "served", "refused", "failed", "cancelled"):
            ended.add_metric([name, state], law[state])
        for state in ("queued", "running"):
            waiting.add_metric([name, state], law[state])
        balanced.add_metric([name], int(law["balanced"]))
        for code, count in part["refusedTotal"].items():
            refused.add_metric([name, code], count)
        for path, status, count in part["answers"]:
            answers.add_metric([name, path, str(status)], count)
    yield from (ended, waiting, balanced, refused, answers)


def _gauges(parts: list[Mapping[str, Any]]) -> Iterator[Metric]:
    families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
    for part in parts:
        for name, value in part["gauges"].items():
            if value is None:
                continue
            total = name.endswith("_total")
            if name not in families:
                kind = CounterMetricFamily if total else GaugeMetricFamily
                families[name] = kind(
                    f"halcyon_gateway_{name.removesuffix('_total')}",
                    name.removesuffix("_total").replace("_", " ").capitalize() + ".",
                    labels=["process"],
                )
            families[name].add_metric([str(part["process"])], value)
    yield from families.values()
    degraded = GaugeMetricFamily(
        "halcyon_degraded", "1 while a part lacks what it needs.", labels=["process", "part"]
    )
    for part in parts:
        for name, value in part["degraded"].items():
            degraded.add_metric([str(part["process"]), name], value)
    yield degraded


def _scheduling(parts: list[Mapping[str, Any]]) -> Iterator[Metric]:
    latency = GaugeMetricFamily(
        "halcyon_latency_ms", "End-to-end ms over a minute.", labels=["process", "quantile"]
    )
    limit = GaugeMetricFamily("halcyon_admission_limit", "Adaptive limit.", labels=["process"])
    queued = GaugeMetricFamily(
        "halcyon_queue_length", "Requests queued.", labels=["process", "model", "version"]
    )
    flushes = CounterMetricFamily(
        "halcyon_batches",
        "Batches by why they left.",
        labels=["process", "model", "version", "reason"],
    )
    for part in parts:
        name = str(part["process"])
        for key, quantile in (("p50Ms", "0.5"), ("p95Ms", "0.95"), ("p99Ms", "0.99")):
            if part["traffic"].get(key) is not None:
                latency.add_metric([name, quantile], part["traffic"][key])
        limit.add_metric([name], part["admission"]["limit"])
        for queue in part["queues"]:
            where = [name, queue["model"], queue["version"]]
            queued.add_metric(where, queue["queued"])
            for reason, count in queue["flushReasons"].items():
                flushes.add_metric([*where, reason], count)
    yield from (latency, limit, queued, flushes)


def _of_replica(view: Mapping[str, Any]) -> list[Any]:
    return [
        view["replicaId"],
        view["inFlight"],
        view["batches"],
        view["backpressure"],
        BREAKERS.get(view["breaker"]["state"], 2),
        view["breaker"]["trips"],
        int(view["status"] == "healthy"),
    ]


def _replicas(parts: list[Mapping[str, Any]]) -> Iterator[Metric]:
    labels = ["process", "replica"]
    families: tuple[CounterMetricFamily | GaugeMetricFamily, ...] = (
        GaugeMetricFamily("halcyon_replica_in_flight", "Attempts running there.", labels=labels),
        CounterMetricFamily("halcyon_replica_batches", "Batches sent.", labels=labels),
        CounterMetricFamily("halcyon_replica_backpressure", "Busy answers.", labels=labels),
        GaugeMetricFamily(
            "halcyon_replica_breaker", "0 closed, 1 half open, 2 open.", labels=labels
        ),
        CounterMetricFamily("halcyon_replica_breaker_trips", "Times it opened.", labels=labels),
        GaugeMetricFamily("halcyon_replica_healthy", "1 while healthy.", labels=labels),
    )
    for part in parts:
        for replica, *values in part["replicas"]:
            for family, value in zip(families, values, strict=True):
                family.add_metric([str(part["process"]), replica], value)
    yield from families


def _busiest(tenants: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """The busiest tenants by name and the rest summed as `other`."""
    ranked = sorted(tenants, key=lambda view: (-view["ratePerS"], view["tenant"]))
    rows = [_of_tenant(view, view["tenant"]) for view in ranked[:TENANTS]]
    if len(ranked) > TENANTS:
        rest = [_of_tenant(view, "other") for view in ranked[TENANTS:]]
        rows.append(["other", *(sum(column) for column in list(zip(*rest, strict=True))[1:])])
    return rows


def _of_tenant(view: Mapping[str, Any], name: str) -> list[Any]:
    return [name, view["inFlight"], view["ratePerS"], view["tokensPerS"]]


def _tenants(parts: list[Mapping[str, Any]]) -> Iterator[Metric]:
    labels = ["process", "tenant"]
    families = (
        GaugeMetricFamily("halcyon_tenant_in_flight", "Requests in flight.", labels=labels),
        GaugeMetricFamily("halcyon_tenant_requests_per_s", "Over 10 s.", labels=labels),
        GaugeMetricFamily("halcyon_tenant_tokens_per_s", "Over 10 s.", labels=labels),
    )
    for part in parts:
        for tenant, *values in part["tenants"]:
            for family, value in zip(families, values, strict=True):
                family.add_metric([str(part["process"]), tenant], value)
    yield from families
