"""A quote: can this be served in time, how surely, and if not, what would let it pass?

The expected finish is what the queue and the cost model say; its error is taken as normal
with their joint standard deviation, so

    P(on time) = Phi((deadline - expected) / deviation)
    earliest deadline = expected + 1.64 deviation          met 19 times out of 20

in milliseconds from now. A quote takes nothing and promises nothing: it says what would
happen to this request if it came now.
"""

from dataclasses import dataclass
from math import erf, sqrt

from engine.errors import Refusal, RefusalCode

SURE = 0.95
_SURE_DEVIATIONS = 1.6449


@dataclass(slots=True, frozen=True, kw_only=True)
class Quote:
    """What would happen to a request that came now. Times are milliseconds from now."""

    probability_on_time: float | None
    expected_ms: float | None
    earliest_deadline_ms: float | None
    refusal: Refusal | None
    remedy: str | None  # what would let it pass, where it would not


def make_quote(
    *,
    refusal: Refusal | None = None,
    expected_ms: float | None = None,
    deviation_ms: float = 0.0,
    remaining_ms: float | None = None,
) -> Quote:
    """Put a quote together from what admission and the queue said. Unknown stays None."""
    earliest_ms = None if expected_ms is None else expected_ms + _SURE_DEVIATIONS * deviation_ms
    probability: float | None = None
    if refusal is not None:
        probability = 0.0
    elif expected_ms is not None and remaining_ms is not None:
        probability = probability_within(remaining_ms, expected_ms, deviation_ms)
    return Quote(
        probability_on_time=probability,
        expected_ms=expected_ms,
        earliest_deadline_ms=earliest_ms,
        refusal=refusal,
        remedy=_remedy(refusal, probability, earliest_ms),
    )


def probability_within(remaining_ms: float, expected_ms: float, deviation_ms: float) -> float:
    """P(a finish expected at `expected_ms` comes within `remaining_ms`)."""
    slack_ms = remaining_ms - expected_ms
    if deviation_ms <= 0.0:
        return 1.0 if slack_ms >= 0.0 else 0.0
    return 0.5 * (1.0 + erf(slack_ms / (deviation_ms * sqrt(2.0))))


def _remedy(
    refusal: Refusal | None, probability: float | None, earliest_ms: float | None
) -> str | None:
    """One sentence: the cheapest change that would let the request pass."""
    if refusal is None:
        if probability is None or probability >= SURE or earliest_ms is None:
            return None
        return f"a deadline of {earliest_ms:.0f} ms would be met {SURE:.0%} of the time"
    if refusal.code is RefusalCode.DEADLINE_UNREACHABLE and earliest_ms is not None:
        return f"a deadline of at least {earliest_ms:.0f} ms"
    if refusal.retry_after_ms is not None:
        return f"the same request again in {refusal.retry_after_ms:.0f} ms"
    if refusal.code is RefusalCode.INVALID_REQUEST and refusal.limit is not None:
        return f"{refusal.limit_name} of at most {refusal.limit:g}"
    return refusal.message
