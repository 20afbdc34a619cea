"""A simulated rollout, window by window: what two arms of a fleet would have counted.

Execution / predicted time is log-normal (sd `SPREAD` in log, median 1; `slowdown` multiplies
the canary's). Each window shifts an arm's log latency by N(0, noise) around zero, an AR(1)
sequence over the windows; half of its variance is common to both arms (the network, the
upstream, the hour), half is the arm's own. Counts come from the exact distributions
(Poisson arrivals, binomial exceedances at the histogram's own bucket edges), so a run costs
microseconds a window and the judge under test is the real one.

With `session_sd`, latency also depends on who asks: each of `SESSIONS` concurrent sessions
has its own factor and comes back in every window until it leaves, so that the arms differ
by the luck of the draw for as long as the same sessions stay.
"""

from dataclasses import dataclass, field
from math import erfc, exp, log, sqrt

import numpy as np
import numpy.typing as npt

from engine.rollout.calibration import Calibration, calibrate
from engine.rollout.counts import WindowCounts
from engine.rollout.policy import RolloutPolicy
from engine.stats.histogram import RELATIVE_ERROR, LogHistogram, bucket_of

SPREAD = 0.3
SESSIONS = 1000
SESSION_CHURN = 0.1  # share of the sessions that leave in each window
HISTORY_WINDOWS = 60
_LOG_GROWTH = log((1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR))
_TAIL = np.arange(8, 160)  # everything faster shares one bucket: only the tail is asked for
_GRID = np.linspace(-9.0, 9.0, 7201)
_CDF = np.array([0.5 * erfc(-z / sqrt(2.0)) for z in _GRID.tolist()])

Floats = npt.NDArray[np.float64]


@dataclass(slots=True, frozen=True, kw_only=True)
class World:
    """What is true of a simulated fleet. `slowdown` 0.2 means that the canary is 20 % slower."""

    rate_per_s: float
    window_s: float = 10.0
    noise: float = 0.0
    autocorrelation: float = 0.0
    slowdown: float = 0.0
    canary_fault_ratio: float = 0.0
    baseline_fault_ratio: float = 0.0
    session_sd: float = 0.0
    disturbance: float = 0.0  # how much slower everything was before the rollout
    common: float = 0.5  # share of the noise variance that both arms feel alike


@dataclass(slots=True)
class Fleet:
    """One simulated fleet with its randomness."""

    world: World
    rng: np.random.Generator
    _common: float = 0.0
    _own: list[float] = field(default_factory=lambda: [0.0, 0.0])
    _points: Floats = field(default_factory=lambda: np.empty(0))
    _effects: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        world, rng = self.world, self.rng
        self._common = rng.normal() * world.noise * sqrt(world.common)
        self._own = [rng.normal() * world.noise * sqrt(1.0 - world.common) for _ in range(2)]
        if world.session_sd:
            self._points = rng.random(SESSIONS)
            self._effects = rng.normal(size=SESSIONS) * world.session_sd

    def history(self) -> Calibration | None:
        """The baseline alone, before the rollout: real histograms, really calibrated."""
        return self.calibration(HISTORY_WINDOWS, self.world.disturbance)

    def calibration(self, length: int, disturbance: float = 0.0) -> Calibration | None:
        """What so many windows of the baseline support."""
        world = self.world
        shifts = np.array([self._next_shifts()[0] for _ in range(length)]) + log(1.0 + disturbance)
        counts = self.rng.poisson(world.rate_per_s * world.window_s, length)
        spread = sqrt(SPREAD**2 + world.session_sd**2)
        edges = (_TAIL * _LOG_GROWTH)[None, :] - shifts[:, None]
        cdf = np.interp(edges / spread, _GRID, _CDF)
        cdf[:, -1] = 1.0
        pmf = np.diff(cdf, axis=1, prepend=0.0)
        drawn = self.rng.multinomial(counts, pmf)
        windows = []
        for row in drawn:
            hit = np.flatnonzero(row)
            buckets = zip(_TAIL[hit].tolist(), row[hit].tolist(), strict=True)
            windows.append(LogHistogram.from_sparse(dict(buckets)))
        return calibrate(windows)

    def window(
        self, seq: int, ratio: float, threshold: float, policy: RolloutPolicy
    ) -> WindowCounts:
        """One window with the canary at `ratio`."""
        world, rng = self.world, self.rng
        base_shift, canary_shift = self._next_shifts()
        canary_shift += log(1.0 + world.slowdown)
        arrivals = world.rate_per_s * world.window_s
        share = ratio
        if world.session_sd and ratio < 1.0:
            share = float((self._points < ratio).mean())
        nc, nb = int(rng.poisson(arrivals * share)), int(rng.poisson(arrivals * (1.0 - share)))
        edges = [
            bucket_of(threshold * factor) * _LOG_GROWTH
            for factor in (
                1.0,
                1.0 + policy.tolerated_slowdown_ratio,
                1.0 + policy.non_inferiority_ratio,
            )
        ]
        base_p = self._above(edges[0], base_shift, ratio, canary=False)
        slow_p = self._above(edges[1], canary_shift, ratio, canary=True)
        slower_p = self._above(edges[2], canary_shift, ratio, canary=True)
        half = nb // 2
        half_slow = int(rng.binomial(half, base_p))
        slow_baseline = half_slow + int(rng.binomial(nb - half, base_p))
        slow_canary = int(rng.binomial(nc, slow_p))
        slower = int(rng.binomial(slow_canary, slower_p / slow_p)) if slow_canary else 0
        return WindowCounts(
            seq=seq,
            canary_ended=nc,
            baseline_ended=nb,
            canary_faults=int(rng.binomial(nc, world.canary_fault_ratio)),
            baseline_faults=int(rng.binomial(nb, world.baseline_fault_ratio)),
            canary_sheds=0,
            baseline_sheds=0,
            canary_misses=0,
            baseline_misses=0,
            canary_timed=nc,
            baseline_timed=nb,
            slow_canary=slow_canary,
            slower_canary=slower,
            slow_baseline=slow_baseline,
            half_timed=half,
            half_slow=half_slow,
            canary_answered=nc,
        )

    def p95s(self, ratio: float) -> tuple[int, int, float | None, float | None]:
        """(canary n, baseline n, canary p95, baseline p95): what a naive judge looks at."""
        world, rng = self.world, self.rng
        base_shift, canary_shift = self._next_shifts()
        canary_shift += log(1.0 + world.slowdown)
        arrivals = world.rate_per_s * world.window_s
        nc, nb = int(rng.poisson(arrivals * ratio)), int(rng.poisson(arrivals * (1.0 - ratio)))
        return nc, nb, self._p95(nc, canary_shift), self._p95(nb, base_shift)

    def _p95(self, n: int, shift: float) -> float | None:
        if n == 0:
            return None
        rank = max(1, -(-95 * n // 100))
        u = float(self.rng.beta(rank, n - rank + 1))  # the exact law of an order statistic
        return exp(SPREAD * float(np.interp(u, _CDF, _GRID)) + shift)

    def _next_shifts(self) -> tuple[float, float]:
        """This window's log shifts of (baseline, canary)."""
        world, rng = self.world, self.rng
        if world.session_sd:
            gone = rng.random(SESSIONS) < SESSION_CHURN
            fresh = int(gone.sum())
            self._points[gone] = rng.random(fresh)
            self._effects[gone] = rng.normal(size=fresh) * world.session_sd
        if not world.noise:
            return 0.0, 0.0
        a = world.autocorrelation
        fresh_sd = world.noise * sqrt(1.0 - a * a)
        draws = rng.normal(size=3)
        self._common = a * self._common + draws[0] * fresh_sd * sqrt(world.common)
        own_sd = fresh_sd * sqrt(1.0 - world.common)
        self._own = [a * self._own[i] + draws[i + 1] * own_sd for i in range(2)]
        return self._common + self._own[0], self._common + self._own[1]

    def _above(self, edge: float, shift: float, ratio: float, *, canary: bool) -> float:
        """The chance that an execution of this arm lies above exp(edge)."""
        if not self.world.session_sd:
            return 0.5 * erfc((edge - shift) / (SPREAD * sqrt(2.0)))
        members = self._points < ratio if canary else self._points >= ratio
        if not members.any():
            members = np.ones(SESSIONS, dtype=bool)
        z = (edge - shift - self._effects[members]) / SPREAD
        return float(1.0 - np.interp(z, _GRID, _CDF).mean())
