"""A batch under construction: what may still join it, judged one request at a time.

A request joins while the batch respects the device's limits (places, work), lasts no longer
than the slot allows, and its predicted finish plus a margin is before *every* member's
deadline. The margin is 1.3 standard deviations of the cost model's residuals plus 1 ms.

Where the runtime pads members to the longest, joining may cost more than running alone: a
text of 256 tokens added to fifteen of 16 makes each of them pay for 256. There a request
joins only if it makes the batch longer by no more than it would take by itself.
"""

import math

from engine.batching.former import Device, Queued
from engine.types import WorkUnit

MARGIN_DEVIATIONS = 1.3
MARGIN_MS = 1.0
_CLOSED_RATIO = 0.97  # of the room there is: what is left fits nobody


class Draft:
    """The members so far, their predicted run, and the tightest deadline among them.

    `limit_ms` bounds the run, except for a first member, who may be longer alone. A `probe`
    takes its first member whatever the prediction says: predictions that nothing has
    confirmed lately must not turn everyone away, or nothing ever corrects them.
    """

    __slots__ = (
        "_cost",
        "_device",
        "_limit_ms",
        "_max_size",
        "_max_work",
        "_now_ms",
        "_padded",
        "_probe",
        "_stretch",
        "closed",
        "cut_by_deadline",
        "deadline_ms",
        "full",
        "items",
        "longest",
        "members",
        "run_ms",
        "work",
    )

    def __init__(
        self, device: Device, now_ms: float, limit_ms: float = math.inf, *, probe: bool = False
    ) -> None:
        cost = device.cost
        self._device = device
        self._cost = cost
        self._now_ms = now_ms
        self._limit_ms = limit_ms
        self._probe = probe
        self._max_size = device.max_batch_size
        self._max_work = device.max_batch_work
        self._padded = cost.unit is not WorkUnit.TOKENS
        self._stretch = 1.0 + MARGIN_DEVIATIONS * cost.deviation_ratio
        self.members: list[Queued] = []
        self.items = 0
        self.work = 0.0
        self.longest = 0.0
        self.run_ms = 0.0
        self.deadline_ms = math.inf
        self.full = False  # somebody found no room
        self.closed = False  # nobody would find room
        self.cut_by_deadline = False  # a deadline, of a member or of who wanted in, was too near

    def add(self, entry: Queued) -> bool:
        """Take `entry` in if it fits; say whether it did."""
        items = self.items + entry.items
        work = self.work + entry.work
        members = self.members
        if items > self._max_size or work > self._max_work:
            self.full = True
            return False
        if entry.tried and self._device.replica_id in entry.tried:
            return False
        each = entry.work / entry.items
        longest = each if each > self.longest else self.longest
        run_ms = self._cost.predict_ms(work, items, longest)
        deadline_ms = entry.deadline_ms
        if deadline_ms > self.deadline_ms:
            deadline_ms = self.deadline_ms
        if members:
            if run_ms > self._limit_ms:
                self.full = True
                return False
            if self._padded and run_ms - self.run_ms > self._cost.predict_ms(
                entry.work, entry.items, each
            ):
                return False
        late = self._now_ms + run_ms * self._stretch + MARGIN_MS > deadline_ms
        if late and (members or not self._probe):
            self.cut_by_deadline = True
            return False
        members.append(entry)
        self.items = items
        self.work = work
        self.longest = longest
        self.run_ms = run_ms
        self.deadline_ms = deadline_ms
        room_ms = (deadline_ms - self._now_ms - MARGIN_MS) / self._stretch
        if room_ms > self._limit_ms:
            room_ms = self._limit_ms
        if items >= self._max_size or run_ms >= room_ms * _CLOSED_RATIO:
            self.full = self.closed = True
        return True

    def run_ms_of(self, count: int, each: float) -> float:
        """How long a batch of `count` items of this size would take here."""
        return self._cost.predict_ms(count * each, count, each)

    def places_for(self, each: float) -> int:
        """How many items of this size an empty batch here has places for."""
        return max(1, min(self._max_size, int(self._max_work / max(each, 1.0))))

    @property
    def fixed_ms(self) -> float:
        """What a batch costs here before anybody joins it."""
        return self._cost.fixed_ms

    @property
    def margin_ms(self) -> float:
        return self.run_ms * (self._stretch - 1.0) + MARGIN_MS
