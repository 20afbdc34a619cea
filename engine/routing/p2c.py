"""Power of two choices: draw two free replicas at random, take the better.

Two random draws are enough to make the fullest replica exponentially unlikely, cost the same
for ten replicas and for ten thousand, and, unlike "take the best", do not send every gateway
to the same replica at the same time (Mitzenmacher 1996).

Scores within 10 % of each other are a tie and a coin decides: latencies of equal replicas
always differ in the last digit, and without the coin the luckiest gets half of everything.
A winner in slow start is taken only as often as its ramp allows, unless it is the only one.
"""

import random
from collections.abc import Callable

from engine.routing.replica_state import ReplicaState

TIE_RATIO = 0.10

Rate = Callable[[ReplicaState, float], float]
Choice = tuple[ReplicaState, list[tuple[str, float]]]


def choose(
    free: list[ReplicaState],
    tried: tuple[str, ...],
    rate: Rate,
    rng: random.Random,
    now_ms: float,
) -> Choice | None:
    """The better of two random members of `free` that are not in `tried`, and both scores."""
    n = len(free)
    if tried:
        pair = _untried(free, tried, rng)
        if not pair:
            return None
        first = pair[0]
        second = pair[-1]
    elif n == 0:
        return None
    else:
        i = int(rng.random() * n)
        first = second = free[i]
        if n > 1:
            j = int(rng.random() * (n - 1))
            second = free[j if j < i else j + 1]
    first_score = rate(first, now_ms)
    if first is second:
        return first, [(first.spec.replica_id, first_score)]
    second_score = rate(second, now_ms)
    scores = [(first.spec.replica_id, first_score), (second.spec.replica_id, second_score)]
    if abs(first_score - second_score) <= TIE_RATIO * max(first_score, second_score):
        first_wins = rng.random() < 0.5
    else:
        first_wins = first_score < second_score
    winner, loser = (first, second) if first_wins else (second, first)
    if now_ms < winner.slow_start.until_ms and rng.random() >= winner.slow_start.ratio(now_ms):
        winner = loser
    return winner, scores


def _untried(
    free: list[ReplicaState], tried: tuple[str, ...], rng: random.Random
) -> list[ReplicaState]:
    """Up to two members not in `tried`, from a random place on: O(length of `tried`)."""
    n = len(free)
    start = int(rng.random() * n)
    found: list[ReplicaState] = []
    for step in range(min(n, len(tried) + 2)):
        replica = free[(start + step) % n]
        if replica.spec.replica_id not in tried:
            found.append(replica)
            if len(found) == 2:
                break
    return found
