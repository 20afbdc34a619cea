"""How the same number, seen by several gateways, becomes one.

Rates, counts and queue lengths add up. Shares and ratios are averaged by what they are
shares of. Quantiles do not merge: the worst gateway's is shown, which the pooled quantile
never exceeds. Everywhere None means that nobody knows, and stays None.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]

STATUS_RANK = {"down": 0, "degraded": 1, "draining": 2, "unknown": 3, "healthy": 4}


def total(rows: Iterable[Row], key: str) -> float:
    """Sum of what is known; 0 where nothing is."""
    return sum(row.get(key) or 0 for row in rows)


def largest(rows: Iterable[Row], key: str) -> float | None:
    """The greatest known value: how quantiles and ages are shown."""
    return max((row[key] for row in rows if row.get(key) is not None), default=None)


def weighted_mean(rows: Iterable[Row], key: str, weight: str) -> float | None:
    """Mean of the known values by their weights; plain mean where all weights are 0."""
    known: list[tuple[float, float]] = [
        (row[key], row.get(weight) or 0.0) for row in rows if row.get(key) is not None
    ]
    if not known:
        return None
    mass = sum(w for _, w in known)
    if mass <= 0:
        return sum(value for value, _ in known) / len(known)
    return sum(value * w for value, w in known) / mass


def totals_by_key(rows: Iterable[Row], key: str) -> dict[str, float]:
    """Sum of counters that are keyed themselves, such as refusals by code."""
    result: dict[str, float] = {}
    for row in rows:
        for name, value in (row.get(key) or {}).items():
            result[name] = result.get(name, 0) + value
    return result


def grouped[K: Hashable](rows: Iterable[Row], identity: Callable[[Row], K]) -> dict[K, list[Row]]:
    """Rows that speak of the same thing, in order of first appearance."""
    groups: dict[K, list[Row]] = {}
    for row in rows:
        groups.setdefault(identity(row), []).append(row)
    return groups
