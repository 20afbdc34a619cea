"""How much evidence do the counts hold against a hypothesis, however long one watches?

Of m = x + y events (slow executions, say), x fell on the canary. Under the null hypothesis
each falls there with probability p0 = nc / (nc + nb), under the alternative "r times as often"
with p1(r) = r nc / (r nc + nb). The likelihood ratio of r, multiplied over the windows and
averaged over a grid of r, is an e-process: under the null its mean never exceeds 1, so by
Ville's inequality the chance that it *ever* reaches 1/alpha is at most alpha. Looking every
ten seconds for a week costs nothing, which no p-value survives.

    log E = log mean_r exp( sum_i (x_i log(p1/p0) + y_i log((1-p1)/(1-p0))) / phi_i )

phi_i >= 1 deflates a window whose counts scatter more than a binomial (see `noise`): a
quasi-likelihood, no theorem any more, validated by `python -m bench rollouts`.

Sources: Johari, Pekelis, Walsh, "Always valid inference", 2015; Lindon, Sanden, Shirikian,
"Rapid regression detection", arXiv 2205.14762; Howard, Ramdas, arXiv 1906.09712.
"""

from collections.abc import Sequence
from math import exp, log

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def log_e(
    x: Floats, y: Floats, nc: Floats, nb: Floats, ratios: Sequence[float], phi: Floats
) -> float:
    """log E over these windows; 0.0 where they hold no comparison at all."""
    if len(x) == 0:
        return 0.0
    r = np.array(ratios)[:, None]
    # p1/p0 = r s and (1-p1)/(1-p0) = s with s = (nc + nb) / (r nc + nb)
    log_scales = np.log((nc + nb) / (r * nc + nb))
    canary = float((x / phi).sum())
    sums = (log_scales @ ((x + y) / phi)).tolist()
    return log_mean_exp([s + canary * log(q) for s, q in zip(sums, ratios, strict=True)])


def log_mean_exp(values: Sequence[float]) -> float:
    """log of the mean of exp(value), without overflow."""
    top = max(values)
    return top + log(sum(exp(value - top) for value in values) / len(values))
