"""Power of two choices: draw two free replicas at random, take the better.

Two random draws are enough to make the fullest replica exponentially unlikely, cost the same
for ten replicas and for ten thousand, and, unlike "take the best", do not send every gateway
to the same replica at the same time (Mitzenmacher 1996).

Scores within 10 % of each other are a tie and a coin decides: latencies of equal replicas
always differ in the last digit, and without the coin the luckiest gets half of everything.
So it does for an idle replica that was never measured: its 1.5 medians lose every comparison
while traffic is low, and so it never would be. A winner in slow start is taken only as often
as its ramp allows, unless it is the only one.
"""

import random
from collections.abc import Callable

from engine.routing.replica_state import ReplicaState

TIE_RATIO = 0.10

Rate = Callable[[ReplicaState, float], float]
Scored = tuple[tuple[ReplicaState, float], ...]


def choose(
    free: list[ReplicaState],
    tried: tuple[str, ...],
    rate: Rate,
    rng: random.Random,
    now_ms: float,
) -> tuple[ReplicaState, Scored] | None:
    """The better of two random members of `free` that are not in `tried`, and both scores."""
    if tried:
        pair = _untried(free, tried, rng)
        if not pair:
            return None
        first, second = pair[0], pair[-1]
    else:
        n = len(free)
        if n == 0:
            return None
        i = int(rng.random() * n)
        first = second = free[i]
        if n > 1:
            second = free[i - 1 - int(rng.random() * (n - 1))]
    first_score = rate(first, now_ms)
    if first is second:
        return first, ((first, first_score),)
    second_score = rate(second, now_ms)
    difference = first_score - second_score
    tie = TIE_RATIO * first_score
    if (difference < -tie) or (difference <= tie and rng.random() < 0.5):
        winner, loser = first, second
    else:
        winner, loser = second, first
    if loser.latency.value_ms is None and loser.in_flight == 0 and rng.random() < 0.5:
        winner, loser = loser, winner
    slow_start = winner.slow_start
    if now_ms < slow_start.until_ms and rng.random() >= slow_start.ratio(now_ms):
        winner = loser
    return winner, ((first, first_score), (second, second_score))


def _untried(
    free: list[ReplicaState], tried: tuple[str, ...], rng: random.Random
) -> list[ReplicaState]:
    """Up to two members not in `tried`, from a random place on: O(length of `tried`)."""
    n = len(free)
    start = int(rng.random() * n)
    found: list[ReplicaState] = []
    for step in range(min(n, len(tried) + 2)):
        replica = free[(start + step) % n]
        if replica.replica_id not in tried:
            found.append(replica)
            if len(found) == 2:
                break
    return found
