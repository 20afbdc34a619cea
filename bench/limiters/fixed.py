"""A constant: what an operator would have set by hand, having seen the future."""

from engine.outcomes import Outcome


class FixedLimit:
    """Never moves. The best of them, found by search, is what the others are measured by."""

    policy = "fixed"

    def __init__(self, value: float) -> None:
        self.value = value
        self.slo_ms = 1000.0
        self.reason = "fixed"

    def observe(self, latency_ms: float, outcome: Outcome, now_ms: float) -> None:
        """Learns nothing."""

    def tick(self, in_flight: int, now_ms: float) -> None:
        """Changes nothing."""

    def expect(
        self, requests_per_s: float | None, places: int, batch_size: int, now_ms: float
    ) -> None:
        """Expects nothing."""

    def p95_ms(self, now_ms: float) -> float | None:
        return None
