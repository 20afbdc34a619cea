"""One model version: its queue, its replicas, and what is known of their speed.

A fleet has one shared queue per version and its devices pull, each with a cost model of its
own over a shared prior. Pulling is what makes routing and batching one decision: the batch
is formed for the replica that will run it, at the moment it is free.
"""

from __future__ import annotations

from dataclasses import replace

from engine.batching.cost_model import CostModel, SharedPrior
from engine.batching.former import BatchFormer, BatchPlan, Device, Wait
from engine.routing.hedge import HedgePolicy
from engine.routing.replica_state import ReplicaState
from engine.routing.router import RouteDecision, Router, Rule
from engine.scheduling.device_of import device_of, places_of
from engine.scheduling.placing import place_batch, place_one
from engine.scheduling.pool_config import PoolConfig
from engine.scheduling.stream_yardstick import StreamYardstick
from engine.scheduling.streams import OutputLength, StreamTiming, stream_work
from engine.stats.sampled import SampledRates
from engine.stats.window import RotatingHistogram
from engine.types import FlushReason, Protocol, ReplicaSpec, Request, Strategy

__all__ = ["Pool", "PoolConfig"]

_FASTEST_EVERY_MS = 250.0
_STALE_COST_MS = 10_000.0


class Pool:
    """The queue and the replicas of one (model, version)."""

    __slots__ = (
        "_fastest",
        "_fastest_at_ms",
        "_priors",
        "_yardsticks",
        "batch_sizes",
        "batches",
        "config",
        "costs",
        "devices",
        "execution",
        "flush_reasons",
        "former",
        "hedging",
        "largest_batch",
        "largest_work",
        "last_success_ms",
        "latency",
        "model",
        "outputs",
        "per_request",
        "rates",
        "router",
        "served",
        "strategy",
        "streams",
        "timings",
        "version",
        "wait_ms",
        "wake_ms",
    )

    def __init__(
        self,
        model: str,
        version: str,
        former: BatchFormer,
        router: Router,
        hedging: HedgePolicy,
        config: PoolConfig,
        now_ms: float,
    ) -> None:
        self.model = model
        self.version = version
        self.former = former
        self.router = router
        self.hedging = hedging
        self.config = config
        self.strategy = Strategy.PEAK_EWMA
        self.largest_batch = 0
        self.largest_work = 0.0
        self.streams = False  # sizes are prompt and output tokens, see `streams`
        self.per_request = False  # every batch is one request: streams, not batches
        self.costs: dict[str, CostModel] = {}
        self.devices: dict[str, Device] = {}
        self._priors: dict[str, SharedPrior] = {}
        self._yardsticks: dict[str, StreamYardstick] = {}
        self._fastest: CostModel | None = None
        self._fastest_at_ms = 0.0
        self.wake_ms: float | None = None
        self.wait_ms: float | None = None
        self.last_success_ms: float | None = None
        self.batches = 0
        self.batch_sizes = 0
        self.flush_reasons: dict[FlushReason, int] = {}
        self.outputs = OutputLength()
        self.timings: dict[str, StreamTiming] = {}
        self.served = 0
        self.rates = SampledRates(10_000.0, 1, now_ms)
        self.latency = RotatingHistogram(60_000.0, 12)
        self.execution = RotatingHistogram(60_000.0, 12)

    # -- configuration ---------------------------------------------------------------

    def configure(self, states: list[ReplicaState], strategy: Strategy, now_ms: float) -> None:
        """Take the replicas of this version as they are now; cost models survive."""
        self.strategy = strategy
        costs: dict[str, CostModel] = {}
        devices: dict[str, Device] = {}
        for state in states:
            spec = state.spec
            cost = self.costs.get(spec.replica_id)
            if cost is None or cost.unit is not spec.work_unit:
                cost = self._prior_of(spec).new_model()
            costs[spec.replica_id] = cost
            devices[spec.replica_id] = device_of(spec, cost)
        self.timings = {r: self.timings.get(r) or StreamTiming() for r in devices}
        self.costs = costs
        self.devices = devices
        self.largest_batch = max((places_of(state.spec) for state in states), default=0)
        self.per_request = self.largest_batch == 1
        self.largest_work = max((d.max_batch_work for d in devices.values()), default=0.0)
        self.streams = any(s.spec.protocol is Protocol.OPENAI for s in states)
        self.router.set_replicas(states, now_ms)
        self.former.set_devices(list(devices.values()), now_ms)
        self._fastest = None

    def _prior_of(self, spec: ReplicaSpec) -> SharedPrior:
        key = f"{spec.accelerator}/{spec.work_unit}"
        prior = self._priors.get(key)
        if prior is None:
            prior = self._priors[key] = SharedPrior(spec.work_unit, self.config.prior)
        return prior

    # -- asking ----------------------------------------------------------------------

    def fastest(self, now_ms: float) -> CostModel | None:
        """The cost model of the replica that runs a typical request soonest; None if empty."""
        if self._fastest is None or now_ms - self._fastest_at_ms > _FASTEST_EVERY_MS:
            self._fastest = min(
                self.costs.values(), key=lambda c: c.predict_ms(200.0, 1, 200.0), default=None
            )
            self._fastest_at_ms = now_ms
        return self._fastest

    def work_of(self, request: Request) -> float:
        """The size that the planner and the cost model see."""
        if self.streams:
            expected = self.outputs.expected(request.max_output_tokens)
            return stream_work(request.prompt_tokens, expected)
        return float(request.prompt_tokens)

    def first_token_ms(self) -> float | None:
        """Time to first token of the quickest replica, where it has been measured."""
        known = [t.first_token_ms for t in self.timings.values() if t.first_token_ms is not None]
        return min(known, default=None)

    def alone_ms(self, work: float, now_ms: float) -> float:
        """How long a request of this size takes alone on the fastest replica, in ms."""
        fastest = self.fastest(now_ms)
        return 0.0 if fastest is None else fastest.predict_ms(work, 1, work)

    def trusts_its_costs(self, now_ms: float) -> bool:
        """Whether predictions may refuse work: only while completions keep them honest.

        A model that refuses everything gets no sample and can never be corrected, so a
        prediction that no completion confirmed lately must not turn anyone away.
        """
        seen = self.last_success_ms
        return seen is not None and now_ms - seen < _STALE_COST_MS

    def reference_ms(self, spec: ReplicaSpec, work: float, count: int, longest: float) -> float:
        """What this version costs on that class of hardware: the yardstick of the evidence."""
        return self._prior_of(spec).predict_ms(work, count, longest)

    def yardstick(self, spec: ReplicaSpec) -> StreamYardstick:
        """What a stream of this version takes on that class of hardware."""
        found = self._yardsticks.get(spec.accelerator)
        if found is None:
            found = self._yardsticks[spec.accelerator] = StreamYardstick()
        return found

    def expected_wait_ms(self, now_ms: float) -> tuple[float, float]:
        """How long a newcomer waits before its batch leaves, and the deviation of its finish.

        The queue drains in rounds of one batch a replica; a newcomer without a free replica
        also waits for half a round on average.
        """
        queued = len(self.former)
        fastest = self.fastest(now_ms)
        if fastest is None:
            return 0.0, 0.0
        numbers = self.former.numbers()
        work = numbers.get("queued_work")
        mean = work / queued if queued and isinstance(work, float) else 0.0
        places = max(device.max_batch_size for device in self.devices.values())
        size = max(1, min(queued, places))
        round_ms = fastest.predict_ms(mean * size, size, mean)
        rounds = queued / (places * len(self.devices))
        if self.router.utilisation(now_ms) >= 1.0:
            rounds += 0.5
        spread_ms = round_ms * rounds / 3.0
        return rounds * round_ms, float((spread_ms**2 + fastest.deviation_ms**2) ** 0.5)

    def limit_batch(self, spec: ReplicaSpec, size: int, now_ms: float) -> None:
        """A self-regulating replica asks for batches of at most `size` from now on."""
        device = self.devices.get(spec.replica_id)
        size = max(1, min(size, places_of(spec)))
        if device is None or device.max_batch_size == size:
            return
        self.devices[spec.replica_id] = Device(
            replica_id=device.replica_id,
            cost=device.cost,
            max_batch_size=size,
            max_batch_work=device.max_batch_work,
        )
        self.former.set_devices(list(self.devices.values()), now_ms)

    # -- batches ---------------------------------------------------------------------

    def next_batch(self, now_ms: float) -> tuple[ReplicaState, BatchPlan, RouteDecision] | None:
        """The next batch that should leave now, or None (then `wait_ms` says when to ask)."""
        former = self.former
        router = self.router
        self.wait_ms = None
        declined: tuple[str, ...] = ()
        home = self.model if self.strategy is Strategy.AFFINITY else None  # where it is warm
        while len(former) > 0 and len(declined) <= self.config.max_declined:
            route = router.pick(
                now_ms, tried=declined, strategy=self.strategy, key=home, model=home
            )
            if route is None:
                return None
            state = route.replica
            replica_id = state.spec.replica_id
            device = self.devices[replica_id]
            if route.rule is Rule.PROBE:  # it may well fail: let it cost one client, not a batch
                device = replace(device, max_batch_size=1)
            plan = former.form(device, now_ms)
            if isinstance(plan, BatchPlan):
                if self.per_request:
                    return place_one(self, plan, route, now_ms)
                if route.rule is not Rule.PROBE:
                    return place_batch(self, plan, route, now_ms)
                return state, plan, route
            if isinstance(plan, Wait):
                self.wait_ms = plan.until_ms
                return None
            declined = (*declined, replica_id)
        return None

    def count_batch(self, plan: BatchPlan) -> None:
        self.batches += 1
        self.batch_sizes += len(plan.members)
        self.flush_reasons[plan.reason] = self.flush_reasons.get(plan.reason, 0) + 1
