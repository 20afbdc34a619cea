"""What a station measures: latency, throughput, demand, and how long its slots were in use.

Everything is over a window of *time* (`width_ms`), so that what is shown goes back to "no
data" when nothing comes, instead of showing an old incident for ever.

There are two latencies. `shown` is of all answers in the window. `judged` is of those requests
that came after the last move of the controller: a decision rests on what the limits in force
did, never on victims of the limits before them.
"""

from engine.stats.histogram import LogHistogram
from engine.stats.window import RotatingCounter, RotatingHistogram


class Meters:
    """The measurements of one station. `slots` is how many it was given, not how many are left:
    a slot that was taken away is room that the device has."""

    __slots__ = (
        "_answered",
        "_any_answer",
        "_asked",
        "_busy_ms",
        "_counted_ms",
        "_executed",
        "_judged",
        "_moved_ms",
        "_shown",
        "_since_ms",
        "_slots",
        "_window",
    )

    def __init__(self, width_ms: float, window_slots: int, slots: int, now_ms: float) -> None:
        self._window = (width_ms, window_slots)
        self._slots = slots
        self._shown = RotatingHistogram(width_ms, window_slots)
        self._asked = RotatingCounter(width_ms, window_slots)
        self._answered = RotatingCounter(width_ms, window_slots)
        self._any_answer = False
        self._busy_ms = 0.0
        self._counted_ms = self._since_ms = now_ms
        self.moved(now_ms)

    def moved(self, now_ms: float) -> None:
        """The controller moved a limit: judge from here on."""
        self._moved_ms = now_ms
        self._judged = RotatingHistogram(*self._window)
        self._executed = RotatingHistogram(*self._window)

    def asked(self, now_ms: float) -> None:
        """Somebody asked for something, let in or not."""
        self._asked.add(1, now_ms)

    def executed(self, service_ms: float, entries: int, now_ms: float) -> None:
        """A batch of `entries` was answered."""
        self._executed.record(service_ms, now_ms)
        self._answered.add(entries, now_ms)
        self._any_answer = True

    def waited(self, arrived_ms: float, now_ms: float) -> None:
        """A request that came at `arrived_ms` ended now: answered, or expired in the queue."""
        self._shown.record(now_ms - arrived_ms, now_ms)
        if arrived_ms >= self._moved_ms:
            self._judged.record(now_ms - arrived_ms, now_ms)

    def shown(self, now_ms: float) -> LogHistogram:
        return self._shown.merged(now_ms)

    def judged_p95_ms(self, least: int, now_ms: float) -> float | None:
        """p95 since the last move, or None under `least` samples."""
        judged = self._judged.merged(now_ms)
        return judged.quantile(0.95) if judged.count >= least else None

    def execution_p95_ms(self, now_ms: float) -> float | None:
        """p95 of execution alone, since the last move."""
        return self._executed.quantile(0.95, now_ms)

    def demand_per_s(self, now_ms: float) -> float:
        return self._asked.per_second(now_ms)

    def throughput_per_s(self, now_ms: float) -> float | None:
        """Answers a second; None before the first of all."""
        return self._answered.per_second(now_ms) if self._any_answer else None

    def count_use(self, in_use: int, now_ms: float) -> None:
        """`in_use` slots were in use until now. Call before that number changes."""
        self._busy_ms += (now_ms - self._counted_ms) * in_use
        self._counted_ms = now_ms

    def take_use_ratio(self, in_use: int, now_ms: float) -> float | None:
        """Share of the slots' time in use since the last call."""
        self.count_use(in_use, now_ms)
        span_ms = now_ms - self._since_ms
        if span_ms <= 0.0:
            return None
        ratio = self._busy_ms / (span_ms * self._slots)
        self._busy_ms, self._since_ms = 0.0, now_ms
        return min(1.0, ratio)
