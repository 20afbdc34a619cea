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
from math import log

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def log_ratios(x: Floats, y: Floats, nc: Floats, nb: Floats, ratios: Sequence[float]) -> Floats:
    """The log likelihood ratio of each alternative (rows) in each window (columns)."""
    r = np.asarray(ratios, dtype=np.float64)[:, None]
    total = nc + nb
    scale = total / (r * nc + nb)  # p1/p0 = r * scale, (1-p1)/(1-p0) = scale
    result: Floats = (x + y) * np.log(scale) + x * np.log(r)
    return result


def log_e(
    x: Floats, y: Floats, nc: Floats, nb: Floats, ratios: Sequence[float], phi: Floats
) -> float:
    """log E over these windows; 0.0 where they hold no comparison at all."""
    if len(x) == 0:
        return 0.0
    sums = (log_ratios(x, y, nc, nb, ratios) / phi).sum(axis=1)
    top = float(sums.max())
    return top + float(np.log(np.exp(sums - top).sum())) - log(len(ratios))
