"""A rate that costs its subject nothing: totals, looked at now and then.

    rate = (total now - total at the oldest sample within the span) / time between

The hot path adds to plain integers; whoever wants a rate calls `sample` when it looks. Once
a second is enough for a span of ten. Before two samples exist there is no rate to tell, and
the difference to the start is used instead.
"""

from collections import deque
from collections.abc import Sequence

from engine.errors import require_positive

_SPACING = 20.0  # at most this many samples are kept for a span


class SampledRates:
    """Rates per second of some totals over the last `span_ms`."""

    __slots__ = ("_samples", "_span_ms")

    def __init__(self, span_ms: float, width: int, now_ms: float) -> None:
        self._span_ms = require_positive("span_ms", span_ms, unit="ms")
        self._samples: deque[tuple[float, tuple[float, ...]]] = deque([(now_ms, (0.0,) * width)])

    def sample(self, totals: Sequence[float], now_ms: float) -> list[float]:
        """Look at the totals; returns their rates per second."""
        samples = self._samples
        if now_ms - samples[-1][0] >= self._span_ms / _SPACING:
            samples.append((now_ms, tuple(totals)))
        while len(samples) > 2 and now_ms - samples[1][0] >= self._span_ms:
            samples.popleft()
        at_ms, before = samples[0]
        span_s = max(now_ms - at_ms, self._span_ms / _SPACING) / 1000.0
        return [(total - old) / span_s for total, old in zip(totals, before, strict=True)]
