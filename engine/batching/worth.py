"""What is a request worth, and how good a use of the device is it?

    requests   each is worth its weight:         key = work / weight
    tokens     each is worth weight x its size:  key = draw(identity) / weight

The key orders the queues past saturation, the smallest first. Counting tokens makes every
size an equally good use of the device, so a keyed hash of the identity decides who is served
and keeps deciding the same: a queue that changed its mind would serve nobody in time.

Counting requests rewards refusing large ones. The *size lottery* keeps a floor for them:
with probability `size_lottery` a request is weighed as if it were small, for scheduling
only. Draws need no state, are the same on every retry, and nobody without the secret can
grind identities for a better place. A draw costs about 0.5 us, and none is made without need.
"""

from enum import StrEnum

from xxhash import xxh3_64_intdigest

from engine.batching.former import Queued
from engine.errors import require_range

_FULL_SCALE = 2.0**64


class Objective(StrEnum):
    """What a served request counts, before its tenant's weight."""

    REQUESTS = "requests"
    TOKENS = "tokens"


class Worth:
    """Weights and keys of entries. `size_lottery` is a probability, in [0, 1]."""

    __slots__ = ("_by_tokens", "_lottery", "_seed")

    def __init__(self, objective: Objective, size_lottery: float, secret: bytes) -> None:
        self._by_tokens = objective is Objective.TOKENS
        self._lottery = require_range("size_lottery", size_lottery, 0.0, 1.0)
        self._seed = xxh3_64_intdigest(secret)

    def weight(self, entry: Queued) -> float:
        """What serving it in time is worth."""
        return entry.weight * entry.work if self._by_tokens else entry.weight

    def key(self, entry: Queued, small_key: float) -> float:
        """Device work per worth. A lottery winner gets at most `small_key`."""
        if self._by_tokens:
            return self.draw(entry.identity()) / entry.weight
        key = entry.work / entry.weight
        if self._lottery > 0.0 and key > small_key and self.draw(entry.identity()) < self._lottery:
            return small_key
        return key

    def draw(self, identity: str) -> float:
        """A number in [0, 1) that depends on the identity and the secret alone."""
        return xxh3_64_intdigest(identity.encode(), self._seed) / _FULL_SCALE
