"""What has been arriving: a ring of the last few hundred requests of the interactive lane.

The slot planner reads from it how much work comes in per millisecond, how it is spread over
sizes, and how long the clients are willing to wait. One append a request, O(1).
"""

from collections import deque

_RING_SIZE = 512
_STALE_MS = 30_000.0  # older arrivals say nothing about the traffic of now


class ArrivalRing:
    """The last arrivals as (key, work, weight, relative deadline, time)."""

    __slots__ = ("items", "total")

    def __init__(self) -> None:
        self.items: deque[tuple[float, float, float, float, float]] = deque(maxlen=_RING_SIZE)
        self.total = 0

    def add(
        self, key: float, work: float, weight: float, patience_ms: float, now_ms: float
    ) -> None:
        self.items.append((key, work, weight, patience_ms, now_ms))
        self.total += 1

    def span_ms(self, now_ms: float) -> float:
        """The time that the ring covers, after forgetting what is stale; 0 where unknown."""
        items = self.items
        while items and now_ms - items[0][4] > _STALE_MS:
            items.popleft()
        if len(items) < 2:
            return 0.0
        # n arrivals after the first one took this long; scaled so that n / span is the rate
        return (now_ms - items[0][4]) * len(items) / (len(items) - 1)

    def rate_per_ms(self, now_ms: float) -> float:
        """Arrivals per ms over the ring; 0 where nothing is known."""
        span_ms = self.span_ms(now_ms)
        return len(self.items) / span_ms if span_ms > 0.0 else 0.0
