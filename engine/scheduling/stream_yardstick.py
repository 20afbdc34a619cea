"""How slow was this stream, whatever its length: the evidence of a canary that streams.

    time to first token    against the baseline's, an affine function of the prompt's tokens
    time per output token  against the baseline's decaying mean, (last - first) / (tokens - 1)

The total time of a stream says little: a version that answers shorter looks faster, one that
takes twice as long to begin hides behind a long answer. So each stream leaves one number, the
larger of the two ratios: whichever way a version is slower shows, and one request stays one
observation. The yardstick is the baseline's on the same class of hardware for both arms; each
arm's thresholds come from the baseline's own distribution of that number.
"""

from engine.batching.cost_model import CostModel
from engine.stats.ewma import DecayingEwma

_TAU_MS = 60_000.0
_ENOUGH_SAMPLES = 8
_FEWEST_TOKENS = 8  # of fewer the pace is mostly the noise of two arrivals


class StreamYardstick:
    """What a stream takes on one class of hardware, learned from every one that ended well."""

    __slots__ = ("_first", "_per_token")

    def __init__(self) -> None:
        self._first = CostModel()
        self._per_token = DecayingEwma(_TAU_MS)

    def observe(
        self, prompt_tokens: int, first_ms: float, total_ms: float, tokens: int, now_ms: float
    ) -> None:
        """A stream of `tokens` began after `first_ms` and ended after `total_ms`."""
        if prompt_tokens > 0 and first_ms > 0.0:
            self._first.observe(float(prompt_tokens), 1, float(prompt_tokens), first_ms)
        if tokens >= _FEWEST_TOKENS and total_ms > first_ms:
            self._per_token.add((total_ms - first_ms) / (tokens - 1), now_ms)

    def slowness(
        self, prompt_tokens: int, first_ms: float, total_ms: float, tokens: int
    ) -> float | None:
        """The larger of both ratios, 1.0 as the baseline; None before enough was measured."""
        if self._first.samples < _ENOUGH_SAMPLES or prompt_tokens <= 0:
            return None
        slowness = first_ms / self._first.predict_ms(float(prompt_tokens))
        mean_ms = self._per_token.value
        if mean_ms is not None and mean_ms > 0.0 and tokens >= _FEWEST_TOKENS:
            slowness = max(slowness, (total_ms - first_ms) / (tokens - 1) / mean_ms)
        return slowness
