"""A routing decision as data: who, by which rule, out of which candidates."""

from enum import StrEnum

from engine.routing.replica_state import ReplicaState


class Rule(StrEnum):
    """How a replica came to be chosen: a closed set."""

    TWO_CHOICES = "two_choices"  # the better of two random free replicas, by score
    LEAST_LOADED = "least_loaded"  # the same by load over health: update traffic
    ROUND_ROBIN = "round_robin"
    HOME = "home"  # affinity: one of the key's home replicas
    WARM = "warm"  # affinity: not home, but it has the model in memory
    SPILL = "spill"  # affinity: the homes are full, the next replica on the ring
    WIDENED = "widened"  # affinity: urgent, so the best of a wider set
    LET_GO = "let_go"  # affinity dropped: no candidate could make the deadline
    PROBE = "probe"  # half open: this request tests whether the replica is back


class RouteDecision:
    """One choice. `panic` says that ejections are suspended (see `panic`).

    `candidates` are named only when somebody reads the decision; of most nobody does.
    """

    __slots__ = ("panic", "replica", "rule", "scored")

    def __init__(
        self,
        replica: ReplicaState,
        rule: Rule,
        scored: tuple[tuple[ReplicaState, float], ...],
        panic: bool,
    ) -> None:
        self.replica = replica
        self.rule = rule
        self.scored = scored
        self.panic = panic

    @property
    def candidates(self) -> list[tuple[str, float]]:
        """Who was compared, with the score of each."""
        return [(replica.replica_id, score) for replica, score in self.scored]

    @property
    def numbers(self) -> dict[str, object]:
        """What else was known, for the decision record."""
        return {
            "inFlight": self.replica.in_flight,
            "ceiling": self.replica.ceiling,
            "panic": self.panic,
        }
