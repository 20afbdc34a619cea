"""Graded ceilings: who is refused first when the limit is reached?

    ceiling(p) = L - min((1 - ratio(p)) x L, recent demand of the priorities above p)

with ratio = 0.70, 0.85, 0.95, 1 from the lowest to the highest. Each priority leaves room
for those above it, so under contention the highest is refused last; but only as much room
as they have lately used. With nobody above it, a lone low-priority tenant has the whole
limit: a static share would idle 30 % of the fleet for a rival who is not there.

Demand is the largest number in flight of the higher priorities, halved each second
without them. It is counted in requests, like the limit.
"""

from engine.types import Priority

RATIOS = (0.70, 0.85, 0.95, 1.0)


def ceiling(priority: Priority | int, limit: float, demand_above: float = float("inf")) -> float:
    """The most that may be in flight when a request of `priority` comes in.

    `demand_above` is the recent demand of higher priorities; by default as much as there is
    room for, which gives the ceiling under full contention.
    """
    return limit - min((1.0 - RATIOS[priority]) * limit, demand_above)
