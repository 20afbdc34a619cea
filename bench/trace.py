"""The published trace, request for request, and any trace from a file.

One accelerator's open-loop arrivals: Poisson in time, log-normal in size (mean 182 tokens),
30 % urgent (120 ms) and 70 % relaxed (900 ms). The generator is mulberry32, seeded 0xC0FFEE
for the published trace; each request takes four draws, in this order: gap, two for the size
(Box-Muller), cohort. Times are ms from the start; deadlines are absolute.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.errors import InvalidInput, require_positive

PUBLISHED_SEED = 0xC0FFEE
URGENT_MS = 120.0
RELAXED_MS = 900.0
_URGENT_RATIO = 0.3
_MASK = 0xFFFFFFFF


@dataclass(slots=True)
class Arrival:
    """One request of a trace."""

    at_ms: float
    tokens: int
    deadline_ms: float

    @property
    def urgent(self) -> bool:
        """Belongs to the tighter cohort: less than half a second to answer."""
        return self.deadline_ms - self.at_ms < 500.0


def mulberry32(seed: int) -> Callable[[], float]:
    """A generator of uniform draws in [0, 1), 32 bits of state."""
    state = seed & _MASK

    def draw() -> float:
        nonlocal state
        state = (state + 0x6D2B79F5) & _MASK
        t = ((state ^ (state >> 15)) * (1 | state)) & _MASK
        t = ((t + (((t ^ (t >> 7)) * (61 | t)) & _MASK)) & _MASK) ^ t
        return (t ^ (t >> 14)) / 4294967296.0

    return draw


def published_trace(
    rate_per_s: float, *, seed: int = PUBLISHED_SEED, duration_ms: float = 120_000.0
) -> list[Arrival]:
    """The arrivals of `duration_ms` at `rate_per_s`."""
    require_positive("rate_per_s", rate_per_s, unit="requests/s")
    draw = mulberry32(seed)
    arrivals: list[Arrival] = []
    now_ms = 0.0
    while True:
        now_ms += -math.log(1.0 - draw()) * 1000.0 / rate_per_s
        radius = math.sqrt(-2.0 * math.log(max(draw(), 1e-12)))
        z = radius * math.cos(2.0 * math.pi * draw())
        urgent = draw() < _URGENT_RATIO
        if now_ms >= duration_ms:
            return arrivals
        tokens = min(max(round(math.exp(4.8 + 0.9 * z)), 16), 4096)
        arrivals.append(Arrival(now_ms, tokens, now_ms + (URGENT_MS if urgent else RELAXED_MS)))


def read_trace(path: Path) -> list[Arrival]:
    """Read JSON lines `{"arrivalMs", "tokens", "deadlineMs"}`, the deadline absolute."""
    arrivals: list[Arrival] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path.name}:{number}"
        try:
            record = json.loads(line)
            arrival = Arrival(
                float(record["arrivalMs"]), int(record["tokens"]), float(record["deadlineMs"])
            )
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidInput(
                where, line[:80], 'must be {"arrivalMs", "tokens", "deadlineMs"} as numbers'
            ) from error
        require_positive(f"{where} tokens", arrival.tokens)
        if not arrival.deadline_ms > arrival.at_ms >= 0.0:
            raise InvalidInput(where, line[:80], "needs deadlineMs > arrivalMs >= 0")
        arrivals.append(arrival)
    if not arrivals:
        raise InvalidInput("trace", str(path.name), "holds no requests")
    arrivals.sort(key=lambda arrival: arrival.at_ms)
    return arrivals
