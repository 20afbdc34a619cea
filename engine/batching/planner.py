"""The goodput planner: which requests ride together now, on the device that is free.

It composes the parts, one decision each:

    plan.py           how long a slot is, and which sizes are worth serving (every 0.4 s)
    queues.py         TIGHT, FILL, BIG: who joins first (token pools)
    length_queues.py  members of like length together (padded pools)
    queue.py          earliest deadline first (pools of one request at a time)
    form.py           whether one more request still fits this batch
    patience.py       go now, or wait for the clients that were just answered
    lanes.py          bulk work, and how it gets its turn
    lottery.py        who is weighed as if it were small
    agenda.py         when time alone makes an entry tight, or hopeless

Below saturation this is earliest deadline first; past it, goodput per device-millisecond.
Devices pull: a fleet has one planner per model version and a cost model for each replica.
No request is refused for its size on arrival: each waits until no device can serve it in
time any more, and is handed back by `expire` at that moment. Offering costs O(log n).
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.batching.agenda import Agenda
from engine.batching.arrivals import ArrivalRing
from engine.batching.feasibility import latest_start_ms
from engine.batching.form import Draft
from engine.batching.former import BatchPlan, Device, Queued, Wait
from engine.batching.halves import Halves
from engine.batching.lanes import BulkLane, LaneConfig
from engine.batching.length_queues import LengthQueues
from engine.batching.lottery import SizeLottery
from engine.batching.patience import Patience
from engine.batching.plan import SlotPlan, first_plan, make_plan
from engine.batching.queue import EdfQueue, Queue
from engine.batching.queues import TIGHT_SLOTS, SlotQueues
from engine.batching.scouts import scouts
from engine.errors import InvalidInput, require_positive, require_range
from engine.types import FlushReason, Lane, WorkUnit

_REPLAN_ARRIVALS = 64  # a plan is not worth making anew for fewer
_REPLAN_PER_DEVICE_MS = 2.0
_CONFIRMED_MS = 10_000.0  # predictions that nothing confirmed for so long refuse nobody


@dataclass(slots=True, frozen=True, kw_only=True)
class PlannerConfig:
    """Knobs of the planner.

    `overrun_ratio` is how much longer than the slot a batch may be if every member still
    makes its deadline. `size_lottery` is the probability that a request is weighed as if it
    were small: 0 serves the most requests, 0.1 keeps a floor for large ones.
    """

    size_lottery: float = 0.1
    overrun_ratio: float = 1.4
    replan_ms: float = 400.0
    lanes: LaneConfig = field(default_factory=LaneConfig)

    def __post_init__(self) -> None:
        require_range("size_lottery", self.size_lottery, 0.0, 1.0)
        require_range("overrun_ratio", self.overrun_ratio, 1.0, 4.0)
        require_positive("replan_ms", self.replan_ms, unit="ms")


class GoodputPlanner:
    """A `BatchFormer` that maximises requests served within their deadline."""

    __slots__ = (
        "_agenda",
        "_bulk",
        "_config",
        "_confirmed_ms",
        "_count",
        "_devices",
        "_halves",
        "_line",
        "_lost",
        "_lottery",
        "_now_ms",
        "_patience",
        "_plan",
        "_planned_at",
        "_queue",
        "_replan_at_ms",
        "_ring",
        "_scouts",
        "_waited",
        "_work",
    )

    def __init__(self, config: PlannerConfig | None = None, secret: bytes = b"") -> None:
        self._config = config or PlannerConfig()
        self._lottery = SizeLottery(self._config.size_lottery, secret)
        self._ring = ArrivalRing()
        self._agenda = Agenda()
        self._bulk = BulkLane(self._config.lanes)
        self._patience = Patience()
        self._halves = Halves()
        self._queue: Queue = SlotQueues()
        self._devices: list[Device] = []
        self._scouts: list[Device] = []
        self._plan = first_plan(())
        self._planned_at = 0
        self._replan_at_ms = -math.inf
        self._confirmed_ms = -math.inf
        self._line: deque[Queued] = deque()  # in order of arrival
        self._count = 0
        self._work = 0.0
        self._lost: list[Queued] = []
        self._waited = False
        self._now_ms = 0.0

    def __len__(self) -> int:
        return self._count

    # -- coming in -------------------------------------------------------------------

    def offer(self, entry: Queued, now_ms: float) -> None:
        """Take an entry in. Raises, and keeps nothing, where its size makes no sense."""
        work = entry.work
        if not (0.0 < work < math.inf and entry.items >= 1 and entry.weight > 0.0):
            raise InvalidInput("work", work, "must be finite and > 0, with items >= 1, weight > 0")
        self._now_ms = now_ms
        hopeless_ms = self._hopeless_at_ms(entry, now_ms)  # before anything is kept: it may raise
        size_key = work / entry.weight
        bulk = entry.lane is Lane.BULK
        if not bulk and self._lottery.share > 0.0 and self._lottery.wins(entry.identity()):
            size_key = min(size_key, self._plan.small_key)
        self._count += 1
        self._work += work
        entry.queued = True
        self._line.append(entry)
        if not bulk and not entry.tried:
            self._ring.add(size_key, work, entry.weight, entry.deadline_ms - now_ms, now_ms)
            self._patience.arrived(now_ms)
        tight_ms = TIGHT_SLOTS * self._plan.slot_ms
        moment_ms = entry.deadline_ms - tight_ms
        if entry.split_group is not None:
            self._halves.put(entry)
            moment_ms = hopeless_ms
        elif bulk:
            self._bulk.put(entry, size_key)
            moment_ms = self._bulk.ages_at_ms(entry, tight_ms)
        else:
            self._queue.put(entry, size_key, now_ms)
        self._agenda.note(moment_ms if now_ms < moment_ms < hopeless_ms else hopeless_ms, entry)
        if self._count & 63 == 0:
            self._compact()

    def remove(self, entry: Queued) -> bool:
        """Forget an entry in O(1): whatever still names it is skipped when it surfaces."""
        if entry.slot is None:
            return False
        self._forget(entry)
        self._compact()
        return True

    # -- time ------------------------------------------------------------------------

    def expire(self, now_ms: float) -> list[Queued]:
        """Remove and return what no device can serve in time any more; move what became tight."""
        self._now_ms = now_ms
        lost, self._lost = self._lost, []
        agenda = self._agenda
        while (entry := agenda.due(now_ms)) is not None:
            hopeless_ms = self._hopeless_at_ms(entry, now_ms)
            if hopeless_ms <= now_ms:
                self._forget(entry)
                lost.append(entry)
                continue
            agenda.note(hopeless_ms, entry)
            if entry.split_group is None:
                self._hasten(entry, now_ms)
        return lost

    def next_wake_ms(self, now_ms: float) -> float | None:
        """The next moment of a queued entry."""
        return self._agenda.next_ms()

    def _hasten(self, entry: Queued, now_ms: float) -> None:
        if self._bulk.holds(entry):
            self._queue.put(entry, entry.work / entry.weight, now_ms)
        else:
            self._queue.tighten(entry, now_ms)

    def _hopeless_at_ms(self, entry: Queued, now_ms: float) -> float:
        """When to give up: by prediction, or at its deadline where nothing confirms those."""
        if not self._devices or not self._trusts(now_ms):
            return entry.deadline_ms
        devices = self._devices if entry.tried else self._scouts
        return latest_start_ms(entry, devices)

    def _trusts(self, now_ms: float) -> bool:
        return now_ms - self._confirmed_ms < _CONFIRMED_MS

    # -- going out -------------------------------------------------------------------

    def form(self, device: Device, now_ms: float) -> BatchPlan | Wait | None:
        """The batch that leaves now for this device, a reason to wait, or None."""
        if self._count == 0:
            return None
        self._now_ms = now_ms
        self._replan(now_ms)
        limit_ms = self._config.overrun_ratio * self._plan.slot_ms
        probe = not self._trusts(now_ms)
        half = self._halves.form(device, now_ms)
        if half is not None:
            return self._leave(half, FlushReason.IDLE)
        until_ms = self._wait_until_ms(device, limit_ms, now_ms)
        if until_ms is not None:
            self._waited = True
            return Wait(until_ms=until_ms, why="the clients just answered are expected back")
        draft = Draft(device, now_ms, limit_ms, probe=probe)
        self._bulk.spend(draft)
        self._queue.fill(draft, now_ms)
        if not draft.closed:
            self._bulk.fill(draft)
        if not draft.members:
            return None
        return self._leave(draft, self._reason(draft))

    def _wait_until_ms(self, device: Device, limit_ms: float, now_ms: float) -> float | None:
        """Until when to hold a batch that has room for those expected back."""
        count = self._count
        each = self._work / count
        run_ms = device.cost.predict_ms(self._work, count, each)
        if count >= device.max_batch_size or device.max_batch_size == 1 or run_ms >= limit_ms:
            return None
        next_ms = self._agenda.next_ms()
        latest_ms = math.inf if next_ms is None else next_ms - run_ms
        return self._patience.wait_until_ms(count, run_ms, latest_ms, now_ms)

    def _reason(self, draft: Draft) -> FlushReason:
        if draft.full:
            saturated = self._plan.theta < math.inf
            return FlushReason.GOODPUT if saturated else FlushReason.SATURATED
        if draft.cut_by_deadline:
            return FlushReason.DEADLINE
        return FlushReason.LINGER if self._waited else FlushReason.IDLE

    def _leave(self, draft: Draft, reason: FlushReason) -> BatchPlan:
        plan = self._plan
        numbers: dict[str, float | str | None] = {
            "mode": plan.mode,
            "slot_ms": plan.slot_ms,
            "theta": plan.theta if plan.theta < math.inf else None,
            "queued_before": float(self._count),
            "slack_ms": draft.deadline_ms - self._now_ms - draft.run_ms,
        }
        for entry in draft.members:
            self._forget(entry)
        self._bulk.earn(draft.run_ms)
        self._waited = False
        return BatchPlan(
            members=draft.members,
            predicted_ms=draft.run_ms,
            margin_ms=draft.margin_ms,
            reason=reason,
            numbers=numbers,
        )

    def on_finished(self, answered: int, now_ms: float) -> None:
        """A batch ended well: predictions are confirmed, and its clients may be back at once."""
        if answered > 0:
            self._confirmed_ms = now_ms
        self._patience.finished(answered, now_ms)

    # -- configuration and plans -----------------------------------------------------

    def set_devices(self, devices: Sequence[Device], now_ms: float) -> None:
        """The devices that serve this queue now. What waits is kept."""
        self._devices = list(devices)
        self._scouts = scouts(self._devices)
        if not self._ring.total:
            self._plan = first_plan(self._devices)
        kind = _queue_for(self._devices)
        if type(self._queue) is not kind:
            waiting = self._queue.entries()
            self._queue = kind()
            for entry in waiting:
                self._queue.put(entry, entry.work / entry.weight, now_ms)
        self._queue.follow(self._plan)
        self._replan_at_ms = -math.inf

    def _replan(self, now_ms: float) -> None:
        if now_ms < self._replan_at_ms or self._ring.total - self._planned_at < _REPLAN_ARRIVALS:
            return
        plan = make_plan(self._ring, self._devices, now_ms)
        self._planned_at = self._ring.total
        self._replan_at_ms = now_ms + max(
            self._config.replan_ms, _REPLAN_PER_DEVICE_MS * len(self._devices)
        )
        self._scouts = scouts(self._devices)
        if plan is not None:
            self._plan = plan
            self._queue.follow(plan)

    # -- telling ---------------------------------------------------------------------

    @property
    def plan(self) -> SlotPlan:
        """The plan in force."""
        return self._plan

    def numbers(self) -> dict[str, float | str | None]:
        """The mode in force and what it rests on. Work in the runtime's unit, times in ms."""
        plan = self._plan
        return {
            "mode": plan.mode if self._count else "idle",
            "slot_ms": plan.slot_ms,
            "theta": plan.theta if plan.theta < math.inf else None,
            "load_ratio": plan.load_ratio,
            "queued_work": self._work,
            "oldest_ms": self._oldest_ms(),
            "return_ratio": self._patience.return_ratio,
        }

    def _oldest_ms(self) -> float | None:
        """How long the entry at the head of the line has waited."""
        line = self._line
        while line and line[0].slot is None:
            line.popleft()
        return self._now_ms - line[0].arrived_ms if line else None

    # -- bookkeeping -----------------------------------------------------------------

    def _forget(self, entry: Queued) -> None:
        entry.slot = None
        entry.queued = False
        self._count -= 1
        self._work = self._work - entry.work if self._count else 0.0

    def _compact(self) -> None:
        """Keep the heaps in proportion to what is queued."""
        live = self._count
        self._agenda.compact(live)
        self._queue.compact(live)
        self._bulk.compact(live)
        self._halves.compact()
        if len(self._line) > 2 * live + 64:
            self._line = deque(entry for entry in self._line if entry.slot is not None)


def _queue_for(devices: Sequence[Device]) -> type[SlotQueues | LengthQueues | EdfQueue]:
    """The queue that suits these devices."""
    if devices and all(device.max_batch_size == 1 for device in devices):
        return EdfQueue
    if any(device.cost.unit is not WorkUnit.TOKENS for device in devices):
        return LengthQueues
    return SlotQueues
