"""Is the objective within reach of admission at all?

Fewer in flight shorten the queue, not the work. Where the work alone takes longer than the
SLO (a language model with an SLO set for an embedder; one request in ten that takes 800 ms),
a controller that shrinks until the p95 is met shrinks to its floor, refuses nearly everything
and gains nothing. So every shrinking is also an experiment:

    from n0 in flight with a p95 of p0, down to n <= 0.8 n0 with a p95 of p, one p later;
    it helped when  1 - p/p0 >= 0.5 (1 - n/n0)

A queue would have given nearly all of it. Where it did not help, the limit goes back to where
the experiment began and steers to 1.1 p instead, so that it still answers to real queueing
on top. At the floor nothing less can be tried: the p95 found there is what is within reach.
A minute later (two, four, ... if in vain), or when the p95 falls, the objective is believed
in again.
"""

_CONTRAST = 0.8  # of the in-flight at the start: enough of a change to see an effect
_LOWEST = 0.75  # of the same: no further down before the effect is seen
_HELPED = 0.5  # of the reduction must show in the p95
_WORSE = 1.15  # times the p95 at the start: something else is going on, start again
_SLACK = 1.1  # over the p95 that was found to be within reach
_BELIEVE_AGAIN_MS = 60_000.0  # doubled each time the experiment ends the same way
_BELIEVE_AT_LAST_MS = 3_600_000.0


class Experiment:
    """A shrinking under observation: where it began, and since when it has gone far enough."""

    __slots__ = ("in_flight", "limit", "low_ms", "p95_ms")

    def __init__(self, in_flight: int, p95_ms: float, limit: float) -> None:
        self.in_flight = in_flight
        self.p95_ms = p95_ms
        self.limit = limit
        self.low_ms: float | None = None


class Reach:
    """Watches the limit shrink and says when that is pointless."""

    __slots__ = ("_experiment", "_found_ms", "_patience_ms", "within_ms")

    def __init__(self) -> None:
        self.within_ms: float | None = None  # the p95 that admission can reach; None: the SLO
        self._found_ms = 0.0
        self._patience_ms = _BELIEVE_AGAIN_MS
        self._experiment: Experiment | None = None

    def target_ms(self, wanted_ms: float) -> float:
        """What to steer the p95 to: what is wanted, or what is within reach."""
        return wanted_ms if self.within_ms is None else max(wanted_ms, self.within_ms * _SLACK)

    def forget(self) -> None:
        """What was learned is void: requests time out, or the objective changed."""
        self.within_ms = None
        self._experiment = None
        self._patience_ms = _BELIEVE_AGAIN_MS

    def lowest(self) -> float:
        """How far to shrink before the running experiment has been judged."""
        experiment = self._experiment
        return 0.0 if experiment is None else _LOWEST * experiment.in_flight

    def learn(
        self,
        in_flight: int,
        p95_ms: float,
        limit: float,
        wanted_ms: float,
        now_ms: float,
        *,
        at_floor: bool = False,
    ) -> float | None:
        """Take in one tick. Returns the limit to go back to where shrinking was pointless."""
        if self.within_ms is not None:
            if p95_ms < wanted_ms * _CONTRAST:
                self.forget()
            elif now_ms - self._found_ms >= self._patience_ms:
                self.within_ms = None
                self._patience_ms = min(2.0 * self._patience_ms, _BELIEVE_AT_LAST_MS)
        if p95_ms <= self.target_ms(wanted_ms):
            self._experiment = None
            return None
        experiment = self._experiment
        if experiment is None or p95_ms > _WORSE * experiment.p95_ms:
            self._experiment = Experiment(in_flight, p95_ms, limit)
            return None
        enough = in_flight <= _CONTRAST * experiment.in_flight
        if not enough and not at_floor:
            experiment.low_ms = None
            return None
        if experiment.low_ms is None:
            experiment.low_ms = now_ms
        if now_ms - experiment.low_ms < p95_ms:
            return None
        reduction = 1.0 - in_flight / experiment.in_flight
        if enough and 1.0 - p95_ms / experiment.p95_ms >= _HELPED * reduction:
            self._experiment = Experiment(in_flight, p95_ms, limit)
            return None
        self.within_ms = p95_ms
        self._found_ms = now_ms
        self._experiment = None
        return experiment.limit
