"""Who asks for what, and when: arrival processes, sizes, deadlines, sessions.

Everything is a generator over an injected `random.Random`, so a workload is a pure function
of its seed and costs no memory however long it runs.

    poisson(rate)                    a steady open loop
    mmpp([(rate, dwell), ...])       bursts: a Poisson process whose rate jumps (Markov)
    requests(times, mix, rng)        each arrival with a size, a deadline and a session

`HEADLINE` is the mix of the headline benchmark: log-normal sizes of mean 182 tokens, 30 %
urgent (120 ms) and 70 % relaxed (900 ms). Rates are per second, times ms.
"""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from engine.errors import InvalidInput, require_positive, require_range


@dataclass(slots=True)
class Offered:
    """One request of a workload. `deadline_ms` is absolute."""

    at_ms: float
    tokens: int
    deadline_ms: float
    session: str | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class SizeMix:
    """Log-normal sizes: round(exp(mu + sigma z)), clamped to [least, most] tokens."""

    mu: float = 4.8
    sigma: float = 0.9
    least: int = 16
    most: int = 4096

    def __post_init__(self) -> None:
        require_range("sigma", self.sigma, 0.0, 5.0)
        require_range("least", self.least, 1)
        require_range("most", self.most, self.least)

    def draw(self, rng: random.Random) -> int:
        tokens = round(math.exp(self.mu + self.sigma * rng.gauss(0.0, 1.0)))
        return min(max(tokens, self.least), self.most)


@dataclass(slots=True, frozen=True, kw_only=True)
class Mix:
    """Sizes, and classes of deadlines as (share, ms). `sessions` is how many distinct clients
    there are (None: no sessions), drawn by a Zipf law of exponent `zipf` (0: equally)."""

    sizes: SizeMix = field(default_factory=SizeMix)
    deadlines: tuple[tuple[float, float], ...] = ((0.3, 120.0), (0.7, 900.0))
    sessions: int | None = None
    zipf: float = 0.0

    def __post_init__(self) -> None:
        total = sum(share for share, _ in self.deadlines)
        if abs(total - 1.0) > 1e-9:
            raise InvalidInput("deadlines", self.deadlines, "the shares must add up to 1")
        for _, deadline_ms in self.deadlines:
            require_positive("deadlines", deadline_ms, unit="ms")

    def deadline_ms(self, rng: random.Random) -> float:
        draw = rng.random()
        for share, deadline_ms in self.deadlines:
            draw -= share
            if draw < 0.0:
                return deadline_ms
        return self.deadlines[-1][1]


HEADLINE = Mix()


def poisson(rate_per_s: float, rng: random.Random, until_ms: float) -> Iterator[float]:
    """Arrival times of a Poisson process, up to `until_ms`."""
    require_positive("rate_per_s", rate_per_s, unit="requests/s")
    now_ms = 0.0
    per_ms = rate_per_s / 1000.0
    while (now_ms := now_ms + rng.expovariate(per_ms)) < until_ms:
        yield now_ms


def mmpp(
    states: Sequence[tuple[float, float]], rng: random.Random, until_ms: float
) -> Iterator[float]:
    """Arrival times of a process that dwells in each (rate per s, mean dwell ms) in turn."""
    if not states:
        raise InvalidInput("states", states, "needs at least one (rate, dwell)")
    for _, dwell_ms in states:
        require_positive("dwell_ms", dwell_ms, unit="ms")
    start_ms = 0.0
    while start_ms < until_ms:
        for rate_per_s, mean_dwell_ms in states:
            end_ms = min(start_ms + rng.expovariate(1.0 / mean_dwell_ms), until_ms)
            now_ms = start_ms
            while rate_per_s > 0.0:
                now_ms += rng.expovariate(rate_per_s / 1000.0)
                if now_ms >= end_ms:
                    break
                yield now_ms
            start_ms = end_ms


def requests(times: Iterable[float], mix: Mix, rng: random.Random) -> Iterator[Offered]:
    """Give each arrival a size, a deadline and a session."""
    cumulative: list[float] = []
    if mix.sessions is not None:
        total = 0.0
        for rank in range(1, mix.sessions + 1):
            total += rank**-mix.zipf
            cumulative.append(total)
    population = range(len(cumulative))
    for at_ms in times:
        session = None
        if cumulative:
            session = f"s{rng.choices(population, cum_weights=cumulative)[0]}"
        yield Offered(at_ms, mix.sizes.draw(rng), at_ms + mix.deadline_ms(rng), session)
