"""The knobs of a pool, checked where they are built."""

from dataclasses import dataclass, field

from engine.batching.cost_model import CostPrior
from engine.errors import require_range


@dataclass(slots=True, frozen=True, kw_only=True)
class PoolConfig:
    """`prior` is what a replica is believed to cost before it has run anything.
    `max_declined` bounds how many free replicas are offered the queue in one round."""

    prior: CostPrior = field(default_factory=CostPrior)
    max_declined: int = 4

    def __post_init__(self) -> None:
        require_range("max_declined", self.max_declined, 1, 64)
