"""The schedulers to beat, each a `BatchFormer`, so that they run inside the same `Scheduler`.

`BASELINES` names them in the order of the table. They see the same queue, the same learned
cost models and the same devices as the planner; only the rule differs.
"""

from collections.abc import Callable

from bench.baselines.deadline import EarliestDeadlineFeasible
from bench.baselines.fifo import FixedBatches, NoBatching
from bench.baselines.flush import FlushRules
from bench.baselines.smallest import SmallestFeasible
from engine.batching.former import BatchFormer

BASELINES: dict[str, Callable[[], BatchFormer]] = {
    "none": NoBatching,
    "fixed": lambda: FixedBatches(size=32, linger_ms=25.0, max_queue=512),
    "fixed_tuned": lambda: FixedBatches(size=32, linger_ms=25.0, max_queue=100),
    "original": FlushRules,
    "edf_feasible": EarliestDeadlineFeasible,
    "smallest_feasible": SmallestFeasible,
}

__all__ = ["BASELINES"]
