"""Could the canary's replicas carry the next step at all?

    w_max = capacity of the canary's ready replicas x rho / offered rate

A version that is fine but has one replica of three cannot carry 60 % of the traffic: its
queue grows, its deadlines pass, and a judge that sees only latencies rolls back a good
release. So a step above w_max is not taken, and sheds and deadline misses at a weight above
w_max are nobody's evidence. What is not known limits nothing: None is not zero.
"""

from dataclasses import dataclass
from math import ceil

from engine.rollout.policy import RolloutPolicy


@dataclass(slots=True, frozen=True, kw_only=True)
class CapacityFacts:
    """What the fleet looked like in this window. Rates are requests per second.

    `canary_per_s` is what all ready canary replicas can serve at full utilisation,
    `offered_per_s` what both arms together were offered. None where nobody knows.
    """

    canary_ready: int | None = None
    canary_per_s: float | None = None
    offered_per_s: float | None = None

    def to_json(self) -> dict[str, float | int | None]:
        return {
            "canary_ready": self.canary_ready,
            "canary_per_s": self.canary_per_s,
            "offered_per_s": self.offered_per_s,
        }

    @classmethod
    def from_json(cls, data: dict[str, float | int | None]) -> "CapacityFacts":
        ready = data.get("canary_ready")
        return cls(
            canary_ready=None if ready is None else int(ready),
            canary_per_s=data.get("canary_per_s"),
            offered_per_s=data.get("offered_per_s"),
        )


UNKNOWN = CapacityFacts()


def largest_ratio(facts: CapacityFacts, policy: RolloutPolicy) -> float | None:
    """w_max in [0, 1], or None where capacity or demand is not known."""
    if facts.canary_ready == 0:
        return 0.0
    if facts.canary_per_s is None or not facts.offered_per_s:
        return None
    return min(facts.canary_per_s * policy.capacity_rho / facts.offered_per_s, 1.0)


def replicas_needed(ratio: float, facts: CapacityFacts, policy: RolloutPolicy) -> int | None:
    """How many canary replicas would carry `ratio`; None where one's capacity is not known."""
    if not facts.canary_ready or not facts.canary_per_s or not facts.offered_per_s:
        return None
    each = facts.canary_per_s / facts.canary_ready
    return ceil(ratio * facts.offered_per_s / (each * policy.capacity_rho) - 1e-9)
