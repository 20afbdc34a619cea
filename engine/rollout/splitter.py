"""Which arm serves this session?

    point = xxh3_64(salt + NUL + session key) / 2^64, in [0, 1)
    canary where point < canary_ratio

The same session lands on the same point in every gateway, in every process, for as long as
the rollout's salt lives. Arms are nested thresholds on one point, so widening keeps everyone
who is on the canary and narrowing removes only the last added. A new rollout gets a new salt:
without it the same sessions would be the guinea pigs of every release, and the effects of
one release would be read as those of the next.

The point is returned too: it is what explains the decision, and its low bits are an
independent uniform number that `evidence` uses to estimate how many sessions it saw.
"""

from xxhash import xxh3_64_intdigest

from engine.types import Arm, SplitSpec

_TO_UNIT = 2.0**-53


def point_of(salt: str, session_key: str) -> float:
    """Where this session lies in [0, 1) for this salt: stable, uniform, 53 bits."""
    return (xxh3_64_intdigest(f"{salt}\0{session_key}".encode()) >> 11) * _TO_UNIT


def assign(split: SplitSpec, session_key: str) -> tuple[Arm, float]:
    """The arm of this session under `split`, and the point that decided it."""
    point = (xxh3_64_intdigest(f"{split.salt}\0{session_key}".encode()) >> 11) * _TO_UNIT
    if point < split.canary_ratio and split.canary is not None:
        return Arm.CANARY, point
    return Arm.BASELINE, point
