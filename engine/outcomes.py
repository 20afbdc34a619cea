"""One classification of how an attempt ended, consumed by everything that learns from it.

Breaker, limiter, histograms, retry budget and canary evidence all read an `Outcome`;
none derives its own from a status code. What breaks without it: a breaker that counts a
client's 400 as a replica fault, or a limiter that reads a fast failure as low latency.
"""

from enum import StrEnum


class Outcome(StrEnum):
    """How one attempt at one replica ended."""

    SUCCESS = "success"
    FAULT = "fault"  # the replica's doing: 5xx, reset, malformed answer, no byte in time
    BACKPRESSURE = "backpressure"  # the replica says busy: 429 or 503. Never a fault
    CLIENT_ERROR = "client_error"  # the request's doing: any other 4xx. Never a fault
    CANCELLED = "cancelled"  # the client left, or a hedge lost
    DEADLINE = "deadline"  # the request's own time ran out while the attempt was running

    @property
    def is_fault(self) -> bool:
        """True where the replica, and nobody else, is to blame."""
        return self is Outcome.FAULT

    @property
    def is_retryable(self) -> bool:
        """True where another replica may well succeed."""
        return self is Outcome.FAULT or self is Outcome.BACKPRESSURE


def classify(status: int | None) -> Outcome:
    """Classify an HTTP status; None means that no complete answer came (reset, refused)."""
    if status is None:
        return Outcome.FAULT
    if 200 <= status < 300:
        return Outcome.SUCCESS
    if status in (429, 503):
        return Outcome.BACKPRESSURE
    if status == 499:
        return Outcome.CANCELLED
    if status in (408, 504):
        return Outcome.FAULT
    if 400 <= status < 500:
        return Outcome.CLIENT_ERROR
    return Outcome.FAULT
