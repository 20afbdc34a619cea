"""The four rules by which a replica moves its own limits, every two seconds.

    1 contention  p95 > SLO and busy > 85 %           fewer workers, smaller batches
    2 overload    p95 > SLO and the queue growing     admission control on
    3 headroom    p95 < 0.7 SLO and busy < 60 %       more workers, larger batches again;
                                                      admission control off
    4 memory      memory > 85 %                       smaller batches, whatever else holds

`p95` is of queue wait + execution over the last seconds. `busy` is the use of the device that
does the work: the machine's CPU where the work is done by it. Where p95 or busy is unknown
nothing is decided: absent is not zero, and a controller that reads "no traffic" as "fast"
grows into the next burst.

What the bare rules do badly, and what is done about it here:
- Fewer workers and smaller batches shorten execution and cost throughput. So rule 1 holds only
  where execution is at least half of p95 and of the SLO. Against a backlog it would feed what
  it fights: there rule 2 holds, be the queue still growing or just long.
- A smaller batch must still carry the demand: `batch_floor`, from the fitted batch time, stops
  the cuts where throughput would fall below what is asked for.
- The p95 that is judged is of requests that came after the last move, so that no move is
  repeated because of victims of the state before it.
- An overload is seen when the *forecast* passes the SLO, before a window of late answers
  proves it: `alarm` allows a decision between two ticks.
- Admission control goes off on evidence that it is not needed (next to nothing refused for
  `quiet_ms` and p95 < 0.7 SLO, or twice as long and p95 within it), be the device busy or not.
  A relapse within a minute doubles the quiet it takes the next time, so that it does not flap,
  up to 4 s, so that it does not latch.
- After a cut nothing grows for `regrow_hold_ms` unless work is refused: at most two sign
  changes a minute. But where work is late or refused while the device idles, the cut was a
  mistake: the worker comes back at the next tick, and rule 1 leaves the workers alone for
  `relapse_ms`. And the batch grows back however busy the device is: small batches are one
  reason for its being busy.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from engine.errors import InvalidInput, require_positive, require_range


class Rule(StrEnum):
    """Which rule a decision followed."""

    HOLD = "hold"
    NO_DATA = "no_data"
    CONTENTION = "contention"
    OVERLOAD = "overload"
    HEADROOM = "headroom"
    MEMORY = "memory"


@dataclass(slots=True, frozen=True, kw_only=True)
class RegulationConfig:
    """The objective, the room to move in, and the thresholds of the four rules."""

    slo_ms: float = 150.0
    max_workers: int = 4  # the ceiling, and where it starts
    min_workers: int = 1
    batch_size: int = 8  # the ceiling, and where it starts
    min_batch_size: int = 1
    interval_ms: float = 2000.0
    busy_ratio: float = 0.85
    calm_ratio: float = 0.60
    calm_latency_ratio: float = 0.7
    memory_ratio: float = 0.85
    shrink_ratio: float = 0.75  # of the batch size, per cut
    execution_ratio: float = 0.5  # of p95 and of the SLO: from here on execution is too long
    regrow_hold_ms: float = 30_000.0
    alarm_ratio: float = 0.9  # of the SLO: a longer forecast is as good as a late answer
    alarm_hold_ms: float = 150.0  # how long it must last, and the least time between decisions
    quiet_ms: float = 1000.0
    quiet_max_ms: float = 4000.0
    quiet_refused_ratio: float = 0.02  # a refusal now and then is still quiet
    relapse_ms: float = 60_000.0

    def __post_init__(self) -> None:
        for name in ("slo_ms", "interval_ms", "quiet_ms", "quiet_max_ms", "alarm_hold_ms"):
            require_positive(name, getattr(self, name), unit="ms")
        for name in ("busy_ratio", "calm_ratio", "calm_latency_ratio", "memory_ratio"):
            require_range(name, getattr(self, name), 0.01, 1.0)
        require_range("execution_ratio", self.execution_ratio, 0.0, 1.0)
        require_range("quiet_refused_ratio", self.quiet_refused_ratio, 0.0, 0.5)
        require_range("alarm_ratio", self.alarm_ratio, 0.1, 10.0)
        require_range("shrink_ratio", self.shrink_ratio, 0.1, 0.99)
        require_range("regrow_hold_ms", self.regrow_hold_ms, 0.0, unit="ms")
        require_range("relapse_ms", self.relapse_ms, 0.0, unit="ms")
        require_range("max_workers", self.max_workers, 1, 65_536)
        require_range("batch_size", self.batch_size, 1, 4096)
        require_range("min_workers", self.min_workers, 1, self.max_workers)
        require_range("min_batch_size", self.min_batch_size, 1, self.batch_size)
        if self.calm_ratio >= self.busy_ratio:
            raise InvalidInput("calm_ratio", self.calm_ratio, "must be below busy_ratio")


@dataclass(slots=True, frozen=True, kw_only=True)
class Observation:
    """What one decision rests on. None is "not known"."""

    p95_ms: float | None
    busy_ratio: float | None
    memory_ratio: float | None
    queue_depth: int
    queue_room: int  # places still free
    round_size: int  # entries that all slots together take at once
    execution_ms: float | None = None  # the p95 of execution alone
    batch_floor: int = 1  # the smallest batch size that still carries the demand
    forecast_ms: float | None = None
    refused: int = 0  # by admission control, since the last decision
    subject: int = 0  # requests that admission control could have refused, since then


@dataclass(slots=True, frozen=True, kw_only=True)
class Regulation:
    """A decision: the limits as they now are, why, and the numbers compared."""

    rule: Rule
    text: str
    changed: bool
    max_workers: int
    batch_size: int
    admission_control: bool
    at_ms: float
    numbers: dict[str, float | None] = field(default_factory=dict)


class RegulationController:
    """Holds the limits between decisions. `last_change` is the last decision that moved one."""

    def __init__(self, config: RegulationConfig) -> None:
        self.config = config
        self.max_workers = config.max_workers
        self.batch_size = config.batch_size
        self.admission_control = False
        self.last: Regulation | None = None
        self.last_change: Regulation | None = None
        self._alarm_since_ms: float | None = None
        self._depth_before = 0
        self._cut_ms: float | None = None
        self._gate_off_ms: float | None = None
        self._workers_needed_until_ms = 0.0
        self._quiet_since_ms = 0.0
        self._quiet_needed_ms = config.quiet_ms

    def alarm(self, forecast_ms: float | None, now_ms: float) -> bool:
        """Whether a forecast calls for a decision now, between two ticks. Ask at each arrival."""
        if forecast_ms is None or forecast_ms <= self.config.alarm_ratio * self.config.slo_ms:
            self._alarm_since_ms = None
            return False
        if self._alarm_since_ms is None:
            self._alarm_since_ms = now_ms
        if self.admission_control or not self._alarmed(now_ms):
            return False
        return self.last is None or now_ms - self.last.at_ms >= self.config.alarm_hold_ms

    def decide(self, seen: Observation, now_ms: float) -> Regulation:
        """Apply the rules to what was seen, move the limits, and say why."""
        before = (self.max_workers, self.batch_size, self.admission_control)
        growing = self._growing(seen)
        self._depth_before = seen.queue_depth
        if seen.refused > self.config.quiet_refused_ratio * seen.subject:
            self._quiet_since_ms = now_ms
        rule, text = self._apply(seen, growing, now_ms)
        changed = before != (self.max_workers, self.batch_size, self.admission_control)
        decision = Regulation(
            rule=rule,
            text=text,
            changed=changed,
            max_workers=self.max_workers,
            batch_size=self.batch_size,
            admission_control=self.admission_control,
            at_ms=now_ms,
            numbers={
                "p95_ms": seen.p95_ms,
                "execution_ms": seen.execution_ms,
                "slo_ms": self.config.slo_ms,
                "busy_ratio": seen.busy_ratio,
                "memory_ratio": seen.memory_ratio,
                "queue_depth": seen.queue_depth,
                "forecast_ms": seen.forecast_ms,
                "refused": seen.refused,
            },
        )
        self.last = decision
        if changed:
            self.last_change = decision
        return decision

    def _alarmed(self, now_ms: float) -> bool:
        since_ms = self._alarm_since_ms
        return since_ms is not None and now_ms - since_ms >= self.config.alarm_hold_ms

    def _growing(self, seen: Observation) -> bool:
        """At least half a round waits, and more than before, or there is no room left."""
        if 2 * seen.queue_depth < seen.round_size:
            return False
        return seen.queue_depth > self._depth_before or seen.queue_room == 0

    def _apply(self, seen: Observation, growing: bool, now_ms: float) -> tuple[Rule, str]:
        config = self.config
        if seen.p95_ms is None or seen.busy_ratio is None:
            missing = "p95" if seen.p95_ms is None else "busy"
            return Rule.NO_DATA, f"no decision: {missing} is not known yet"
        p95_ms, busy = seen.p95_ms, seen.busy_ratio
        late = p95_ms > config.slo_ms or (growing and self._alarmed(now_ms))
        facts = f"p95 {p95_ms:.0f} ms, SLO {config.slo_ms:.0f} ms, busy {busy:.0%}"
        rule, text = Rule.HOLD, f"hold: {facts}"
        execution_ms = seen.execution_ms or 0.0
        slow = execution_ms >= config.execution_ratio * max(p95_ms, config.slo_ms)
        wanting = seen.refused > 0 or p95_ms > config.slo_ms
        backlog = growing or (not slow and seen.queue_depth >= seen.round_size / 2)
        if late and backlog and not self.admission_control:
            rule, text = Rule.OVERLOAD, self._close_gate(seen, facts, now_ms)
        elif p95_ms > config.slo_ms and busy > config.busy_ratio and slow:
            rule, text = Rule.CONTENTION, self._cut(seen.batch_floor, facts, now_ms)
        elif wanting and busy < config.calm_ratio and self._restore(now_ms):
            rule = Rule.HEADROOM
            text = f"headroom: {facts}, {seen.refused} refused: workers back to {self.max_workers}"
        else:
            calm = p95_ms < config.calm_latency_ratio * config.slo_ms
            eased = self._open_gate(calm, now_ms) if p95_ms <= config.slo_ms else []
            if calm:
                eased += self._grow(seen, busy, now_ms)
            if eased:
                rule, text = Rule.HEADROOM, f"headroom: {facts}: {', '.join(eased)}"
        if seen.memory_ratio is not None and seen.memory_ratio > config.memory_ratio:
            smaller = self._smaller_batch(config.min_batch_size)
            self._cut_ms = now_ms
            if smaller:
                memory = f"memory {seen.memory_ratio:.0%} > {config.memory_ratio:.0%}: {smaller}"
                text = memory if rule is Rule.HOLD else f"{text}; {memory}"
                rule = Rule.MEMORY if rule is Rule.HOLD else rule
        return rule, text

    def _close_gate(self, seen: Observation, facts: str, now_ms: float) -> str:
        relapsed = (
            self._gate_off_ms is not None and now_ms - self._gate_off_ms < self.config.relapse_ms
        )
        longer_ms = min(2 * self._quiet_needed_ms, self.config.quiet_max_ms)
        self._quiet_needed_ms = longer_ms if relapsed else self.config.quiet_ms
        self._quiet_since_ms = now_ms
        self.admission_control = True
        forecast = "-" if seen.forecast_ms is None else f"{seen.forecast_ms:.0f} ms"
        return (
            f"overload: {facts}, forecast {forecast}, queue {seen.queue_depth}: "
            "admission control on"
        )

    def _cut(self, batch_floor: int, facts: str, now_ms: float) -> str:
        moves = []
        needed = now_ms < self._workers_needed_until_ms
        if self.max_workers > self.config.min_workers and not needed:
            moves.append(f"workers {self.max_workers} -> {self.max_workers - 1}")
            self.max_workers -= 1
        moves.append(self._smaller_batch(batch_floor))
        self._cut_ms = now_ms
        return f"contention: {facts}: {', '.join(m for m in moves if m) or 'already at the floor'}"

    def _restore(self, now_ms: float) -> bool:
        if self.max_workers >= self.config.max_workers:
            return False
        self.max_workers += 1
        self._workers_needed_until_ms = now_ms + self.config.relapse_ms
        return True

    def _smaller_batch(self, floor: int) -> str:
        floor = max(floor, self.config.min_batch_size)
        smaller = max(floor, int(self.batch_size * self.config.shrink_ratio))
        if smaller >= self.batch_size:
            return ""
        move = f"batch {self.batch_size} -> {smaller}"
        self.batch_size = smaller
        return move

    def _open_gate(self, calm: bool, now_ms: float) -> list[str]:
        """Admission control off where it was not needed for long enough."""
        needed_ms = self._quiet_needed_ms * (1 if calm else 2)
        if not self.admission_control or now_ms - self._quiet_since_ms < needed_ms:
            return []
        self.admission_control = False
        self._gate_off_ms = now_ms
        return ["admission control off"]

    def _grow(self, seen: Observation, busy: float, now_ms: float) -> list[str]:
        """Give back the workers and batch places that earlier rules took."""
        config = self.config
        grown: list[str] = []
        held = self._cut_ms is not None and now_ms - self._cut_ms < config.regrow_hold_ms
        if held and not seen.refused:
            return grown
        if busy < config.calm_ratio and self.max_workers < config.max_workers:
            grown.append(f"workers {self.max_workers} -> {self.max_workers + 1}")
            self.max_workers += 1
        memory_is_fine = seen.memory_ratio is None or seen.memory_ratio < config.memory_ratio
        if self.batch_size < config.batch_size and memory_is_fine:
            larger = min(config.batch_size, self.batch_size + max(1, self.batch_size // 2))
            grown.append(f"batch {self.batch_size} -> {larger}")
            self.batch_size = larger
        return grown
