"""Where the batching benchmark's trials are run: one seed, traces made once."""

from collections.abc import Callable, Sequence

from bench.progress import Task
from bench.scores import score
from bench.trace import Arrival, published_trace
from bench.trial import Outcome, Truth, run_trial
from engine.batching.former import BatchFormer
from engine.batching.planner import GoodputPlanner, PlannerConfig
from engine.batching.worth import Objective

Row = dict[str, object]
Former = Callable[[], BatchFormer]

_SECRET = b"bench"
_KEPT_TRACES = 16


def planner(lottery: float = 0.0, objective: Objective = Objective.REQUESTS) -> Former:
    """The planner under test."""
    config = PlannerConfig(size_lottery=lottery, objective=objective)
    return lambda: GoodputPlanner(config, _SECRET)


class Stage:
    """Runs trials and keeps the traces it made."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._traces: dict[tuple[int, float], list[Arrival]] = {}

    def arrivals(self, rate_per_s: float, seed: int | None = None) -> list[Arrival]:
        key = (self.seed if seed is None else seed, rate_per_s)
        if key not in self._traces:
            if len(self._traces) >= _KEPT_TRACES:
                self._traces.clear()
            self._traces[key] = published_trace(rate_per_s, seed=key[0])
        return self._traces[key]

    def trial(
        self,
        former: Former,
        truth: Truth,
        arrivals: Sequence[Arrival],
        *,
        seed: int | None = None,
        timing_rounds: int = 0,
    ) -> Outcome:
        return run_trial(
            arrivals,
            former,
            truth=truth,
            seed=self.seed if seed is None else seed,
            timing_rounds=timing_rounds,
        )

    def row(
        self,
        name: str,
        former: Former,
        truth: Truth,
        task: Task,
        *,
        rate: float = 0.0,
        seed: int | None = None,
        trace: Sequence[Arrival] | None = None,
        timing_rounds: int = 0,
    ) -> Row:
        """One cell as a row. `rate` is per unit of speed; a trace brings its own."""
        speed = sum(truth.speeds)
        arrivals = self.arrivals(rate * speed, seed) if trace is None else trace
        outcome = self.trial(former, truth, arrivals, seed=seed, timing_rounds=timing_rounds)
        if trace is not None:
            rate = len(arrivals) / outcome.duration_s / speed
        task.advance()
        return score(name, rate, arrivals, outcome, speed)
