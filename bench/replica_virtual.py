"""One run of the replica benchmark in virtual time: the station on a simulated machine.

The machine has `cores`; a batch takes (fixed + per_item x work) x U(0.92, 1.08), and as many
times longer as there are more batches than cores. So more workers than cores buy nothing and
cost everybody, which is what the controller's first rule is there to find out.
"""

import random
from dataclasses import dataclass
from functools import partial

from bench.replica_load import PREMIUM, STANDARD, Pattern, arrivals
from bench.replica_run import SAMPLE_S, Move, Run, Sample
from engine.errors import Refusal
from engine.regulation.controller import RegulationConfig
from engine.regulation.fair_queue import QueueClass
from engine.regulation.gate import GateConfig
from engine.regulation.station import Job, Station, StationConfig
from engine.simulation.events import EventLoop

SAMPLE_MS = SAMPLE_S * 1000
MEMORY_RATIO = 0.4


@dataclass(slots=True, frozen=True, kw_only=True)
class Machine:
    """What runs the batches."""

    cores: int = 2
    fixed_ms: float = 20.0
    per_item_ms: float = 10.0
    jitter_ratio: float = 0.08


def station_config(
    *, slo_ms: float, adaptive: bool, workers: int, batch_size: int
) -> StationConfig:
    """The station as `replica --standalone` builds it."""
    return StationConfig(
        classes=(
            QueueClass(name=PREMIUM, weight=3.0, capacity=200),
            QueueClass(name=STANDARD, weight=1.0, capacity=300),
        ),
        regulation=RegulationConfig(slo_ms=slo_ms, max_workers=workers, batch_size=batch_size),
        gate=GateConfig(slo_ms=slo_ms),
        adaptive=adaptive,
    )


class VirtualReplica:
    """A station, a machine and a trace on one virtual clock."""

    def __init__(
        self, pattern: Pattern, config: StationConfig, machine: Machine, rng: random.Random
    ) -> None:
        self.loop = EventLoop()
        self.station: Station[float] = Station(config)
        self.machine = machine
        self.pattern = pattern
        self.rng = rng
        self.run_ = Run(
            pattern=pattern,
            mode="adaptive" if config.adaptive else "static",
            slo_ms=config.regulation.slo_ms,
        )
        self._cpu_ratio: float | None = None
        self._cpu_since_ms = 0.0
        self._busy_core_ms = 0.0
        self._busy_since_ms = 0.0

    def run(self) -> Run:
        """Play the whole pattern and return what happened."""
        for arrival in arrivals(self.pattern, self.rng):
            self.loop.at(arrival.at_s * 1000, partial(self._arrive, arrival.priority, arrival.work))
        self.loop.after(self.station.config.regulation.interval_ms, self._tick)
        self.loop.after(SAMPLE_MS, self._sample)
        self.loop.run(self.pattern.duration_s * 1000)
        return self.run_

    def _arrive(self, priority: str, work: float) -> None:
        now_ms = self.loop.now_ms()
        self.run_.offered += 1
        answer = self.station.submit(work, priority=priority, now_ms=now_ms, work=work)
        if isinstance(answer, Refusal):
            self.run_.refused += 1
        if self.station.alarm(now_ms):
            self._decide()
        self._start()

    def _start(self) -> None:
        now_ms = self.loop.now_ms()
        self.run_.expired += len(self.station.expire(now_ms))
        while (job := self.station.next_batch(now_ms)) is not None:
            self._count_cores(job=1)
            running = self.station.limit.in_use
            machine = self.machine
            work = sum(entry.item for entry in job.entries)
            service_ms = machine.fixed_ms + machine.per_item_ms * work
            service_ms *= 1 + machine.jitter_ratio * self.rng.uniform(-1, 1)
            service_ms *= max(1.0, running / machine.cores) * self._slowdown()
            self.loop.after(service_ms, partial(self._finish, job))

    def _finish(self, job: Job[float]) -> None:
        now_ms = self.loop.now_ms()
        self._count_cores()
        self.station.finish(job, now_ms)
        for entry in job.entries:
            if now_ms - entry.arrived_ms <= self.run_.slo_ms:
                self.run_.in_time += 1
            else:
                self.run_.late += 1
        self._start()

    def _slowdown(self) -> float:
        incident, at_s = self.pattern.incident, self.loop.now_ms() / 1000
        if incident is None or not incident.start_s <= at_s < incident.end_s:
            return 1.0
        return incident.slowdown

    def _count_cores(self, job: int = 0) -> None:
        now_ms = self.loop.now_ms()
        busy = min(self.machine.cores, self.station.limit.in_use - job)
        self._busy_core_ms += busy * (now_ms - self._busy_since_ms)
        self._busy_since_ms = now_ms

    def _decide(self) -> None:
        now_ms = self.loop.now_ms()
        decision = self.station.decide(
            now_ms, busy_ratio=self._read_cpu(now_ms), memory_ratio=MEMORY_RATIO
        )
        if decision is not None and decision.changed:
            self.run_.moves.append(
                Move(
                    at_s=now_ms / 1000,
                    max_workers=decision.max_workers,
                    batch_size=decision.batch_size,
                    admission_control=decision.admission_control,
                    text=decision.text,
                )
            )

    def _read_cpu(self, now_ms: float) -> float | None:
        """Use of the cores since the last reading; one reading stands for half a second."""
        self._count_cores()
        span_ms = now_ms - self._cpu_since_ms
        if span_ms >= 500:
            self._cpu_ratio = self._busy_core_ms / (span_ms * self.machine.cores)
            self._busy_core_ms, self._cpu_since_ms = 0.0, now_ms
        return self._cpu_ratio

    def _tick(self) -> None:
        self._decide()
        self.loop.after(self.station.config.regulation.interval_ms, self._tick)

    def _sample(self) -> None:
        now_ms = self.loop.now_ms()
        self.run_.expired += len(self.station.expire(now_ms))
        view = self.station.view(now_ms)
        self.run_.samples.append(
            Sample(
                at_s=now_ms / 1000,
                offered_per_s=self.pattern.rate_at(now_ms / 1000 - 0.001),
                throughput_per_s=view.throughput_per_s,
                p50_ms=view.p50_ms,
                p95_ms=view.p95_ms,
                p99_ms=view.p99_ms,
                cpu_ratio=self._read_cpu(now_ms),
                queue_depth=view.queue_depth,
                max_workers=view.max_workers,
                batch_size=view.batch_size,
                admission_control=view.admission_control,
                refused=self.run_.refused,
            )
        )
        self.loop.after(SAMPLE_MS, self._sample)
