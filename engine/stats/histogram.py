"""A histogram that merges: what is the p95 over all gateways, all slots, all arms?

Bucket i holds the values in (g^(i-1), g^i] with g = (1 + e)/(1 - e) and e = 1 %; a quantile
answers with 2 g^i / (g + 1), which lies within e of every value of the bucket. Counts are
integers, so merging is exact, commutative and associative: a window merged from forty
gateways in any order is bit for bit the window one gateway would have counted. Quantiles do
not merge (the mean of two p95s is nobody's p95), which is why buckets are what is stored.

Values are non-negative, of any unit; those up to 1e-6 share the bottom bucket and read as 0.
Source: Masson, Rim, Lee, "DDSketch", VLDB 2019. Recording costs one logarithm and one
dictionary update, whatever the range.
"""

from collections.abc import Iterable, Mapping
from math import ceil, log

from engine.errors import InvalidInput, require_range

RELATIVE_ERROR = 0.01
_GROWTH = (1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR)
_PER_LOG = 1.0 / log(_GROWTH)
_SMALLEST = 1e-6
_LARGEST = 1e15
BOTTOM = ceil(log(_SMALLEST) * _PER_LOG)
TOP = ceil(log(_LARGEST) * _PER_LOG)


def bucket_of(value: float) -> int:
    """The index of the bucket that holds `value`."""
    if _SMALLEST < value < _LARGEST:
        return ceil(log(value) * _PER_LOG)
    if 0.0 <= value <= _SMALLEST:
        return BOTTOM
    raise InvalidInput("value", value, f"must be a number in [0, {_LARGEST:g})")


def value_of(bucket: int) -> float:
    """The value that stands for a bucket: within 1 % of everything in it."""
    if bucket <= BOTTOM:
        return 0.0
    return 2.0 * _GROWTH**bucket / (_GROWTH + 1.0)


class LogHistogram:
    """Counts by logarithmic bucket, with quantiles to within 1 % of the value."""

    __slots__ = ("_buckets", "count")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0

    def record(self, value: float, n: int = 1) -> None:
        """Count `value` `n` times."""
        if _SMALLEST < value < _LARGEST:
            bucket = ceil(log(value) * _PER_LOG)
        else:
            bucket = bucket_of(value)
        buckets = self._buckets
        buckets[bucket] = buckets.get(bucket, 0) + n
        self.count += n

    def quantile(self, q: float) -> float | None:
        """The value below which a share `q` of the recorded ones lies; None when empty."""
        require_range("q", q, 0.0, 1.0)
        return _quantile(self._buckets.items(), self.count, q)

    def count_above(self, value: float) -> int:
        """How many recorded values lie in buckets above the one that holds `value`."""
        threshold = bucket_of(value)
        return sum(n for bucket, n in self._buckets.items() if bucket > threshold)

    def mean(self) -> float | None:
        """The mean, to within 1 %; None when empty."""
        if not self.count:
            return None
        return sum(value_of(bucket) * n for bucket, n in self._buckets.items()) / self.count

    def merge(self, other: "LogHistogram") -> None:
        """Add everything `other` counted to this histogram."""
        buckets = self._buckets
        for bucket, n in other._buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + n
        self.count += other.count

    def clear(self) -> None:
        """Forget everything."""
        self._buckets.clear()
        self.count = 0

    def to_sparse(self) -> dict[int, int]:
        """The non-empty buckets, in order: what is stored and sent."""
        return dict(sorted(self._buckets.items()))

    @classmethod
    def from_sparse(cls, buckets: Mapping[int, int] | Mapping[str, int]) -> "LogHistogram":
        """Read what `to_sparse` wrote, also after JSON turned its keys into strings."""
        histogram = cls()
        for key, n in buckets.items():
            bucket = int(key)
            if not BOTTOM <= bucket <= TOP or n < 0:
                raise InvalidInput("buckets", {key: n}, "must map bucket indices to counts >= 0")
            if n:
                histogram._buckets[bucket] = n
                histogram.count += n
        return histogram

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogHistogram) and self._buckets == other._buckets

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LogHistogram(count={self.count}, p50={self.quantile(0.5)})"


def _quantile(buckets: Iterable[tuple[int, int]], count: int, q: float) -> float | None:
    if not count:
        return None
    rank = max(1, ceil(q * count - 1e-9))
    seen = 0
    ordered = sorted(buckets)
    for bucket, n in ordered:
        seen += n
        if seen >= rank:
            return value_of(bucket)
    return value_of(ordered[-1][0])
