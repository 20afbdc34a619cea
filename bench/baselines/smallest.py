"""The smallest request first, as long as it is feasible: close to the best past saturation.

It serves many by serving the small, whenever they are due: at a load that could be carried
whole it still starves the large ones, and it lets urgent ones wait behind smaller others.
"""

from bench.baselines.deadline import EarliestDeadlineFeasible
from engine.batching.former import Queued


class SmallestFeasible(EarliestDeadlineFeasible):
    """Sorted by size instead of by deadline."""

    def key(self, entry: Queued) -> float:
        return entry.work
