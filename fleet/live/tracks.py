"""What each replica did lately, as this web process saw it: batches, and turns of its breaker.

A view carries the last batch of each replica; one that is new since the last second is kept,
so a busy replica's points are a sample of its batches, one a second. A breaker's turn is kept
with the second in which it was seen. Like the rings this is a view, not a record.
"""

from collections import deque
from typing import NamedTuple

from fleet.live.state import LiveState

BATCHES = 200  # a replica
TURNS = 60  # a replica


class Batch(NamedTuple):
    work: float  # in the unit of its cost model
    ms: float


class Turn(NamedTuple):
    at_ms: int
    state: str  # closed | half_open | open


class Track:
    """One replica's."""

    __slots__ = ("batches", "samples", "turns")

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque(maxlen=BATCHES)
        self.turns: deque[Turn] = deque(maxlen=TURNS)
        self.samples = 0


class Tracks:
    """The tracks of every replica that is still spoken of."""

    def __init__(self) -> None:
        self._tracks: dict[str, Track] = {}

    def add(self, at_ms: int, state: LiveState) -> None:
        """Remember what is new in this second."""
        tracks = self._tracks
        present = {}
        for replica in state["replicas"]:
            replica_id = replica["replicaId"]
            track = present[replica_id] = tracks.get(replica_id) or Track()
            turned = replica["breaker"]["state"]
            if not track.turns or track.turns[-1].state != turned:
                track.turns.append(Turn(at_ms, turned))
        for model in state["models"]:
            for version in model["versions"]:
                for cost in version["cost"]:
                    seen = present.get(cost["replicaId"])
                    last = cost.get("last")
                    if seen is None or last is None or cost["samples"] == seen.samples:
                        continue
                    seen.samples = cost["samples"]
                    seen.batches.append(Batch(last["work"], last["ms"]))
        self._tracks = present

    def batches(self, replica_id: str) -> list[Batch]:
        """Its batches, the oldest first."""
        track = self._tracks.get(replica_id)
        return list(track.batches) if track else []

    def turns(self, replica_id: str) -> list[Turn]:
        """The states of its breaker, each with the second in which it began to be seen."""
        track = self._tracks.get(replica_id)
        return list(track.turns) if track else []
