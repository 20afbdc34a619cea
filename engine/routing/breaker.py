"""Is this replica broken? A breaker opens on evidence, closes on proof.

    closed --(a run of faults, or a fault ratio surely above 20 %)--> open
    open --(backoff over)--> half open: exactly k probes at a time
    half open --(3 successes)--> closed          half open --(a fault)--> open, longer

*A run* is 5 faults in a row, or more where the replica's recent fault ratio p makes five a
matter of chance: p^run <= 1e-9. At 5 % random errors and a thousand requests a second, five
in a row come by every hour, and ejecting a good replica for it helps nobody. *Surely* is the
lower Wilson bound over the last 30 s, with at least 20 samples. *Backoff* is 1 s, doubled at
each failure up to `max_backoff_ms`, jittered so that gateways do not probe in step; it goes
on where it stood if the breaker opens again within the window.

Each opening and closing starts a new generation. A lease carries the generation it was taken
in, and an answer of an older one changes nothing: forty requests sent before the trip would
otherwise close, or reopen, a breaker they know nothing about. Backpressure, client errors and
cancellations never count; a probe that ends so just returns its permit.

`wedged` is a trip by silence: answers miss their deadlines and not one byte comes. A probe
of a hanging replica costs some client its deadline, not two milliseconds, so there the
backoff may grow to 30 s.
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, log, sqrt

from engine.errors import require_positive, require_range
from engine.outcomes import Outcome
from engine.routing.eligibility import WhyNot
from engine.stats.window import RotatingCounter


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(slots=True, frozen=True, kw_only=True)
class BreakerConfig:
    """When to open, for how long, and what it takes to close again."""

    run: int = 5
    max_run: int = 12
    chance: float = 1e-9  # a run that chance explains better than this does not trip
    fault_ratio: float = 0.20
    min_samples: int = 20
    confidence_z: float = 2.58  # 99.5 % one-sided: it is looked at again at every fault
    window_ms: float = 30_000.0
    backoff_ms: float = 1_000.0
    max_backoff_ms: float = 4_000.0
    max_wedged_backoff_ms: float = 30_000.0
    jitter_ratio: float = 0.2
    probes: int = 1
    successes_to_close: int = 3
    silences: int = 3  # deadlines missed without a byte until it counts as wedged

    def __post_init__(self) -> None:
        require_range("run", self.run, 1, self.max_run)
        require_range("chance", self.chance, 1e-15, 0.5)
        require_range("fault_ratio", self.fault_ratio, 0.01, 1.0)
        require_range("min_samples", self.min_samples, 1)
        require_range("confidence_z", self.confidence_z, 0.0, 6.0)
        require_positive("window_ms", self.window_ms, unit="ms")
        require_positive("backoff_ms", self.backoff_ms, unit="ms")
        require_range("max_backoff_ms", self.max_backoff_ms, self.backoff_ms, unit="ms")
        require_range("max_wedged_backoff_ms", self.max_wedged_backoff_ms, self.max_backoff_ms)
        require_range("jitter_ratio", self.jitter_ratio, 0.0, 0.9)
        require_range("probes", self.probes, 1, 100)
        require_range("successes_to_close", self.successes_to_close, 1, 100)
        require_range("silences", self.silences, 1, 100)


@dataclass(slots=True, frozen=True)
class Evidence:
    """What was counted when it last opened or closed; `probe` where a probe decided."""

    faults: float = 0.0
    samples: float = 0.0
    run: int = 0
    silences: int = 0
    successes: int = 0
    probe: bool = False


class Breaker:
    """The breaker of one replica. `record` says how an attempt ended, once per attempt."""

    __slots__ = (
        "_closed_at_ms",
        "_config",
        "_faults",
        "_level",
        "_out",
        "_rng",
        "_run",
        "_samples",
        "_silences",
        "_successes",
        "cause",
        "evidence",
        "generation",
        "open_until_ms",
        "state",
        "trips",
    )

    def __init__(self, config: BreakerConfig, rng: random.Random) -> None:
        self._config = config
        self._rng = rng
        self._faults = RotatingCounter(config.window_ms, 10)
        self._samples = RotatingCounter(config.window_ms, 10)
        self.state = BreakerState.CLOSED
        self.cause = WhyNot.BREAKER_OPEN
        self.evidence = Evidence()
        self.generation = 0
        self.trips = 0
        self.open_until_ms = 0.0
        self._closed_at_ms: float | None = None
        self._level = 0  # how often the backoff has been doubled
        self._run = 0  # faults in a row
        self._silences = 0  # missed deadlines in a row without a byte
        self._successes = 0  # since it opened
        self._out = 0  # probes under way

    # -- asking ----------------------------------------------------------------------

    def why_not(self, now_ms: float) -> WhyNot | None:
        """Why nothing may be sent now, or None."""
        if self.state is BreakerState.CLOSED:
            return None
        if self.state is BreakerState.OPEN:
            if now_ms < self.open_until_ms:
                return self.cause
            self._half_open()
        return None if self._out < self._config.probes else WhyNot.PROBING

    def fault_ratio(self, now_ms: float) -> float | None:
        """Share of faults over the window; None without samples."""
        samples = self._samples.total(now_ms)
        return self._faults.total(now_ms) / samples if samples else None

    # -- telling ---------------------------------------------------------------------

    def take(self) -> bool:
        """A request is being sent. True where it is a probe and holds a permit."""
        if self.state is not BreakerState.HALF_OPEN or self._out >= self._config.probes:
            return False
        self._out += 1
        return True

    def record(
        self, outcome: Outcome, *, probe: bool, generation: int, silent: bool, now_ms: float
    ) -> None:
        """An attempt of this generation ended; `silent` where it ended without a byte."""
        if generation != self.generation:
            return
        if probe:
            self._out -= 1
        if outcome is Outcome.SUCCESS:
            self._silences = 0
            self._run = 0
            self._samples.add(1, now_ms)
            if self.state is not BreakerState.CLOSED:
                self._successes += 1
                if self._successes >= self._config.successes_to_close:
                    self._close(now_ms)
        elif outcome is Outcome.FAULT:
            self._silences = 0
            self._run += 1
            self._samples.add(1, now_ms)
            self._faults.add(1, now_ms)
            self._failed(probe, WhyNot.BREAKER_OPEN, now_ms)
        elif outcome is Outcome.DEADLINE:
            if silent:
                self._silences += 1
                self._failed(probe, WhyNot.WEDGED, now_ms)
        elif outcome is not Outcome.CANCELLED:
            self._silences = 0  # it answered, if only to say no

    def hint(self) -> None:
        """Something else says that it is back: let the probes through now."""
        if self.state is BreakerState.OPEN:
            self._half_open()

    def forget(self) -> None:
        """Another process answers under this name: start afresh, and ignore old answers."""
        self.state = BreakerState.CLOSED
        self._level = 0
        self._closed_at_ms = None
        self._start_generation()

    # -- moving ----------------------------------------------------------------------

    def _failed(self, probe: bool, cause: WhyNot, now_ms: float) -> None:
        self._successes = 0
        if self.state is BreakerState.HALF_OPEN:
            if probe:
                self._open(cause, now_ms)
        elif self.state is BreakerState.CLOSED:
            if cause is WhyNot.WEDGED:
                if self._silences >= self._config.silences:
                    self._open(cause, now_ms)
            elif self._is_broken(now_ms):
                self._open(cause, now_ms)

    def _is_broken(self, now_ms: float) -> bool:
        config = self._config
        run = self._run
        faults = self._faults.total(now_ms)
        samples = self._samples.total(now_ms)
        if run >= config.run and run >= self._run_beyond_chance(faults - run, samples - run):
            return True
        if samples < config.min_samples or faults < samples * config.fault_ratio:
            return False
        return _wilson_lower(faults, samples, config.confidence_z) > config.fault_ratio

    def _run_beyond_chance(self, faults: float, samples: float) -> int:
        """How many faults in a row chance does not explain, given those before the run."""
        config = self._config
        if faults <= 0 or samples < config.min_samples:
            return config.run
        ratio = min(faults / samples, 0.99)
        return min(max(config.run, ceil(log(config.chance) / log(ratio))), config.max_run)

    def _open(self, cause: WhyNot, now_ms: float) -> None:
        config = self._config
        if self.state is BreakerState.CLOSED:
            closed_at_ms = self._closed_at_ms
            if closed_at_ms is None or now_ms - closed_at_ms > config.window_ms:
                self._level = 0
            self.trips += 1
        wedged = cause is WhyNot.WEDGED
        longest_ms = config.max_wedged_backoff_ms if wedged else config.max_backoff_ms
        backoff_ms = min(config.backoff_ms * 2.0**self._level, longest_ms)
        jitter = 1.0 + config.jitter_ratio * (2.0 * self._rng.random() - 1.0)
        self._level = min(self._level + 1, 30)
        self._note(now_ms)
        self.state = BreakerState.OPEN
        self.cause = cause
        self.open_until_ms = now_ms + backoff_ms * jitter
        self._start_generation()

    def _half_open(self) -> None:
        self.state = BreakerState.HALF_OPEN
        self._out = 0
        self._successes = 0

    def _close(self, now_ms: float) -> None:
        self._note(now_ms)
        self.state = BreakerState.CLOSED
        self._closed_at_ms = now_ms
        self._start_generation()

    def _note(self, now_ms: float) -> None:
        self.evidence = Evidence(
            self._faults.total(now_ms),
            self._samples.total(now_ms),
            self._run,
            self._silences,
            self._successes,
            self.state is not BreakerState.CLOSED,
        )

    def _start_generation(self) -> None:
        self.generation += 1
        self._out = self._run = self._silences = self._successes = 0
        self._faults = RotatingCounter(self._config.window_ms, 10)
        self._samples = RotatingCounter(self._config.window_ms, 10)


def _wilson_lower(faults: float, samples: float, z: float) -> float:
    """Lower bound of the fault ratio at confidence `z` (Wilson 1927)."""
    ratio = faults / samples
    zz = z * z / samples
    spread = z * sqrt((ratio * (1.0 - ratio) + zz / 4.0) / samples)
    return (ratio + zz / 2.0 - spread) / (1.0 + zz)
