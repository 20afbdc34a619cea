"""How many requests may run at once on a server that does not say?

A batch replica declares its concurrency. An OpenAI-compatible server accepts anything and
queues what it cannot run, where nobody schedules it. So its ceiling is learned, once per
window of at least 20 answers and 250 ms:

    gradient = clamp((tolerance x unloaded + slack) / now, 0.5, 1)
    ceiling  = ceiling x gradient + sqrt(ceiling)        (the growth only while it was full)

`now` is the mean latency of the window: time to the first byte for streams, where queueing
shows first, and for whole answers the time for each hundred tokens, because a long answer is
not a slow server. `unloaded` is the lowest window mean seen; the slack of 30 ms keeps a quick
server (9 ms alone, 39 ms with sixteen at once, and the best throughput there) from being
taken for a full one. Busy answers cut the ceiling to 0.9 of what was in flight, once per
window. The declared maximum is never exceeded, and one is the least.

Streams last, and where all places are taken by them no window fills for as long as they do.
But when everything that is out has sent its first byte, nothing waits inside: until the
server first shows that it is full, that alone widens the ceiling, a first byte at a time.

Under steady load nothing shows how fast the server would be without it. Letting `unloaded`
drift up instead believes the queue to be the server, and the ceiling runs away. So after
30 s, where it is full and the gradient holds it back, it is measured: for two windows the
ceiling is a quarter, and what the second one takes is `unloaded` from then on (as BBR measures
the round trip). Without the guard "only while it was full" a quiet night raises the ceiling
to the maximum, and the morning finds out. Source: the gradient limiter of Netflix's
concurrency-limits, with a tolerance of 2, because batching on the far side makes latency rise
with load honestly.
"""

from dataclasses import dataclass
from math import sqrt

from engine.errors import require_positive, require_range
from engine.types import Protocol


@dataclass(slots=True, frozen=True, kw_only=True)
class CeilingConfig:
    """`first` is the ceiling before anything is known."""

    first: int = 16
    tolerance: float = 2.0
    slack_ms: float = 30.0
    window_ms: float = 250.0
    window_answers: int = 20
    measure_every_ms: float = 30_000.0
    measure_ratio: float = 0.25
    busy_ratio: float = 0.9
    full_ratio: float = 0.8

    def __post_init__(self) -> None:
        require_range("first", self.first, 1)
        require_range("tolerance", self.tolerance, 1.0, 10.0)
        require_range("slack_ms", self.slack_ms, 0.0, unit="ms")
        require_positive("window_ms", self.window_ms, unit="ms")
        require_range("window_answers", self.window_answers, 1)
        require_positive("measure_every_ms", self.measure_every_ms, unit="ms")
        require_range("measure_ratio", self.measure_ratio, 0.01, 1.0)
        require_range("busy_ratio", self.busy_ratio, 0.1, 0.99)
        require_range("full_ratio", self.full_ratio, 0.1, 1.0)


class LearnedCeiling:
    """The ceiling of one replica of protocol `openai`; `value` is what may be out at once."""

    __slots__ = (
        "_answers",
        "_config",
        "_cut",
        "_limit",
        "_measure_at_ms",
        "_measuring",
        "_peak",
        "_starting",
        "_sum_ms",
        "_unloaded_ms",
        "_window_from_ms",
        "most",
        "value",
    )

    def __init__(self, config: CeilingConfig, most: int) -> None:
        self._config = config
        self.most = most
        self._limit = float(min(config.first, most))
        self.value = int(self._limit)
        self._unloaded_ms: float | None = None
        self._measure_at_ms: float | None = None
        self._measuring = 0  # windows left until `unloaded` is measured anew
        self._window_from_ms = 0.0
        self._answers = 0
        self._sum_ms = 0.0
        self._peak = 0
        self._cut = False  # a busy answer already cut the ceiling in this window
        self._starting = True  # it never showed that it was full

    def set_most(self, most: int) -> None:
        """The declared maximum changed."""
        self.most = most
        self._set(self._limit)

    def answered(self, latency_ms: float, in_flight: int, now_ms: float) -> None:
        """A request that shared the server with `in_flight - 1` others was served."""
        if self._answers == 0 and not self._cut:
            self._window_from_ms = now_ms
        self._answers += 1
        self._sum_ms += latency_ms
        if in_flight > self._peak:
            self._peak = in_flight
        config = self._config
        if (
            self._answers >= config.window_answers
            and now_ms - self._window_from_ms >= config.window_ms
        ):
            self._close_window(now_ms)

    def began(self, first_ms: float, in_flight: int, all_began: bool, now_ms: float) -> None:
        """A stream's first byte came after `first_ms`; `all_began`: so it did for every other
        request that is out."""
        self.answered(first_ms, in_flight, now_ms)
        full = all_began and in_flight >= self.value
        if not (full and self._starting and self._answers):
            return
        mean_ms = self._sum_ms / self._answers
        if self._unloaded_ms is None:
            self._unloaded_ms = mean_ms
        if mean_ms <= self._fair_ms(self._unloaded_ms):
            self._set(self._limit + sqrt(self._limit))
            self._begin_window(now_ms)

    def busy(self, in_flight: int, now_ms: float) -> None:
        """The server refused one while `in_flight` were out (that one included)."""
        self._starting = False
        if not self._cut:
            self._set(min(self._limit, (in_flight - 1) * self._config.busy_ratio))
            self._begin_window(now_ms)
            self._cut = True

    def _close_window(self, now_ms: float) -> None:
        config = self._config
        mean_ms = self._sum_ms / self._answers
        full = self._peak >= config.full_ratio * self.value
        if self._measuring > 0:
            self._measuring -= 1
            if self._measuring == 0:
                self._unloaded_ms = mean_ms
                self._measure_at_ms = now_ms + config.measure_every_ms
        else:
            unloaded_ms = self._unloaded_ms
            if unloaded_ms is None or mean_ms < unloaded_ms:
                self._unloaded_ms = unloaded_ms = mean_ms
            gradient = 1.0
            if mean_ms > 0.0:
                gradient = min(max(self._fair_ms(unloaded_ms) / mean_ms, 0.5), 1.0)
            if gradient < 1.0:
                self._starting = False
            growth = sqrt(self._limit) if full else 0.0
            self._limit = self._limit * gradient + growth
            if self._measure_at_ms is None:
                self._measure_at_ms = now_ms + config.measure_every_ms
            elif full and gradient < 1.0 and now_ms >= self._measure_at_ms:
                self._measuring = 2
        self._set(self._limit)
        self._begin_window(now_ms)

    def _fair_ms(self, unloaded_ms: float) -> float:
        """What a request may take on a server that is busy and not full."""
        return self._config.tolerance * unloaded_ms + self._config.slack_ms

    def _set(self, limit: float) -> None:
        self._limit = min(max(limit, 1.0), float(self.most))
        ratio = self._config.measure_ratio if self._measuring > 0 else 1.0
        self.value = max(int(self._limit * ratio), 1)

    def _begin_window(self, now_ms: float) -> None:
        self._window_from_ms = now_ms
        self._answers = 0
        self._sum_ms = 0.0
        self._peak = 0
        self._cut = False


class Ceiling:
    """What a replica takes at once: declared, or learned where its protocol does not say."""

    __slots__ = ("_config", "_declared", "_learned")

    def __init__(self, config: CeilingConfig, protocol: Protocol, declared: int) -> None:
        self._config = config
        self._declared = declared
        self._learned: LearnedCeiling | None = None
        self.declare(protocol, declared)

    @property
    def value(self) -> int:
        return self._declared if self._learned is None else self._learned.value

    def declare(self, protocol: Protocol, most: int) -> None:
        """Registration or a report says so: the value, or the bound of what is learned."""
        self._declared = most
        if protocol is not Protocol.OPENAI:
            self._learned = None
        elif self._learned is None:
            self._learned = LearnedCeiling(self._config, most)
        else:
            self._learned.set_most(most)

    def answered(self, latency_ms: float, in_flight: int, now_ms: float) -> None:
        if self._learned is not None:
            self._learned.answered(latency_ms, in_flight, now_ms)

    def began(self, first_ms: float, in_flight: int, all_began: bool, now_ms: float) -> None:
        if self._learned is not None:
            self._learned.began(first_ms, in_flight, all_began, now_ms)

    def busy(self, in_flight: int, now_ms: float) -> None:
        if self._learned is not None:
            self._learned.busy(in_flight, now_ms)
