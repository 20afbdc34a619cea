"""How much more do the counts scatter than pure chance would make them?

Latency drifts from window to window (neighbours, garbage collection, traffic mix), and
differently in the two arms. On top of the binomial scatter, the log odds that a slow
execution falls on the canary wander with variance tau2 and lag-1 correlation rho. Then

    phi_i = 1 + v_i tau2 k,    v_i = m_i p_i (1 - p_i)
    k = sum_ij w_i w_j rho^|i-j| / sum_i w_i^2,  -> (1 + rho) / (1 - rho) for many windows

A single dispersion factor would not survive a change of weight: at 1 % of the traffic a
window holds two slow canary executions and chance rules, at 50 % it holds two hundred and
the drift does. tau2 is a property of the fleet, so it carries over from step to step.

It is estimated by moments from the residuals e_i = x_i - m_i p_i around the *observed* mean
ratio (a true regression must not count as noise): E(e_i^2) = v_i + tau2 v_i^2 and
E(e_i e_j) = rho tau2 v_i v_j for neighbours. The prior comes from the baseline's own windows
before the rollout, doubled because both arms wander; without any history it is `COLD`.
What breaks without it: with 5 % of drift at 400 requests/s, a plain binomial test rolls back
every second identical version.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from engine.rollout.eprocess import Floats

_RHO_MAX = 0.8
_FLOOR = 0.003  # variance of log odds: a drift of about 0.6 % of latency is always assumed
_SMALL_SAMPLE = 1.5
_SMALL_SAMPLE_WINDOWS = 6


@dataclass(slots=True, frozen=True, kw_only=True)
class NoisePrior:
    """What is believed of the scatter before the first comparison.

    `tau2` is the variance of the log odds between the arms, `rho` its lag-1 correlation,
    `windows` how many windows of evidence this belief is worth.
    """

    tau2: float
    rho: float
    windows: float

    def to_json(self) -> dict[str, float]:
        return {"tau2": self.tau2, "rho": self.rho, "windows": self.windows}

    @classmethod
    def from_json(cls, data: Mapping[str, float]) -> "NoisePrior":
        return cls(tau2=data["tau2"], rho=data["rho"], windows=data["windows"])


COLD = NoisePrior(tau2=0.25, rho=0.3, windows=4.0)


@dataclass(slots=True, frozen=True, kw_only=True)
class Noise:
    """The estimate in force. `windows` is how much evidence it rests on, prior included."""

    tau2: float
    rho: float
    windows: float

    def phi(self, v: Floats) -> Floats:
        """The deflation of each window, given its binomial variances `v`."""
        small = _SMALL_SAMPLE if self.windows < _SMALL_SAMPLE_WINDOWS else 1.0
        omega2 = self.tau2 * _inflation(v / (1.0 + v * self.tau2), self.rho)
        result: Floats = small * (1.0 + v * omega2)
        return result


def _inflation(weights: Floats, rho: float) -> float:
    """How much correlation between neighbours inflates the variance of the weighted sum.

    The sum over all pairs; (1 + rho) / (1 - rho) is its limit for many equal weights and
    twice too much for the handful of windows that decide about a bad canary.
    """
    if rho == 0.0:
        return 1.0
    squares = pairs = carried = 0.0
    for weight in weights.tolist():
        squares += weight * weight
        pairs += weight * carried
        carried = rho * (carried + weight)
    return 1.0 + 2.0 * pairs / squares if squares > 0.0 else 1.0


def from_history(slow: Floats, total: Floats) -> NoisePrior:
    """The prior that the baseline's own windows support: `slow` of `total` in each."""
    kept = total > 0
    slow, total = slow[kept], total[kept]
    n = len(slow)
    if n < 3 or slow.sum() == 0:
        return COLD
    share = float(slow.sum() / total.sum())
    v = total * share * (1.0 - share)
    tau2, covariance, informed = _moments(slow - total * share, v, COLD.tau2 / 2.0)
    worth = COLD.windows
    tau2 = (worth * COLD.tau2 / 2.0 + informed * tau2) / (worth + informed)
    tau2 = max(tau2, _FLOOR)
    prior = COLD.rho * COLD.tau2 / 2.0
    covariance = (worth * min(prior, COLD.rho * tau2) + informed * covariance) / (worth + informed)
    rho = min(max(covariance / tau2, 0.0), _RHO_MAX)
    return NoisePrior(tau2=2.0 * tau2, rho=rho, windows=max(informed / 2.0, 1.0))


def estimate(x: Floats, y: Floats, nc: Floats, nb: Floats, prior: NoisePrior) -> Noise:
    """The scatter of the comparison between the arms, shrunk towards the prior."""
    if len(x) < 2:
        return Noise(tau2=prior.tau2, rho=prior.rho, windows=prior.windows)
    total = nc + nb
    m = x + y
    # Mantel-Haenszel: the common odds ratio, robust where single windows hold few events
    odds = (float(x @ (nb / total)) + 0.5) / (float(y @ (nc / total)) + 0.5)
    expected = odds * nc
    p = expected / (expected + nb)
    v = m * p * (1.0 - p)
    tau2, covariance, informed = _moments(x - m * p, v, prior.tau2)
    weight = prior.windows + informed
    tau2 = max((prior.windows * prior.tau2 + informed * tau2) / weight, _FLOOR)
    covariance = (prior.windows * prior.rho * prior.tau2 + informed * covariance) / weight
    rho = min(max(covariance / tau2, 0.0), _RHO_MAX)
    return Noise(tau2=tau2, rho=rho, windows=weight)


def _moments(e: Floats, v: Floats, guess: float) -> tuple[float, float, float]:
    """(tau2, lag-1 covariance, effective number of windows), each window weighted by how much
    it can say of a variance near `guess`: one with two events says almost nothing."""
    inverse = 1.0 / np.maximum(v, 1e-9)
    weight = (guess / (inverse + guess)) ** 2
    informed = float(weight.sum())
    if informed <= 0.0:
        return guess, 0.0, 0.0
    z = e * inverse
    tau2 = float(weight @ (z * z - inverse)) / informed
    root = np.sqrt(weight)
    paired = float(root[1:] @ root[:-1])
    scaled = root * z
    covariance = float(scaled[1:] @ scaled[:-1]) / paired if paired > 0.0 else 0.0
    return tau2, covariance, informed
