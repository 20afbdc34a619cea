"""Which objective a number of the whole fleet is read against, where models have several.

Latency is judged model by model: the one to look at is the version whose p95 is nearest to its
own objective, or furthest over it. A chart of the whole fleet draws one line, that of the model
with the most traffic: it makes the quantiles what they are, and it does not change by the second.
"""

from typing import NamedTuple

from fleet.live.state import LiveState


class Held(NamedTuple):
    """A version's p95 beside its model's objective, both in ms."""

    model: str
    p95_ms: float
    slo_ms: float

    @property
    def kept(self) -> bool:
        return self.p95_ms <= self.slo_ms


def nearest(state: LiveState) -> Held | None:
    """The version that uses most of its objective; None before any request has ended."""
    known = [
        Held(model["model"], version["p95Ms"], model["sloMs"])
        for model in state["models"]
        for version in model["versions"]
        if version["p95Ms"] is not None and model["sloMs"] > 0
    ]
    return max(known, key=lambda held: held.p95_ms / held.slo_ms, default=None)


def busiest_slo_ms(state: LiveState) -> float | None:
    """The objective of the model with the most traffic, the first by name among equals."""
    models = [model for model in state["models"] if model["sloMs"] > 0]
    if not models:
        return None
    busiest = max(models, key=lambda model: sum(v["ratePerS"] for v in model["versions"]))
    return busiest["sloMs"]
