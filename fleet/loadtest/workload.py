"""What is asked: the benchmark's sizes and deadlines, or sentences of mixed lengths.

Sizes are log-normal. For decoders tokens = round(exp(4.8 + 0.9 z)) in [16, 4096], mean 182;
a token is four characters, as the gateway counts. For embedding models a request is a
sentence of real words, exp(3.2 + 0.9 z) of them in [4, 256]. `longtail` widens z to 1.4 and
lowers the centre so that the mean stays. One seed gives the same requests every time.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

import msgspec

from engine.errors import InvalidInput, require_positive

BYTES_PER_TOKEN = 4
SIGMA = 0.9
LONGTAIL_SIGMA = 1.4

COMMON_WORDS = """
the of and to in a is that for it as was with be by on not he his but at are this have from or
had an they which one you were all her she there would their we him been has when who will no
more if out so up said what its about than into them can only other time new some could these
two may first then do any like my now over such our man even most made after also did many off
before must well back through years where much your way down should
"""
WORDS = tuple(COMMON_WORDS.split())


@dataclass(slots=True, frozen=True)
class Deadlines:
    """Relative deadlines in ms with their shares."""

    choices: tuple[tuple[float, float], ...]  # (deadline_ms, cumulative share)

    @classmethod
    def parse(cls, text: str) -> "Deadlines":
        """From `2000`, or `120:0.3,900:0.7`."""
        pairs = []
        for part in text.split(","):
            deadline, _, share = part.partition(":")
            try:
                pairs.append((float(deadline), float(share) if share else 1.0))
            except ValueError:
                raise InvalidInput("deadline", text, "use MS, or MS:SHARE,MS:SHARE") from None
        for deadline_ms, weight in pairs:
            require_positive("deadline", deadline_ms, unit="ms")
            require_positive("share", weight)
        total, above, choices = sum(weight for _, weight in pairs), 0.0, []
        for deadline_ms, weight in pairs:
            above += weight / total
            choices.append((deadline_ms, above))
        return cls(tuple(choices))

    def pick(self, u: float) -> float:
        return next((d for d, above in self.choices if u < above), self.choices[-1][0])


BENCHMARK_DEADLINES = "120:0.3,900:0.7"


@dataclass(slots=True, frozen=True)
class Shot:
    """One request, ready to send."""

    body: bytes
    tokens: int
    deadline_ms: float


def size_bounds(sentences: bool) -> tuple[int, int]:
    """The smallest and the largest request: words of a sentence, else tokens."""
    return (4, 256) if sentences else (16, 4096)


class Workload:
    """An endless, seeded stream of requests for one model."""

    def __init__(
        self,
        model: str,
        deadlines: Deadlines,
        *,
        seed: int = 1,
        sentences: bool = False,
        longtail: bool = False,
        max_output_tokens: int = 16,
        tokens: int | None = None,
    ) -> None:
        self._model = model
        self._deadlines = deadlines
        self._rng = random.Random(seed)
        self._sentences = sentences
        self._sigma = LONGTAIL_SIGMA if longtail else SIGMA
        centre = 3.2 if sentences else 4.8
        self._centre = centre - (self._sigma**2 - SIGMA**2) / 2
        self._bounds = size_bounds(sentences)
        self._max_output_tokens = max_output_tokens
        self._tokens = tokens
        self._text = " ".join(self._rng.choices(WORDS, k=8000))

    def next(self) -> Shot:
        rng = self._rng
        low, high = self._bounds
        tokens = self._tokens or round(exp(self._centre + self._sigma * rng.gauss()))
        tokens = min(max(tokens, low), high)
        if self._sentences:
            text = " ".join(rng.choices(WORDS, k=tokens))
        else:
            length = tokens * BYTES_PER_TOKEN
            start = rng.randrange(len(self._text) - length)
            text = self._text[start : start + length]
        deadline_ms = self._deadlines.pick(rng.random())
        body = msgspec.json.encode(
            {
                "model": self._model,
                "input": text,
                "deadlineMs": round(deadline_ms),
                "maxOutputTokens": self._max_output_tokens,
            }
        )
        return Shot(body, tokens, deadline_ms)

    def many(self, count: int) -> Sequence[Shot]:
        return [self.next() for _ in range(count)]
