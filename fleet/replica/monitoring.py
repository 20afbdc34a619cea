"""What the replica shows: a snapshot now, one a second for five minutes, Prometheus text.

Percentiles are of queue wait + execution over the last seconds; null where nothing was
answered in them, with `"note": "no_data_yet"` before the first answer of all.
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.regulation.controller import Regulation
from fleet.replica.sensors import Sensors
from fleet.replica.workplace import Workplace

HISTORY = 300
NO_DATA_YET = "no_data_yet"


@dataclass(slots=True)
class Monitor:
    """Snapshots of a workplace."""

    workplace: Workplace
    history: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=HISTORY))
    last_action: str | None = None
    last_action_time: float | None = None

    def note_action(self, decision: Regulation) -> None:
        """The regulation moved a limit."""
        self.last_action = decision.text
        self.last_action_time = time.time()

    def sample(self, sensors: Sensors) -> None:
        """Keep a snapshot."""
        self.history.append(self.snapshot(sensors))

    def snapshot(self, sensors: Sensors) -> dict[str, Any]:
        """The state as JSON. cpu and memory are percent of the machine."""
        view = self.workplace.station.view(self.workplace.clock_ms())
        cpu, memory = sensors.cpu_ratio(), sensors.memory_ratio()
        shown: dict[str, Any] = {
            "timestamp": time.time(),
            "p50": view.p50_ms,
            "p95": view.p95_ms,
            "p99": view.p99_ms,
            "cpu": None if cpu is None else round(100 * cpu, 1),
            "memory": None if memory is None else round(100 * memory, 1),
            "queue_depth": view.queue_depth,
            "active_workers": view.running,
            "max_workers": view.max_workers,
            "batch_size": view.batch_size,
            "throughput": view.throughput_per_s,
            "admission_control": view.admission_control,
        }
        if view.throughput_per_s is None:
            shown["note"] = NO_DATA_YET
        return shown

    def controller(self) -> dict[str, Any]:
        """The limits in force and the last move, with its reason and numbers."""
        station = self.workplace.station
        last = station.controller.last
        return {
            "max_workers": station.limit.limit,
            "batch_size": station.controller.batch_size,
            "admission_control": station.gate.on,
            "slo_ms": station.config.regulation.slo_ms,
            "last_action": self.last_action,
            "last_action_time": self.last_action_time,
            "last_check": None if last is None else last.text,
            "last_numbers": None if last is None else last.numbers,
            "adaptive": station.config.adaptive,
        }

    def prometheus(self, sensors: Sensors) -> bytes:
        """The state as Prometheus text. What is unknown is left out."""
        registry = CollectorRegistry()
        registry.register(_Collector(self.snapshot(sensors), self.workplace))
        return generate_latest(registry)


_GAUGES = {
    "cpu": ("cpu_percent", "CPU of the machine in use."),
    "memory": ("memory_percent", "Memory of the machine in use."),
    "queue_depth": ("queue_depth", "Orders that wait."),
    "active_workers": ("active_workers", "Batches that run."),
    "max_workers": ("max_workers", "Batches that may run."),
    "batch_size": ("batch_size", "Items that a batch may have."),
    "throughput": ("throughput_per_second", "Orders answered lately."),
    "admission_control": ("admission_control", "1 while lower classes are refused."),
}


class _Collector(Collector):
    """One scrape."""

    def __init__(self, shown: dict[str, Any], place: Workplace) -> None:
        self._shown = shown
        self._place = place

    def collect(self) -> Iterator[Metric]:
        latency = GaugeMetricFamily(
            "halcyon_replica_latency_ms", "Queue wait and execution lately.", labels=["quantile"]
        )
        for name, quantile in (("p50", "0.5"), ("p95", "0.95"), ("p99", "0.99")):
            if self._shown[name] is not None:
                latency.add_metric([quantile], self._shown[name])
        yield latency
        for key, (name, text) in _GAUGES.items():
            if self._shown[key] is not None:
                yield GaugeMetricFamily(f"halcyon_replica_{name}", text, self._shown[key])
        yield CounterMetricFamily(
            "halcyon_replica_batches", "Batches started.", self._place.batches
        )
        yield CounterMetricFamily(
            "halcyon_replica_failed_batches", "Batches that failed.", self._place.failed_batches
        )
        refused = CounterMetricFamily(
            "halcyon_replica_refused", "Orders turned away.", labels=["reason"]
        )
        for reason, count in self._place.station.refused.items():
            refused.add_metric([reason], count)
        yield refused
