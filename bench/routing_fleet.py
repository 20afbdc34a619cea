"""A small fleet in virtual time for the routing benchmarks: the real router, simple servers.

Requests arrive, wait in one line, and go to whatever replica the real `Router` picks; a
replica has as many places as its ceiling and works on each alone. Faults are retried and late
ones hedged under the real `RetryBudget` and `HedgePolicy`. Batching and admission are left out
so that what is measured is routing and nothing else.
"""

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.outcomes import Outcome
from engine.routing.budget import RetryBudget
from engine.routing.hedge import HedgePolicy
from engine.routing.lease import Lease
from engine.routing.replica_state import ReplicaState
from engine.routing.router import Router, RouterConfig
from engine.simulation.events import EventLoop
from engine.types import Protocol, ReplicaSpec, Strategy

_WORK = 100.0  # every request is of one size class
_FAIL_MS = 2.0


@dataclass(slots=True, eq=False)
class Job:
    """One request and its attempts."""

    arrived_ms: float
    key: str | None = None
    tried: tuple[str, ...] = ()
    running: int = 0
    again: bool = False  # waiting for its second attempt, already paid for
    done: bool = False


@dataclass(slots=True)
class Server:
    """A replica as it really is. `fault_ratio` 1 is a black hole: it fails in 2 ms."""

    state: ReplicaState
    mean_ms: float = 50.0
    spread: float = 0.10
    fault_ratio: float = 0.0
    straggle_ratio: float = 0.0  # this share of its answers takes ten times as long
    sent: int = 0

    def draw(self, rng: random.Random, job: Job) -> tuple[Outcome, float]:
        """How an attempt at `job` ends, and after how long."""
        if self.fault_ratio > 0.0 and rng.random() < self.fault_ratio:
            return Outcome.FAULT, _FAIL_MS
        service_ms = self.mean_ms * math.exp(self.spread * rng.gauss(0.0, 1.0))
        if self.straggle_ratio > 0.0 and rng.random() < self.straggle_ratio:
            service_ms *= 10.0
        return Outcome.SUCCESS, service_ms


@dataclass(slots=True)
class Log:
    """What happened: (time, replica) of each attempt, (arrival, latency) of each answer."""

    attempts: list[tuple[float, str]] = field(default_factory=list)
    answers: list[tuple[float, float]] = field(default_factory=list)
    extra: list[float] = field(default_factory=list)  # times of hedges and retries
    arrivals: list[float] = field(default_factory=list)
    errors: int = 0
    rules: dict[str, int] = field(default_factory=dict)


class RoutedFleet:
    """Servers, a router and Poisson arrivals."""

    def __init__(
        self,
        seed: int,
        *,
        strategy: Strategy = Strategy.PEAK_EWMA,
        hedging: HedgePolicy | None = None,
        config: RouterConfig | None = None,
        patience_ms: float | None = None,
        keys_are_models: bool = False,
    ) -> None:
        self.loop = EventLoop()
        self.rng = random.Random(seed)
        self._arrivals = random.Random(seed + 3)  # its own: the same trace for every strategy
        self.router = Router(config, random.Random(seed + 1))
        self.strategy = strategy
        self.hedging = hedging
        self.patience_ms = patience_ms  # who waits longer leaves the line
        self.keys_are_models = keys_are_models
        self.budget = RetryBudget()
        self.servers: dict[str, Server] = {}
        self.waiting: deque[Job] = deque()
        self.log = Log()
        self._on_arrival: Callable[[float], None] | None = None
        self._wake_ms: float | None = None

    # -- building --------------------------------------------------------------------

    def add(
        self,
        name: str,
        *,
        places: int = 4,
        age_s: float | None = 3600.0,
        server: Callable[[ReplicaState], Server] = Server,
    ) -> Server:
        spec = ReplicaSpec(
            replica_id=name,
            model="m",
            version="v1",
            address=f"http://{name}",
            protocol=Protocol.BATCH,
            max_concurrency=places,
            age_s=age_s,
        )
        state = ReplicaState(spec, self.loop.now_ms(), random.Random(self.rng.getrandbits(32)))
        made = self.servers[name] = server(state)
        self.router.set_replicas([s.state for s in self.servers.values()], self.loop.now_ms())
        return made

    def offer(
        self, rate_per_s: float, until_ms: float, key: Callable[[], str] | None = None
    ) -> None:
        """Poisson arrivals at this rate until then."""
        loop = self.loop
        rng = self._arrivals

        def arrive() -> None:
            now_ms = loop.now_ms()
            if now_ms > until_ms:
                return
            self.log.arrivals.append(now_ms)
            self.waiting.append(Job(now_ms, key() if key is not None else None))
            if self._on_arrival is not None:
                self._on_arrival(now_ms)
            self.send()
            loop.after(rng.expovariate(rate_per_s) * 1000.0, arrive)

        loop.after(rng.expovariate(rate_per_s) * 1000.0, arrive)

    def on_arrival(self, watch: Callable[[float], None]) -> None:
        self._on_arrival = watch

    # -- running ---------------------------------------------------------------------

    def send(self) -> None:
        """Send what can be sent; where only time helps, look again then."""
        now_ms = self.loop.now_ms()
        stuck: dict[str | None, None] = {}  # models whose first in line has to wait
        left: deque[Job] = deque()
        self.router.roster.advance(now_ms)
        while self.waiting and self.router.roster.free:
            job = self.waiting.popleft()
            if self.patience_ms is not None and now_ms - job.arrived_ms > self.patience_ms:
                self.log.errors += 1
            elif job.key in stuck or not self._start(job, now_ms, further=job.again):
                left.append(job)
                if not self.keys_are_models:
                    break
                stuck[job.key] = None
        left.extend(self.waiting)
        self.waiting = left
        if self.waiting:
            when_ms = self.router.next_change_ms(now_ms)
            if when_ms is not None and when_ms != self._wake_ms:
                self._wake_ms = when_ms
                self.loop.at(max(when_ms, now_ms), self.send)

    def _start(self, job: Job, now_ms: float, further: bool) -> bool:
        route = self.router.pick(
            now_ms,
            tried=job.tried,
            key=job.key,
            strategy=self.strategy,
            model=job.key if self.keys_are_models else None,
        )
        if route is None:
            return False
        rules = self.log.rules
        rules[route.rule] = rules.get(route.rule, 0) + 1
        state = route.replica
        lease = state.acquire(now_ms)
        server = self.servers[state.replica_id]
        server.sent += 1
        job.running += 1
        job.tried = (*job.tried, state.replica_id)
        self.log.attempts.append((now_ms, state.replica_id))
        if further:
            self.log.extra.append(now_ms)
        else:
            if len(job.tried) == 1:
                self.budget.deposit(now_ms)
            if self.hedging is not None:
                delay_ms = self.hedging.delay_ms(_WORK, now_ms)
                if delay_ms is not None:
                    self.loop.after(delay_ms, lambda: self._hedge(job))
        outcome, service_ms = server.draw(self.rng, job)
        self.loop.after(service_ms, lambda: self._end(job, lease, outcome, service_ms))
        return True

    def _hedge(self, job: Job) -> None:
        now_ms = self.loop.now_ms()
        policy = self.hedging
        if job.done or job.running != 1 or policy is None:
            return
        if not policy.allowed(self.router.utilisation(now_ms), now_ms):
            return
        if self.router.pick(now_ms, tried=job.tried) is None:
            return
        if self.budget.withdraw(now_ms, reserve=False) and self._start(job, now_ms, further=True):
            policy.fired(now_ms)

    def _end(self, job: Job, lease: Lease, outcome: Outcome, service_ms: float) -> None:
        now_ms = self.loop.now_ms()
        lost = job.done and outcome is Outcome.SUCCESS
        lease.release(Outcome.CANCELLED if lost else outcome, service_ms, now_ms)
        job.running -= 1
        if outcome is Outcome.SUCCESS:
            if not job.done:
                job.done = True
                self.log.answers.append((job.arrived_ms, now_ms - job.arrived_ms))
            if self.hedging is not None:
                self.hedging.observe(_WORK, service_ms, now_ms)
        elif not job.done and job.running == 0:
            reserve = not self.router.panic
            if len(job.tried) < 2 and self.budget.withdraw(now_ms, reserve=reserve):
                job.again = True
                self.waiting.appendleft(job)
            else:
                job.done = True
                self.log.errors += 1
        self.send()
