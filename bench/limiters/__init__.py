"""The limit policies that the admission benchmark prints beside the engine's own.

Each is written from its source to the engine's `Limit` port, so that the same gate, the same
arrivals and the same devices judge them all. None is offered by the engine.
"""

from bench.limiters.aimd import AimdLimit
from bench.limiters.envoy import EnvoyLimit
from bench.limiters.gradient2 import Gradient2Limit
from bench.limiters.vegas import VegasLimit
from engine.admission.gate import LimitFactory
from engine.admission.gradient_limit import GradientLimit
from engine.admission.headroom_limit import HeadroomLimit

# In the order of the table: the two that ship, then the others. Each takes the SLO.
POLICIES: dict[str, LimitFactory] = {
    "headroom": HeadroomLimit,
    "gradient": GradientLimit,
    "gradient2": Gradient2Limit,
    "vegas": VegasLimit,
    "aimd": AimdLimit,
    "envoy": EnvoyLimit,
}

__all__ = ["POLICIES"]
