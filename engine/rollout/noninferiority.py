"""Is it shown that the canary is not slower by the margin?

"Nothing bad yet" is no reason to promote: at 20 requests/s nothing is ever seen. Promotion
turns the burden of proof around. The null is "slower by D = 20 % or more": at exactly D,
canary executions above threshold x (1 + D) are as frequent as baseline ones above the
threshold. The alternatives are that they are rarer; an identical version makes them several
times rarer. Promote when log E' >= log(1 / promotion_alpha) over the windows at one weight.
"""

from engine.rollout.eprocess import Floats
from engine.rollout.noise import NoisePrior
from engine.rollout.regression import Evidence, judged

RATIOS = (0.75, 0.6, 0.45, 0.3)
MIN_WINDOWS = 3


def evidence_for(x: Floats, y: Floats, nc: Floats, nb: Floats, prior: NoisePrior) -> Evidence:
    """Evidence against "slower by the margin"; `x` are canary executions above its threshold."""
    return judged(x, y, nc, nb, RATIOS, prior)
