"""The goodput planner: which requests ride together now, on the device that is free.

It composes the parts, one decision each:

    outlook.py        what arrives, and the plan for it: how long a slot is (plan.py), which
                      sizes are worth serving, and when a request is hopeless (feasibility.py)
    worth.py          what a request is worth, and who is weighed as if it were small
    queues.py         TIGHT, FILL, BIG: who joins first (token pools)
    length_queues.py  members of like length together (padded pools)
    queue.py          earliest deadline first (pools of one request at a time)
    form.py           whether one more request still fits this batch
    patience.py       go now, or wait for the clients that were just answered
    lanes.py          bulk work, and how it gets its turn
    halves.py         members of a batch that failed whole
    agenda.py         when time alone makes an entry tight, or hopeless

Below saturation this is earliest deadline first; past it, goodput per device-millisecond.
Devices pull: a fleet has one planner per model version and a cost model for each replica.
No request is refused for its size on arrival: each waits until no device can serve it in
time any more, and is handed back by `expire` at that moment. Offering costs O(log n).
"""

import math
from collections import deque
from collections.abc import Sequence

from engine.batching.agenda import Agenda
from engine.batching.form import Draft
from engine.batching.former import BatchPlan, Device, Queued, Wait
from engine.batching.halves import Halves
from engine.batching.lanes import BulkLane
from engine.batching.length_queues import LengthQueues
from engine.batching.outlook import Outlook
from engine.batching.patience import Patience
from engine.batching.plan import SlotPlan
from engine.batching.planner_config import PlannerConfig
from engine.batching.queue import EdfQueue, Queue
from engine.batching.queues import TIGHT_SLOTS, SlotQueues
from engine.batching.worth import Worth
from engine.errors import InvalidInput
from engine.types import FlushReason, Lane, WorkUnit

__all__ = ["GoodputPlanner", "PlannerConfig"]

_SLACK = 64  # entries that left may linger in the line of arrivals, up to as many again


class GoodputPlanner:
    """A `BatchFormer` that maximises requests served within their deadline."""

    __slots__ = (
        "_agenda",
        "_bulk",
        "_config",
        "_count",
        "_halves",
        "_line",
        "_now_ms",
        "_offers",
        "_outlook",
        "_patience",
        "_queue",
        "_waited",
        "_work",
        "_worth",
    )

    def __init__(self, config: PlannerConfig | None = None, secret: bytes = b"") -> None:
        config = config or PlannerConfig()
        self._config = config
        self._worth = Worth(config.objective, config.size_lottery, secret)
        self._outlook = Outlook(config.replan_ms)
        self._agenda = Agenda()
        self._bulk = BulkLane(config.lanes)
        self._patience = Patience()
        self._halves = Halves()
        self._queue: Queue = SlotQueues()
        self._line: deque[Queued] = deque()  # in order of arrival
        self._count = 0
        self._offers = 0
        self._work = 0.0
        self._waited = False
        self._now_ms = 0.0

    def __len__(self) -> int:
        return self._count

    @property
    def plan(self) -> SlotPlan:
        """The plan in force."""
        return self._outlook.plan

    def set_devices(self, devices: Sequence[Device], now_ms: float) -> None:
        """The devices that serve this queue now. What waits is kept."""
        self._outlook.set_devices(devices)
        kind = _queue_for(devices)
        if type(self._queue) is not kind:
            waiting = self._queue.entries()
            self._queue = kind()
            for entry in waiting:
                self._queue.put(entry, self._key(entry), now_ms)
        self._queue.follow(self.plan)

    # -- coming in -------------------------------------------------------------------

    def offer(self, entry: Queued, now_ms: float, *, again: bool = False) -> None:
        """Take an entry in. Raises, and keeps nothing, where its size makes no sense."""
        work = entry.work
        if not (0.0 < work < math.inf and entry.items >= 1 and entry.weight > 0.0):
            raise InvalidInput("work", work, "must be finite and > 0, with items >= 1, weight > 0")
        outlook = self._outlook
        hopeless_ms = outlook.hopeless_at_ms(entry, now_ms)  # first of all: it may raise
        key = self._key(entry)
        tight_ms = TIGHT_SLOTS * outlook.plan.slot_ms
        moment_ms = entry.deadline_ms - tight_ms
        if entry.split_group is not None:
            self._halves.put(entry)
            moment_ms = hopeless_ms
        elif entry.lane is Lane.BULK:
            self._bulk.put(entry, key)
            moment_ms = self._bulk.ages_at_ms(entry, tight_ms)
        else:
            self._queue.put(entry, key, now_ms)
            if not again:
                weight = self._worth.weight(entry)
                outlook.ring.add(key, work, weight, entry.deadline_ms - now_ms, now_ms)
                self._patience.arrived(now_ms)
        self._now_ms = now_ms
        self._count += 1
        self._work += work
        entry.queued = True
        self._line.append(entry)
        self._agenda.note(moment_ms if now_ms < moment_ms < hopeless_ms else hopeless_ms, entry)
        self._offers += 1
        if self._offers & 63 == 0:  # of offers: a queue that is short all the time fills them too
            self._compact()

    def remove(self, entry: Queued) -> bool:
        """Forget an entry in O(1): whatever still names it is skipped when it surfaces."""
        if entry.slot is None:
            return False
        self._forget(entry)
        self._compact()
        return True

    def _key(self, entry: Queued) -> float:
        return self._worth.key(entry, self._outlook.plan.small_key)

    # -- time ------------------------------------------------------------------------

    def expire(self, now_ms: float) -> list[Queued]:
        """Remove and return what no device can serve in time any more; move what became tight."""
        self._now_ms = now_ms
        lost: list[Queued] = []
        agenda = self._agenda
        while (entry := agenda.due(now_ms)) is not None:
            hopeless_ms = self._outlook.hopeless_at_ms(entry, now_ms)
            if hopeless_ms <= now_ms:
                self._forget(entry)
                lost.append(entry)
                continue
            agenda.note(hopeless_ms, entry)
            if self._bulk.holds(entry):
                self._queue.put(entry, self._key(entry), now_ms)
            elif entry.split_group is None:
                self._queue.tighten(entry, now_ms)
        return lost

    def next_wake_ms(self, now_ms: float) -> float | None:
        """The next moment of a queued entry."""
        return self._agenda.next_ms()

    # -- going out -------------------------------------------------------------------

    def form(self, device: Device, now_ms: float) -> BatchPlan | Wait | None:
        """The batch that leaves now for this device, a reason to wait, or None."""
        if self._count == 0:
            return None
        self._now_ms = now_ms
        outlook = self._outlook
        if outlook.replan(now_ms):
            self._queue.follow(outlook.plan)
        limit_ms = self._config.overrun_ratio * outlook.plan.slot_ms
        half = self._halves.form(device, now_ms)
        if half is not None:
            return self._leave(half, FlushReason.IDLE)
        until_ms = self._wait_until_ms(device, limit_ms, now_ms)
        if until_ms is not None:
            self._waited = True
            return Wait(until_ms=until_ms, why="the clients just answered are expected back")
        draft = Draft(device, now_ms, limit_ms, probe=not outlook.trusts(now_ms))
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
            saturated = self.plan.theta < math.inf
            return FlushReason.GOODPUT if saturated else FlushReason.SATURATED
        if draft.cut_by_deadline:
            return FlushReason.DEADLINE
        return FlushReason.LINGER if self._waited else FlushReason.IDLE

    def _leave(self, draft: Draft, reason: FlushReason) -> BatchPlan:
        numbers = self.plan.numbers()
        numbers["queued_before"] = float(self._count)
        numbers["slack_ms"] = draft.deadline_ms - self._now_ms - draft.run_ms
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
            self._outlook.confirm(now_ms)
        self._patience.finished(answered, now_ms)

    # -- telling ---------------------------------------------------------------------

    def numbers(self) -> dict[str, float | str | None]:
        """The mode in force and what it rests on. Work in the runtime's unit, times in ms."""
        numbers = self.plan.numbers()
        if not self._count:
            numbers["mode"] = "idle"
        numbers["load_ratio"] = self.plan.load_ratio
        numbers["queued_work"] = self._work
        numbers["oldest_ms"] = self._oldest_ms()
        numbers["return_ratio"] = self._patience.return_ratio
        return numbers

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
        if len(self._line) > 2 * live + _SLACK:
            self._line = deque(entry for entry in self._line if entry.slot is not None)


def _queue_for(devices: Sequence[Device]) -> type[SlotQueues | LengthQueues | EdfQueue]:
    """The queue that suits these devices."""
    if devices and all(device.max_batch_size == 1 for device in devices):
        return EdfQueue
    if any(device.cost.unit is not WorkUnit.TOKENS for device in devices):
        return LengthQueues
    return SlotQueues
