"""What came of a trace, as the figures of a row: attainment by cohort and by size, latencies.

Attainment is served within the deadline / offered. Quartiles and the largest 5 % are by the
request's true size. None means that the trace holds no such request.
"""

from collections.abc import Sequence

from bench.trace import Arrival
from bench.trial import Outcome


def score(
    scheduler: str, rate: float, arrivals: Sequence[Arrival], outcome: Outcome, speed: float
) -> dict[str, object]:
    """One row. Rates and goodput are per unit of device speed, so that fleets compare."""
    good = outcome.good
    by_size = sorted(range(len(arrivals)), key=lambda index: arrivals[index].tokens)
    count = len(by_size)
    quartiles = [by_size[count * i // 4 : count * (i + 1) // 4] for i in range(4)]
    largest = by_size[int(count * 0.95) :]
    everybody = range(count)
    tokens_good = sum(arrivals[index].tokens for index in everybody if good[index])
    seconds = outcome.duration_s * speed
    return {
        "scheduler": scheduler,
        "rate": rate,
        "goodput_per_s": sum(good) / seconds,
        "attainment": _share(good, everybody),
        "urgent": _share(good, [i for i in everybody if arrivals[i].urgent]),
        "relaxed": _share(good, [i for i in everybody if not arrivals[i].urgent]),
        "by_quartile": [_share(good, quartile) for quartile in quartiles],
        "largest5": _share(good, largest),
        "token_goodput": tokens_good / seconds,
        "p50": _quantile(outcome.latencies_ms, 0.50),
        "p95": _quantile(outcome.latencies_ms, 0.95),
        "p99": _quantile(outcome.latencies_ms, 0.99),
        "utilisation": outcome.busy_ratio,
        "batch": outcome.served / outcome.batches if outcome.batches else None,
        "cpu_us_per_request": outcome.cpu_us_per_request,
        "conserved": outcome.balanced,
    }


def _share(good: Sequence[bool], indices: Sequence[int]) -> float | None:
    return sum(good[index] for index in indices) / len(indices) if indices else None


def _quantile(ordered: Sequence[float], q: float) -> float | None:
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)] if ordered else None
