"""One limiter, one device, one stream of arrivals, in virtual time.

Every arrival asks the engine's own `Gate`; what is admitted waits at a device and ends by
exactly one verb of its permit: answered within its deadline (`succeed`), or out of time
(`drop`). So what is measured is the gate with a policy inside, not a model of it.

Two devices. `Workers` is k workers that take one request at a time, first come first served,
and whose speed may change while they run. `Accelerator` is the batching device of the
headline benchmark: earliest deadline first, whatever cannot make it any more is dropped.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from engine.admission.gate import Gate, GateConfig, LimitFactory
from engine.admission.permit import Permit
from engine.errors import Refusal
from engine.simulation.events import EventLoop
from engine.types import ModelSpec

_MODEL = "model"
_SAMPLE_MS = 250.0


@dataclass(slots=True)
class Job:
    """A request on its way through the rig."""

    at_ms: float
    work: float
    deadline_ms: float
    permit: Permit | None = None


@dataclass(slots=True)
class Run:
    """What one run found. `track` holds (time, limit, in flight) every 250 ms."""

    offered: int = 0
    refused: int = 0
    good: int = 0
    late: int = 0
    track: list[tuple[float, float, int]] = field(default_factory=list)
    good_by_second: dict[int, int] = field(default_factory=dict)

    @property
    def refused_ratio(self) -> float:
        return self.refused / self.offered if self.offered else 0.0


class Device:
    """Takes admitted jobs and ends each of them once, by `done(job, served)`."""

    done: Callable[[Job, bool], None]

    def take(self, job: Job) -> None:
        raise NotImplementedError


class Workers(Device):
    """`count` workers; a job of work w takes w x slowness(now) milliseconds."""

    def __init__(
        self, loop: EventLoop, count: int, slowness: Callable[[float], float] = lambda now: 1.0
    ) -> None:
        self._loop = loop
        self._idle = count
        self._slowness = slowness
        self._queue: deque[Job] = deque()

    def take(self, job: Job) -> None:
        self._queue.append(job)
        self._start()

    def _start(self) -> None:
        now_ms = self._loop.now_ms()
        while self._idle and self._queue:
            job = self._queue.popleft()
            if job.deadline_ms <= now_ms:
                self.done(job, False)
                continue
            self._idle -= 1
            self._loop.after(job.work * self._slowness(now_ms), lambda job=job: self._end(job))

    def _end(self, job: Job) -> None:
        self._idle += 1
        self.done(job, self._loop.now_ms() <= job.deadline_ms)
        self._start()


class Accelerator(Device):
    """(18 + 0.022 x tokens) x U(0.92, 1.08) ms a batch, at most 32 requests and 16,384 tokens."""

    FIXED_MS = 18.0
    PER_TOKEN_MS = 0.022
    MAX_JOBS = 32
    MAX_TOKENS = 16_384.0

    def __init__(self, loop: EventLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._queue: list[tuple[float, int, Job]] = []
        self._sequence = 0
        self._busy = False

    def take(self, job: Job) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (job.deadline_ms, self._sequence, job))
        if not self._busy:
            self._start()

    def _start(self) -> None:
        now_ms = self._loop.now_ms()
        batch: list[Job] = []
        tokens = 0.0
        queue = self._queue
        while queue and len(batch) < self.MAX_JOBS:
            job = queue[0][2]
            if now_ms + self.FIXED_MS + self.PER_TOKEN_MS * job.work > job.deadline_ms:
                heapq.heappop(queue)
                self.done(job, False)
                continue
            if batch and tokens + job.work > self.MAX_TOKENS:
                break
            heapq.heappop(queue)
            batch.append(job)
            tokens += job.work
        if batch:
            self._busy = True
            took_ms = (self.FIXED_MS + self.PER_TOKEN_MS * tokens) * self._rng.uniform(0.92, 1.08)
            self._loop.after(took_ms, lambda: self._end(batch))

    def _end(self, batch: list[Job]) -> None:
        self._busy = False
        now_ms = self._loop.now_ms()
        for job in batch:
            self.done(job, now_ms <= job.deadline_ms)
        if not self._busy:
            self._start()


def drive(
    jobs: Iterable[Job],
    make_device: Callable[[EventLoop], Device],
    make_limit: LimitFactory,
    slo_ms: float,
    *,
    until_ms: float,
) -> Run:
    """Send `jobs` (in the order of their arrival) through a gate to a device."""
    loop = EventLoop()
    device = make_device(loop)
    gate = Gate(GateConfig(limit_factory=make_limit))
    gate.set_models(
        {_MODEL: ModelSpec(model=_MODEL, versions=frozenset({"v1"}), slo_ms=slo_ms)}, 0.0
    )
    run = Run()
    arrivals = iter(jobs)

    def done(job: Job, served: bool) -> None:
        now_ms = loop.now_ms()
        permit = job.permit
        assert permit is not None
        if served:
            permit.succeed(now_ms - job.at_ms, 1, now_ms)
            run.good += 1
            second = int(now_ms // 1000.0)
            run.good_by_second[second] = run.good_by_second.get(second, 0) + 1
        else:
            permit.drop(now_ms - job.at_ms, 0, now_ms)
            run.late += 1

    def arrive(job: Job) -> None:
        run.offered += 1
        reservation = gate.reserve("anyone", 1, job.at_ms)
        assert not isinstance(reservation, Refusal)
        permit = gate.admit(reservation, _MODEL, 1, job.at_ms)
        if isinstance(permit, Refusal):
            run.refused += 1
        else:
            job.permit = permit
            device.take(job)
        schedule()

    def schedule() -> None:
        job = next(arrivals, None)
        if job is not None:
            loop.at(job.at_ms, lambda: arrive(job))

    def sample() -> None:
        limit = gate.limit(_MODEL)
        assert limit is not None
        run.track.append((loop.now_ms(), limit.value, gate.in_flight(_MODEL)))
        if loop.now_ms() + _SAMPLE_MS <= until_ms:
            loop.after(_SAMPLE_MS, sample)

    device.done = done
    schedule()
    sample()
    loop.run(until_ms)
    return run
