"""How long a stream takes: from prompt and output tokens, learned per replica.

    work = prompt / 8 + output          the cost model fits  service = a + b x work
    time to first token = decaying mean of what was measured
    time per output token = decaying mean of (last byte - first byte) / (tokens - 1)

Reading a prompt token costs a server with continuous batching about an eighth of writing
one, because it reads them all at once. The number of output tokens is not known before the
end: `max_output_tokens` is what clients allow, not what they get, and clients allow a lot.
So the expected length is the mean of what came lately, capped by what is allowed. After the
end the cost model learns from the tokens that really came.
"""

from engine.stats.ewma import DecayingEwma

_PROMPT_SHARE = 0.125
_UNKNOWN_OUTPUT = 256.0
_TAU_MS = 60_000.0
_USUAL_WORK, _OVERHEAD_WORK = 100.0, 50.0


def stream_work(prompt_tokens: float, output_tokens: float) -> float:
    """The size of a request for the cost model, in output-token equivalents."""
    return max(_PROMPT_SHARE * prompt_tokens + output_tokens, 1.0)


def usual_size(prompt_tokens: float, output_tokens: float) -> float:
    """The size in hundreds of tokens; short answers are mostly overhead, which half is."""
    return max(stream_work(prompt_tokens, output_tokens), _OVERHEAD_WORK) / _USUAL_WORK


class OutputLength:
    """How many tokens answers have lately."""

    __slots__ = ("_mean",)

    def __init__(self) -> None:
        self._mean = DecayingEwma(_TAU_MS)

    def observe(self, tokens: int, now_ms: float) -> None:
        self._mean.add(float(tokens), now_ms)

    def expected(self, allowed: int) -> float:
        """Tokens to expect of an answer that may have `allowed`."""
        mean = self._mean.value
        return min(float(allowed), _UNKNOWN_OUTPUT if mean is None else mean)


class StreamTiming:
    """Time to first token and per output token of one replica. None: not measured."""

    __slots__ = ("_first", "_token")

    def __init__(self) -> None:
        self._first = DecayingEwma(_TAU_MS)
        self._token = DecayingEwma(_TAU_MS)

    def observe(self, first_ms: float, total_ms: float, tokens: int, now_ms: float) -> None:
        self._first.add(first_ms, now_ms)
        if tokens > 1 and total_ms > first_ms:
            self._token.add((total_ms - first_ms) / (tokens - 1), now_ms)

    @property
    def first_token_ms(self) -> float | None:
        return self._first.value

    @property
    def per_token_ms(self) -> float | None:
        return self._token.value
