"""How many requests may be in flight at once: the port every policy implements.

A limit is fed one observation per finished request and a tick about once a second, and
keeps `value` up to date between. Who may come in under it is the gate's business, so that
the same gate runs the shipped policies, and those that the benchmark prints beside them.

Which outcomes say something about load is decided here, once: a success is a latency; a
request that ran out of time, or that the replica was too busy for, is a drop; faults,
client errors and cancellations say nothing. A fault that comes back in 2 ms must never
read as a fast fleet.
"""

from typing import Protocol

from engine.outcomes import Outcome

DROPS = frozenset({Outcome.DEADLINE, Outcome.BACKPRESSURE})


class Limit(Protocol):
    """An adaptive bound on the requests in flight for one model."""

    value: float
    reason: str
    slo_ms: float

    @property
    def policy(self) -> str:
        """The name under which the policy is configured and shown."""
        ...

    def observe(self, latency_ms: float, outcome: Outcome, now_ms: float) -> None:
        """One request ended: `latency_ms` from its arrival to its answer."""
        ...

    def tick(self, in_flight: int, now_ms: float) -> None:
        """Reconsider `value`. `in_flight` is the most at any moment since the last tick."""
        ...

    def expect(
        self, requests_per_s: float | None, places: int, batch_size: int, now_ms: float
    ) -> None:
        """The fleet changed: it runs `places` requests at once, at most `batch_size` of them
        in one batch, and should manage `requests_per_s` (None: nobody knows yet)."""
        ...

    def p95_ms(self, now_ms: float) -> float | None:
        """The latency that the policy looks at; None while there is none."""
        ...
