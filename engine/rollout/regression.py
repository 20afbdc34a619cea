"""Is the canary worse than tolerated?

Three e-processes (`eprocess`), each of which rolls back alone at its share of alpha:

    latency   canary executions above threshold x (1 + d) against baseline ones above the
              threshold. A canary slower by exactly d makes the two equally frequent, so
              the null is "no more than d slower", and identical versions lie well inside it
    failures  faults (and sheds, unless capacity explains them), against the baseline's
              plus an absolute allowance: one fault where the baseline had none is no scandal
    misses    deadlines missed, likewise, and only where capacity does not explain them

A failure must be seen in two windows at least: one dead batch of sixteen is an incident, a
second is a pattern. While the first is fresh it is suspicious; once the next window is clean
it is forgotten.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.rollout.eprocess import Floats, log_e
from engine.rollout.noise import Noise, NoisePrior, estimate

LATENCY_RATIOS = (1.3, 1.6, 2.0, 3.0, 6.0)
FAILURE_RATIOS = (1.5, 2.0, 4.0, 10.0, 30.0, 100.0)
FAILURE_NOISE = NoisePrior(tau2=0.1, rho=0.2, windows=6.0)
MISS_NOISE = NoisePrior(tau2=0.25, rho=0.4, windows=4.0)
PATTERN_WINDOWS = 2


@dataclass(slots=True, frozen=True, kw_only=True)
class Evidence:
    """Evidence for one hypothesis, and how many windows took part (for rates: showed any)."""

    log_e: float
    windows: int
    noise: Noise | None


NOTHING = Evidence(log_e=0.0, windows=0, noise=None)


def latency_evidence(x: Floats, y: Floats, nc: Floats, nb: Floats, prior: NoisePrior) -> Evidence:
    """Evidence that the canary is slower than tolerated. `x` of `nc`, `y` of `nb` are slow."""
    return judged(x, y, nc, nb, LATENCY_RATIOS, prior)


def rate_evidence(
    x: Floats, y: Floats, nc: Floats, nb: Floats, allowance: float, prior: NoisePrior
) -> Evidence:
    """Evidence that the canary fails (or misses) more often than the baseline + allowance."""
    if not x.any():
        return NOTHING
    evidence = judged(x, y + allowance * nb, nc, nb, FAILURE_RATIOS, prior)
    seen = int((x > 0).sum())
    log_e = evidence.log_e
    if seen < PATTERN_WINDOWS and x[-1] == 0:
        log_e = min(log_e, 0.0)
    return Evidence(log_e=log_e, windows=seen, noise=evidence.noise)


def judged(
    x: Floats, y: Floats, nc: Floats, nb: Floats, ratios: tuple[float, ...], prior: NoisePrior
) -> Evidence:
    """The e-process over the windows where both arms have something to compare."""
    kept = (nc > 0) & (nb > 0)
    if not kept.all():
        x, y, nc, nb = x[kept], y[kept], nc[kept], nb[kept]
    if len(x) == 0:
        return NOTHING
    noise = estimate(x, y, nc, nb, prior)
    p0 = nc / (nc + nb)
    phi = noise.phi((x + y) * p0 * (1.0 - p0))
    return Evidence(log_e=log_e(x, y, nc, nb, ratios, phi), windows=len(x), noise=noise)


def column(values: Sequence[float]) -> Floats:
    """A column of counts as the kernels take it."""
    return np.asarray(values, dtype=np.float64)
