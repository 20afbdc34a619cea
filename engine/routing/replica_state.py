"""Everything a gateway knows of one replica, and the one place that hands out its leases.

`why_not` is the gate: None, or the first reason from `WhyNot`. `score` ranks those that pass.
What is learned tells the surroundings, which keep the list of free replicas current.

An update keeps the object and so its leases: a replica that registers again under its id
with ten requests in flight still has ten. Only the *learning* starts afresh where another
process answers under the old name.
"""

from __future__ import annotations

import random

from engine.errors import BrokenInvariant
from engine.outcomes import Outcome
from engine.routing import hard_gate, replica_view
from engine.routing.backpressure import Backpressure
from engine.routing.breaker import Breaker, BreakerState
from engine.routing.ceiling import Ceiling
from engine.routing.eligibility import WhyNot
from engine.routing.health import HealthScore, Vitals
from engine.routing.lease import Lease
from engine.routing.panic import PanicPace
from engine.routing.peak_ewma import PeakEwma
from engine.routing.process import Process
from engine.routing.replica_config import DEFAULT_CONFIG, ReplicaConfig
from engine.routing.shared_places import SharedPlaces
from engine.routing.silence import Silence
from engine.routing.slow_start import SlowStart
from engine.routing.surroundings import Alone, Surroundings
from engine.stats.window import RotatingHistogram
from engine.types import ReplicaSpec
from engine.view import ReplicaView


class ReplicaState:
    """One replica as this gateway sees it. `slot` is its place in the roster's free list."""

    __slots__ = (
        "_places",
        "_process",
        "_rng",
        "_silence",
        "batches",
        "begun",
        "breaker",
        "busy",
        "ceiling",
        "config",
        "elsewhere",
        "gpu_memory_ratio",
        "health",
        "in_flight",
        "last_success_ms",
        "latency",
        "loaded_models",
        "pace",
        "queued",
        "ready",
        "recent",
        "replica_id",
        "shared",
        "slot",
        "slow_start",
        "spec",
        "surroundings",
        "weight",
    )

    def __init__(
        self,
        spec: ReplicaSpec,
        now_ms: float,
        rng: random.Random,
        config: ReplicaConfig = DEFAULT_CONFIG,
    ) -> None:
        self.config = config
        self._rng = rng
        self.spec = spec
        self.replica_id = spec.replica_id
        self.weight = spec.weight
        self.in_flight = 0
        self.begun = 0  # streams among them whose first byte came
        self.shared: SharedPlaces | None = None  # where the process serves several models
        self.elsewhere = 0  # leases of its other models
        self.queued = 0  # as the replica itself reported
        self.ready = True  # until a probe says otherwise
        self.batches = 0
        self.breaker = Breaker(config.breaker, rng)
        self.latency = PeakEwma(config.latency)
        self.busy = Backpressure(config.backpressure)
        self.pace = PanicPace(config.panic)
        self.slow_start = SlowStart(config.slow_start)
        self.health = HealthScore(config.health)
        self.recent = RotatingHistogram(60_000.0, 12)
        self.last_success_ms: float | None = None
        self._silence = Silence()
        self.surroundings: Surroundings = Alone()
        self.slot = -1
        self._places = Ceiling(config.ceiling, spec.protocol, spec.max_concurrency)
        self.ceiling = self._places.value
        self.loaded_models = spec.loaded_models
        self.gpu_memory_ratio = spec.gpu_memory_ratio
        self._process = Process(spec, now_ms)
        self.slow_start.begin(self._process.started_ms, config.slow_start.ramp_ms)

    # -- asking ----------------------------------------------------------------------

    def why_not(self, now_ms: float) -> WhyNot | None:
        """Why it may not be sent anything now, or None where it may."""
        return hard_gate.why_not(self, now_ms)

    def score(self, now_ms: float) -> float:
        """Expected wait for one more: `(in flight + queued + 1) x latency / weight`."""
        in_flight = self.in_flight + self.elsewhere
        latency_ms = self.latency.value_ms
        if latency_ms is None or self.in_flight == 0:
            latency_ms = self.latency.read_ms(self.surroundings.median_ms, True, now_ms)
        return (in_flight + self.queued + 1) * latency_ms / self.weight

    def load(self, now_ms: float, model: str | None = None) -> float:
        """Load weighted by inverse health, which a resident `model` raises."""
        self.healthy(now_ms)
        rank = self.health.rank(model is not None and model in self.loaded_models)
        in_flight = self.in_flight + self.elsewhere
        return (in_flight + self.queued + 1) / (self.weight * max(rank, 0.05))

    def healthy(self, now_ms: float) -> float:
        """The health score, refreshed where it is stale."""
        if not self.health.due(now_ms):
            return self.health.value
        vitals = Vitals(
            fault_ratio=self.breaker.fault_ratio(now_ms),
            latency_ms=self.latency.typical_ms,
            median_ms=self.surroundings.median_ms,
            gpu_memory_ratio=self.gpu_memory_ratio,
            occupied_ratio=(self.in_flight + self.elsewhere) / self.ceiling,
        )
        return self.health.observe(vitals, now_ms)

    def age_ms(self, now_ms: float) -> float:
        """Since its process started, as far as anybody said."""
        return now_ms - self._process.started_ms

    def view(self, now_ms: float) -> ReplicaView:
        """The live view's row of this replica."""
        return replica_view.view(self, now_ms)

    # -- leases ----------------------------------------------------------------------

    def acquire(self, now_ms: float) -> Lease:
        """Take a place. The caller has asked `why_not`, or was handed it by a router."""
        in_flight = self.in_flight + 1
        if in_flight + self.elsewhere > self.ceiling:
            raise BrokenInvariant(f"{self.replica_id} is at its ceiling of {self.ceiling}")
        self.in_flight = in_flight
        if self.shared is not None:
            self.shared.taken(self, now_ms)
        surroundings = self.surroundings
        surroundings.in_flight += 1
        breaker = self.breaker
        closed = breaker.state is BreakerState.CLOSED
        lease = Lease(self, breaker.generation, not closed and breaker.take(), now_ms)
        if in_flight + self.elsewhere >= self.ceiling or not closed:
            surroundings.changed(self, now_ms)
        return lease

    def released(
        self, lease: Lease, outcome: Outcome, elapsed_ms: float, now_ms: float, size: float
    ) -> None:
        """A lease ended: free its place and learn from it. Called by the lease, once."""
        in_flight = self.in_flight
        self.in_flight = in_flight - 1
        self.begun -= lease.begun
        if self.shared is not None:
            self.shared.given_back(self, now_ms)
        surroundings = self.surroundings
        surroundings.in_flight -= 1
        breaker = self.breaker
        state = breaker.state
        if lease.generation == breaker.generation:
            silent = False
            if outcome is Outcome.SUCCESS:
                self._succeeded(elapsed_ms, now_ms)
                if not lease.begun:  # else the ceiling learned from its first byte
                    self._places.answered(elapsed_ms / size, in_flight, now_ms)
                    self.ceiling = self._places.value
            elif outcome is Outcome.FAULT:
                self.latency.penalise(elapsed_ms, surroundings.median_ms, now_ms)
                self.pace.faulted(self._rng, now_ms)
            elif outcome is Outcome.DEADLINE or outcome is Outcome.CANCELLED:
                self.latency.at_least(elapsed_ms, now_ms)
                if outcome is Outcome.DEADLINE:
                    usual_ms = self.latency.typical_ms or surroundings.median_ms
                    silent = self._silence.since(lease.taken_ms, elapsed_ms, usual_ms)
                if silent:
                    self.pace.faulted(self._rng, now_ms)
            breaker.record(
                outcome,
                probe=lease.is_probe,
                generation=lease.generation,
                silent=silent,
                now_ms=now_ms,
            )
            if state is not BreakerState.CLOSED and breaker.state is BreakerState.CLOSED:
                self.latency.forgive()
                self.slow_start.begin(now_ms, self.config.slow_start.recovery_ms)
        if (
            self.slot < 0
            or state is not BreakerState.CLOSED
            or breaker.state is not BreakerState.CLOSED
            or self.in_flight + self.elsewhere >= self.ceiling
        ):
            surroundings.changed(self, now_ms)

    # -- learning --------------------------------------------------------------------

    def began(self, lease: Lease, now_ms: float) -> bool:
        """A stream's first byte came: it is not hanging. Returns whether the ceiling rose."""
        self._silence.broken(now_ms)
        self.begun += 1
        before = self.ceiling
        all_began = self.begun == self.in_flight and not self.elsewhere
        self._places.began(now_ms - lease.taken_ms, self.in_flight, all_began, now_ms)
        self.ceiling = self._places.value
        if self.ceiling != before:
            self.surroundings.changed(self, now_ms)
        return self.ceiling > before

    def backpressure(self, retry_after_ms: float | None, now_ms: float) -> None:
        """It said busy. Not a fault: it is left alone for a moment, nothing more."""
        self._silence.broken(now_ms)
        self.busy.busy(retry_after_ms, self._rng, now_ms)
        self._places.busy(self.in_flight + 1, now_ms)
        self.ceiling = self._places.value
        if self.shared is not None:
            self.shared.busy(self, self.busy.until_ms, now_ms)
        self.surroundings.changed(self, now_ms)

    def report(
        self,
        now_ms: float,
        *,
        ready: bool | None = None,
        max_concurrency: int | None = None,
        queued: int | None = None,
        gpu_memory_ratio: float | None = None,
        loaded_models: frozenset[str] | None = None,
    ) -> None:
        """What a health probe found; None where it found nothing."""
        if ready is not None and ready != self.ready:
            self.ready = ready
            if ready:  # down and up again: worth a probe now, whatever the backoff
                self.breaker.hint()
        if max_concurrency is not None and max_concurrency >= 1:
            self._declare(max_concurrency)
        if queued is not None:
            self.queued = queued
        if gpu_memory_ratio is not None:
            self.gpu_memory_ratio = gpu_memory_ratio
        if loaded_models is not None:
            self.loaded_models = loaded_models
        self.surroundings.changed(self, now_ms)

    def update(self, spec: ReplicaSpec, now_ms: float) -> None:
        """New configuration under the same id. Leases in flight stay counted."""
        old = self.spec
        self.spec = spec
        self.weight = spec.weight
        if spec.max_concurrency != old.max_concurrency or spec.protocol is not old.protocol:
            self._declare(spec.max_concurrency)
        if spec.loaded_models != old.loaded_models:
            self.loaded_models = spec.loaded_models
        if spec.gpu_memory_ratio is not None:
            self.gpu_memory_ratio = spec.gpu_memory_ratio
        if self._process.is_replaced(spec, now_ms):
            self._forget()
        self.surroundings.changed(self, now_ms)

    def _declare(self, max_concurrency: int) -> None:
        self._places.declare(self.spec.protocol, max_concurrency)
        self.ceiling = self._places.value

    def _forget(self) -> None:
        self.breaker.forget()
        self.latency.forget()
        self.pace.succeeded()
        self.ready = True
        self.queued = 0
        self.slow_start.begin(self._process.started_ms, self.config.slow_start.ramp_ms)

    def _succeeded(self, elapsed_ms: float, now_ms: float) -> None:
        self.batches += 1
        self.last_success_ms = now_ms
        self._silence.broken(now_ms)
        self.latency.observe(elapsed_ms, now_ms)
        self.recent.record(elapsed_ms, now_ms)
        self.busy.free()
        self.pace.succeeded()
