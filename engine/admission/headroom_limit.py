"""SLO headroom: how many in flight keep the p95 just inside the objective?

    every second:  e = clip((0.8 SLO - p95) / SLO, -1, 1);  L = L x (1 + 0.5 e)

The controlled value is the one that was promised: end-to-end p95 against the SLO. Policies
that compare a short with a long latency average read batching as queueing (a batch of 32 is
slower than a batch of 1, and better), and drift in overload, because the long average learns
the overload. This one has a fixed reference, so thirty minutes of overload end where the
first minute did.

The p95 counts a request that ran out of time as what is known of it: it would have taken
longer than it waited (Kaplan-Meier, `engine.stats.censored`). A client that gave the fleet
120 ms says nothing against an SLO of 900, one that waited for 900 does.

States. *Under the SLO and full*: grows, faster the more headroom there is. *Under the SLO
and not full* (in flight < 0.8 L): holds, since growth without demand is a limit that nobody
tested; so L never passes 1.9 x the largest in flight. *Over it*: shrinks, at most by half a
second, unless hardly anybody is late: a planner that uses every deadline to the last
millisecond has a p95 just below the SLO, and fewer in flight only leave it less to choose
from. *Too little finished*: holds, since silence is not evidence; and what was seen
is used once, or one bad second would shrink a quiet model ten times over. *Timeouts*: once the
p95 lies beyond all that ended it counts as twice the SLO, and the limit falls to its floor,
one batch. *Shrinking in vain*: undone (`engine.admission.reach`). After a version or hardware
change the fleet's size and the work it did so far tell its capacity before any latency does:
`expect` lifts the limit to two requests for each place, or half of what the rate implies, and
keeps it there until the latencies have caught up.
"""

from dataclasses import dataclass

from engine.admission.limit import DROPS
from engine.admission.reach import Reach
from engine.errors import InvalidInput, require_positive, require_range
from engine.outcomes import Outcome
from engine.stats.censored import censored_quantile, censored_share_above
from engine.stats.histogram import LogHistogram


@dataclass(slots=True, frozen=True, kw_only=True)
class HeadroomConfig:
    """Every knob of the policy, with its range."""

    initial: float = 256.0  # high: nobody is refused before there is evidence
    floor: float = 32.0  # one batch; `expect` replaces it by the fleet's own
    ceiling: float = 65_536.0
    target_ratio: float = 0.8  # of the SLO: where the p95 is steered to
    gain: float = 0.5
    full_ratio: float = 0.8  # of the limit: in flight below this is no reason to grow
    late_ratio: float = 0.02  # of the requests: fewer beyond the SLO are no reason to shrink
    drop_ratio: float = 2.0  # of the SLO: what a p95 beyond all answers counts as
    enough_samples: int = 40  # a p95 of fewer waits for more
    patience_ms: float = 10_000.0  # but no longer than this
    settle_ms: float = 5000.0  # how long the feed-forward floor holds

    def __post_init__(self) -> None:
        require_range("floor", self.floor, 1.0)
        require_range("initial", self.initial, 1.0)
        require_range("target_ratio", self.target_ratio, 0.1, 1.0)
        require_range("gain", self.gain, 0.01, 1.0)
        require_range("full_ratio", self.full_ratio, 0.0, 1.0)
        require_range("late_ratio", self.late_ratio, 0.0, 0.05)
        require_range("drop_ratio", self.drop_ratio, 1.0)
        require_range("enough_samples", self.enough_samples, 1)
        require_range("patience_ms", self.patience_ms, 0.0, unit="ms")
        require_range("settle_ms", self.settle_ms, 0.0, unit="ms")
        if self.ceiling < self.floor:
            raise InvalidInput("ceiling", self.ceiling, f"must be >= floor ({self.floor:g})")


class HeadroomLimit:
    """Steers the p95 to just inside the SLO by the number of requests in flight."""

    __slots__ = (
        "_answered",
        "_config",
        "_floor",
        "_given_up",
        "_lifted",
        "_lifted_until_ms",
        "_p95_ms",
        "_reach",
        "_since_ms",
        "reason",
        "slo_ms",
        "value",
    )

    policy = "headroom"

    def __init__(self, slo_ms: float, config: HeadroomConfig | None = None) -> None:
        self._config = config or HeadroomConfig()
        self.slo_ms = require_positive("slo_ms", slo_ms, unit="ms")
        self._floor = self._config.floor
        self.value = max(self._config.initial, self._floor)
        self.reason = "initial: no latency seen yet"
        self._answered = LogHistogram()
        self._given_up = LogHistogram()
        self._p95_ms: float | None = None
        self._since_ms: float | None = None
        self._reach = Reach()
        self._lifted = 0.0
        self._lifted_until_ms = 0.0

    def observe(self, latency_ms: float, outcome: Outcome, now_ms: float) -> None:
        if outcome is Outcome.SUCCESS:
            self._answered.record(latency_ms)
        elif outcome in DROPS:
            self._given_up.record(latency_ms)

    def tick(self, in_flight: int, now_ms: float) -> None:
        config = self._config
        ended = self._answered.count + self._given_up.count
        if not ended:
            self.reason = "held: nothing finished lately"
            self._since_ms = now_ms
            return
        if self._since_ms is None:
            self._since_ms = now_ms
        if ended < config.enough_samples and now_ms - self._since_ms < config.patience_ms:
            self.reason = f"held: only {ended} requests ended so far"
            return
        p95_ms = self._p95_ms = censored_quantile(self._answered, self._given_up, 0.95)
        late_ratio = censored_share_above(self._answered, self._given_up, self.slo_ms)
        self._answered.clear()
        self._given_up.clear()
        self._since_ms = now_ms
        wanted_ms = config.target_ratio * self.slo_ms
        floor = max(self._floor, self._lifted if now_ms < self._lifted_until_ms else 0.0)
        before = self.value
        if p95_ms is None:
            p95_ms = config.drop_ratio * self.slo_ms
            self._reach.forget()
        else:
            at_floor = before <= floor
            back_to = self._reach.learn(
                in_flight, p95_ms, before, wanted_ms, now_ms, at_floor=at_floor
            )
            if back_to is not None:
                self.value = max(before, back_to)
                self.reason = (
                    f"restored: fewer in flight did not help, a p95 of {p95_ms:.0f} ms is what "
                    f"this work takes, {before:.0f} -> {self.value:.0f}"
                )
                return
        target_ms = self._reach.target_ms(wanted_ms)
        error = (target_ms - p95_ms) / self.slo_ms
        error = min(1.0, max(-1.0, error))
        told = f"p95 {p95_ms:.0f} ms against {target_ms:.0f} ms"
        if error > 0.0 and in_flight < config.full_ratio * before:
            self.reason = f"held: {told}, but only {in_flight} of {before:.0f} in flight"
            return
        if error < 0.0 and late_ratio <= config.late_ratio:
            self.reason = f"held: {told}, but only {late_ratio:.1%} were late"
            return
        after = before * (1.0 + config.gain * error)
        if error < 0.0:
            after = max(after, min(before, self._reach.lowest()))
        self.value = min(max(after, floor), config.ceiling)
        verb = "grew" if self.value > before else "shrank" if self.value < before else "held"
        self.reason = f"{verb}: {told}, {before:.0f} -> {self.value:.0f}"

    def expect(
        self, requests_per_s: float | None, places: int, batch_size: int, now_ms: float
    ) -> None:
        self._floor = max(1.0, float(batch_size))
        half = 0.0 if requests_per_s is None else 0.5 * requests_per_s * self.slo_ms / 1000.0
        self._lifted = min(max(self._floor, 2.0 * places, half), self._config.ceiling)
        self._lifted_until_ms = now_ms + self._config.settle_ms
        if self._lifted > self.value:
            self.value = self._lifted
            told = "" if requests_per_s is None else f" and should manage {requests_per_s:.0f}/s"
            self.reason = f"lifted: the fleet runs {places} at once{told}"

    def p95_ms(self, now_ms: float) -> float | None:
        return self._p95_ms
