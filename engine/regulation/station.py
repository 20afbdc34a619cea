"""The self-regulating replica as one pure object: queue, gate, limits and controller.

    submit -> [gate] -> fair queue -> next_batch (takes a slot) -> ... -> finish (gives it back)
                                  decide, every interval: observation -> rules -> limits

The live replica drives it with sockets, threads and psutil, the benchmark with a virtual
clock and a device model: the same decisions, so what is measured in seconds of virtual time
is what runs. It never sleeps, and knows no clock of its own.

`entries_per_batch` is how many queue entries ride together: the regulated batch size where
clients send single requests, 1 where a gateway already sends whole batches. The top class is
never subject to admission control; the others are.

Latency is queue wait + execution, over a window of *time*; what is judged are requests that came
after the last move, at least `min_samples` of them. An entry that expires in the queue
counts with the time it waited; a failed batch counts nowhere: failing fast is not being fast.
"""

from dataclasses import dataclass, field

from engine.errors import Refusal, RefusalCode, UnknownName, require_positive
from engine.regulation.controller import (
    Observation,
    Regulation,
    RegulationConfig,
    RegulationController,
)
from engine.regulation.fair_queue import FairQueue, QueueClass, Waiting
from engine.regulation.forecast import Forecast
from engine.regulation.gate import Gate, GateConfig
from engine.regulation.meters import Meters
from engine.regulation.semaphore import ResizableLimit, Slot

DEMAND_HEADROOM = 1.25  # capacity that a cut must leave, in times the demand
TOO_LONG_RATIO = 0.9  # of the SLO: a batch that takes longer is cut whatever the demand
ADMISSION_CONTROL = "admission_control"
QUEUE_FULL = "queue_full"
_UNMEASURED_RETRY_MS = 250.0  # before the first batch has ended there is nothing to reckon with


@dataclass(slots=True, frozen=True, kw_only=True)
class StationConfig:
    """How the station queues, and how it regulates itself (not at all where `adaptive` is False).

    `classes` are in order of rank: the first is never refused by admission control.
    """

    classes: tuple[QueueClass, ...]
    regulation: RegulationConfig = field(default_factory=RegulationConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    timeout_ms: float = 10_000.0
    window_ms: float = 3000.0
    window_slots: int = 6
    min_samples: int = 3
    merge: bool = True
    adaptive: bool = True

    def __post_init__(self) -> None:
        require_positive("timeout_ms", self.timeout_ms, unit="ms")
        require_positive("window_ms", self.window_ms, unit="ms")


@dataclass(slots=True, eq=False)
class Job[T]:
    """A batch that runs now. End it with `finish`, whatever becomes of it."""

    entries: list[Waiting[T]]
    slot: Slot
    started_ms: float


@dataclass(slots=True, frozen=True, kw_only=True)
class StationView:
    """What the station can say of itself. None is "no data yet"."""

    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    throughput_per_s: float | None
    queue_depth: int
    queue_by_class: dict[str, int]
    running: int
    max_workers: int
    batch_size: int
    admission_control: bool
    refused: dict[str, int]


class Station[T]:
    """A self-regulating place of work."""

    def __init__(self, config: StationConfig, now_ms: float = 0.0) -> None:
        self.config = config
        self.controller = RegulationController(config.regulation)
        self.limit = ResizableLimit(config.regulation.max_workers)
        self.gate = Gate(config.gate)
        self.queue: FairQueue[T] = FairQueue(config.classes)
        self.refused: dict[str, int] = {QUEUE_FULL: 0, ADMISSION_CONTROL: 0}
        self._forecast = Forecast()
        self._meters = Meters(
            config.window_ms, config.window_slots, config.regulation.max_workers, now_ms
        )
        self._running: dict[str, int] = {spec.name: 0 for spec in config.classes}
        self._top = config.classes[0].name

    # -- requests ---------------------------------------------------------------------------

    def submit(
        self,
        item: T,
        *,
        priority: str,
        now_ms: float,
        work: float = 1.0,
        items: int = 1,
        timeout_ms: float | None = None,
    ) -> Waiting[T] | Refusal:
        """Queue an entry, or say why not and when to come back."""
        self._meters.asked(now_ms)
        running = self._running.get(priority)
        if running is None:
            raise UnknownName("priority", priority, self._running)
        forecast_ms = self.forecast_ms(priority)
        if priority != self._top:
            in_house = running + self.queue.depth(priority)
            if not self.gate.passes(forecast_ms=forecast_ms, in_house=in_house):
                return self._refuse(ADMISSION_CONTROL, forecast_ms, self.gate.target_ms)
        lifetime_ms = self.config.timeout_ms if timeout_ms is None else timeout_ms
        entry = self.queue.offer(
            item,
            priority=priority,
            now_ms=now_ms,
            expires_ms=now_ms + lifetime_ms,
            work=work,
            items=items,
        )
        if entry is None:
            capacity = next(c.capacity for c in self.config.classes if c.name == priority)
            return self._refuse(QUEUE_FULL, float(capacity), float(capacity))
        return entry

    def cancel(self, entry: Waiting[T]) -> bool:
        """The client left. True if the entry was still waiting (a running one runs on)."""
        return self.queue.remove(entry)

    def expire(self, now_ms: float) -> list[Waiting[T]]:
        """Remove and return the entries that waited too long."""
        expired = self.queue.expire(now_ms)
        for entry in expired:
            self._meters.waited(entry.arrived_ms, now_ms)
        return expired

    # -- batches ----------------------------------------------------------------------------

    def next_batch(self, now_ms: float) -> Job[T] | None:
        """The batch that starts now, or None where nothing waits or no slot is free."""
        head = self.queue.peek()
        if head is None:
            return None
        self._meters.count_use(self.limit.in_use, now_ms)
        slot = self.limit.try_acquire()
        if slot is None:
            return None
        entries: list[Waiting[T]] = []
        places = self.controller.batch_size
        while head is not None and (not entries or head.items <= places):
            self.queue.pop()
            entries.append(head)
            self._running[head.priority] += 1
            places -= head.items
            if not self.config.merge or places <= 0:
                break
            head = self.queue.peek()
        return Job(entries, slot, now_ms)

    def finish(self, job: Job[T], now_ms: float, *, ok: bool = True) -> None:
        """A batch ended, well or not: give its slot back and learn from it."""
        self._meters.count_use(self.limit.in_use, now_ms)
        job.slot.release()
        for entry in job.entries:
            self._running[entry.priority] -= 1
        if not ok:
            return
        service_ms = now_ms - job.started_ms
        self._forecast.learn(len(job.entries), service_ms, now_ms)
        self._meters.executed(service_ms, len(job.entries), now_ms)
        for entry in job.entries:
            self._meters.waited(entry.arrived_ms, now_ms)

    # -- regulation -------------------------------------------------------------------------

    def forecast_ms(self, priority: str) -> float | None:
        """How long a request of this class that enters now will take."""
        return self._forecast.total_ms(
            self.queue.ahead(priority),
            entries_per_batch=self.controller.batch_size if self.config.merge else 1,
            slots=self.limit.limit,
            free=self.limit.free,
        )

    def alarm(self, now_ms: float) -> bool:
        """Whether to decide now instead of at the next tick."""
        if not self.config.adaptive:
            return False
        return self.controller.alarm(self.forecast_ms(self.config.classes[-1].name), now_ms)

    def slot_use_ratio(self, now_ms: float) -> float | None:
        """Share of the slots' time in use since the last call: the device's own busy ratio."""
        return self._meters.take_use_ratio(self.limit.in_use, now_ms)

    def decide(
        self, now_ms: float, *, busy_ratio: float | None, memory_ratio: float | None
    ) -> Regulation | None:
        """One decision of the controller, carried out. None where the station is static."""
        if not self.config.adaptive:
            return None
        p95_ms = self._meters.judged_p95_ms(self.config.min_samples, now_ms)
        refused, subject = self.gate.take_counts()
        lowest = self.config.classes[-1]
        per_batch = self.controller.batch_size if self.config.merge else 1
        decision = self.controller.decide(
            Observation(
                p95_ms=p95_ms,
                busy_ratio=busy_ratio,
                memory_ratio=memory_ratio,
                queue_depth=len(self.queue),
                queue_room=lowest.capacity - self.queue.depth(lowest.name),
                round_size=per_batch * self.limit.limit,
                forecast_ms=self.forecast_ms(lowest.name),
                execution_ms=self._meters.execution_p95_ms(now_ms),
                batch_floor=self._batch_floor(now_ms),
                refused=refused,
                subject=subject,
            ),
            now_ms,
        )
        self._meters.count_use(self.limit.in_use, now_ms)
        self.limit.resize(decision.max_workers)
        self.gate.on = decision.admission_control
        self.gate.steer(p95_ms)
        if decision.changed:
            self._meters.moved(now_ms)
        return decision

    def view(self, now_ms: float) -> StationView:
        """The station as it is now."""
        window = self._meters.shown(now_ms)
        return StationView(
            p50_ms=window.quantile(0.5),
            p95_ms=window.quantile(0.95),
            p99_ms=window.quantile(0.99),
            throughput_per_s=self._meters.throughput_per_s(now_ms),
            queue_depth=len(self.queue),
            queue_by_class={c.name: self.queue.depth(c.name) for c in self.config.classes},
            running=self.limit.in_use,
            max_workers=self.limit.limit,
            batch_size=self.controller.batch_size,
            admission_control=self.gate.on,
            refused=dict(self.refused),
        )

    def _batch_floor(self, now_ms: float) -> int:
        if not self.config.merge:
            return 1  # whoever sends whole batches decides how much rides in one
        return self._forecast.smallest_batch(
            self.controller.batch_size,
            slots=self.limit.limit,
            demand_per_s=DEMAND_HEADROOM * self._meters.demand_per_s(now_ms),
            longest_ms=TOO_LONG_RATIO * self.config.regulation.slo_ms,
        )

    def _refuse(self, reason: str, used: float | None, limit: float) -> Refusal:
        self.refused[reason] += 1
        service_ms = self._forecast.service_ms(self.controller.batch_size)
        wait_ms = _UNMEASURED_RETRY_MS if service_ms is None else service_ms / self.limit.limit
        if reason == ADMISSION_CONTROL and used is not None:
            wait_ms = max(wait_ms, used - limit)
        code = RefusalCode.QUEUE_FULL if reason == QUEUE_FULL else RefusalCode.OVERLOADED
        return Refusal(
            code=code,
            message="the queue is full" if reason == QUEUE_FULL else "admission control is on",
            limit_name=reason,
            limit=limit,
            used=used,
            retry_after_ms=wait_ms,
        )
