"""A salted lottery: why a large request is not always the one that has to wait.

Goodput that counts requests rewards refusing big ones. With probability `share` a request is
weighed as if it were small, for scheduling only. The draw is a keyed hash of its identity,
so it is the same on every retry, needs no state, and nobody without the secret can grind
identities for a better place. It costs about 0.5 us, and nothing where the share is 0.
"""

from xxhash import xxh3_64_intdigest

from engine.errors import require_range

_FULL_SCALE = 2.0**64


class SizeLottery:
    """Draws for identities. `share` is the probability of winning, in [0, 1]."""

    __slots__ = ("_seed", "_threshold", "share")

    def __init__(self, share: float, secret: bytes) -> None:
        self.share = require_range("size_lottery", share, 0.0, 1.0)
        self._seed = xxh3_64_intdigest(secret)
        self._threshold = int(share * _FULL_SCALE)

    def wins(self, identity: str) -> bool:
        if self._threshold == 0:
            return False
        return xxh3_64_intdigest(identity.encode(), self._seed) < self._threshold
