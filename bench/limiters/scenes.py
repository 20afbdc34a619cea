"""Four scenes for a limit, and the best fixed limit of each, found by trying them.

capacity   twice the load, always; the workers slow down by half after 60 s, and recover
overload   thirty minutes of twice the load
bimodal    20 ms (90 %) beside 800 ms (10 %) at 0.9 of the capacity
device     the headline's accelerator at 120 to 400 requests/s, behind a plain EDF batcher
           that drops what is late, and behind the engine's own scheduler and planner

A request counts when it was answered within its deadline. The *best fixed limit* is the one
with the most of those; its *band* is every limit within 1 % of that, because over a wide
range they are the same and no policy should be blamed for which of them it picks.
"""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.limiters.fixed import FixedLimit
from bench.limiters.rig import Accelerator, Job, Run, Workers, drive
from bench.trace import published_trace
from engine.admission.gate import LimitFactory

SLO_MS = 1000.0
DEVICE_SLO_MS = 900.0
HALVED_MS = 60_000.0
DOUBLED_MS = 120_000.0
CAPACITY_END_MS = 180_000.0
_DRAIN_MS = 20_000.0
_MEAN_MS = 100.0
_FIXED = [20, 25, 32, 40, 50, 57, 64, 72, 80, 90, 100, 112, 125, 140, 160, 180, 200, 256]
_STAYS_MS = 5000.0


@dataclass(slots=True, frozen=True)
class Best:
    """The best fixed limit of a scene: its goodput, and the band of limits as good as it."""

    good_per_s: float
    low: float
    high: float

    def holds(self, limit: float) -> bool:
        """Within 20 % of a limit that is as good as the best."""
        return 0.8 * self.low <= limit <= 1.2 * self.high


def best_fixed(run: Callable[[LimitFactory], Run], seconds: float) -> Best:
    """Try fixed limits and keep the best and its band."""
    good = {limit: run(_fixed(limit)).good / seconds for limit in _FIXED}
    most = max(good.values())
    band = [limit for limit in _FIXED if good[limit] >= 0.99 * most]
    return Best(most, float(band[0]), float(band[-1]))


def capacity(
    policy: LimitFactory, seed: int, slowness: Callable[[float], float] | None = None
) -> Run:
    """20 workers of 100 ms: 200 requests/s, offered 400. Between 60 and 120 s half of it."""
    return drive(
        _poisson(400.0, _erlang, CAPACITY_END_MS, SLO_MS, seed),
        lambda loop: Workers(loop, 20, slowness or _slow_in_the_middle),
        policy,
        SLO_MS,
        until_ms=CAPACITY_END_MS,
    )


def settled_after_ms(run: Run, best: Best, change_ms: float) -> float | None:
    """How long after `change_ms` the limit came into the band of `best` and stayed 5 s."""
    times = [at_ms for at_ms, _, _ in run.track]
    first = bisect_left(times, change_ms)
    since_ms: float | None = None
    for at_ms, limit, _ in run.track[first:]:
        if not best.holds(limit):
            since_ms = None
        elif since_ms is None:
            since_ms = at_ms
        elif at_ms - since_ms >= _STAYS_MS:
            return since_ms - change_ms
    return None


def grown_after_ms(run: Run, limit: float, change_ms: float) -> float | None:
    """How long after `change_ms` the limit first came within 20 % of `limit`."""
    for at_ms, value, _ in run.track:
        if at_ms >= change_ms and 0.8 * limit <= value <= 1.2 * limit:
            return at_ms - change_ms
    return None


def overload(policy: LimitFactory, seed: int, until_ms: float) -> Run:
    """5 workers of 100 ms: 50 requests/s, offered 100."""
    return drive(
        _poisson(100.0, _erlang, until_ms, SLO_MS, seed),
        lambda loop: Workers(loop, 5),
        policy,
        SLO_MS,
        until_ms=until_ms,
    )


def bimodal(policy: LimitFactory, seed: int, until_ms: float, deadline_ms: float) -> Run:
    """32 workers; 20 ms or 800 ms a request, at 0.9 of what they can do."""
    return drive(
        _poisson(0.9 * 32.0 / 0.098, _short_or_long, until_ms, deadline_ms, seed),
        lambda loop: Workers(loop, 32),
        policy,
        SLO_MS,
        until_ms=until_ms,
    )


def device(policy: LimitFactory, seed: int, rate_per_s: float, duration_ms: float) -> Run:
    """The accelerator behind earliest deadline first; what is late is a drop."""
    trace = published_trace(rate_per_s, seed=seed, duration_ms=duration_ms)
    return drive(
        (Job(a.at_ms, float(a.tokens), a.deadline_ms) for a in trace),
        lambda loop: Accelerator(loop, random.Random(seed)),
        policy,
        DEVICE_SLO_MS,
        until_ms=duration_ms + _DRAIN_MS,
    )


def steady(slowness: float) -> Callable[[float], float]:
    """Workers that are always this much slower."""
    return lambda now_ms: slowness


def _slow_in_the_middle(now_ms: float) -> float:
    return 2.0 if HALVED_MS <= now_ms < DOUBLED_MS else 1.0


def _fixed(limit: float) -> LimitFactory:
    return lambda slo_ms: FixedLimit(limit)


def _poisson(
    rate_per_s: float,
    work: Callable[[random.Random], float],
    until_ms: float,
    deadline_ms: float,
    seed: int,
) -> Iterator[Job]:
    rng = random.Random(seed)
    at_ms = 0.0
    while (at_ms := at_ms + rng.expovariate(rate_per_s / 1000.0)) < until_ms:
        yield Job(at_ms, work(rng), at_ms + deadline_ms)


def _erlang(rng: random.Random) -> float:
    return _MEAN_MS / 4.0 * sum(rng.expovariate(1.0) for _ in range(4))


def _short_or_long(rng: random.Random) -> float:
    return 20.0 if rng.random() < 0.9 else 800.0
