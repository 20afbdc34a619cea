"""The knobs of the planner, checked where they are built."""

from dataclasses import dataclass, field

from engine.batching.lanes import LaneConfig
from engine.batching.worth import Objective
from engine.errors import require_positive, require_range


@dataclass(slots=True, frozen=True, kw_only=True)
class PlannerConfig:
    """Knobs of the planner.

    `overrun_ratio` is how much longer than the slot a batch may be if every member still
    makes its deadline. `size_lottery` is the probability that a request is weighed as if it
    were small: 0 serves the most requests, 0.1 keeps a floor for large ones.
    """

    objective: Objective = Objective.REQUESTS
    size_lottery: float = 0.1
    overrun_ratio: float = 1.4
    replan_ms: float = 500.0
    lanes: LaneConfig = field(default_factory=LaneConfig)

    def __post_init__(self) -> None:
        require_range("size_lottery", self.size_lottery, 0.0, 1.0)
        require_range("overrun_ratio", self.overrun_ratio, 1.0, 4.0)
        require_positive("replan_ms", self.replan_ms, unit="ms")
