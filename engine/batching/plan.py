"""How long should a slot be, and which sizes are worth serving? Asked a few times a second.

An urgent request may arrive just after a batch left, so it waits for the next free device
and then rides along: with N devices out of step, a wait of up to L/N and a run of L must fit
its deadline. Longer slots share the fixed cost a among more work, so capacity grows with L:

    C(L) = sum over devices of (1 - a/L) / b        tokens per ms
    value(L) = (weight served, smallest size per weight first, within C(L) and the batch-count
                limit) x (1 - share of the deadlines that the wait and the run would miss)

The L with the largest value wins; of equals the shortest in which the fixed cost is no more
than a quarter (shorter ones clear a burst slowly, longer ones only delay). From the same
sort come `theta`, the size per weight at which the offered work passes the capacity with
some room: larger requests wait as fillers, none is refused for its size. Below saturation
theta is infinite and the order is by deadline; past it, goodput per device-millisecond.
Sizes are in the runtime's unit of work, times ms, rates per ms.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter

from engine.batching.arrivals import ArrivalRing
from engine.batching.former import Device

_LENGTHS = 14
_SHORTEST_RATIO = 1.25  # of the smallest fixed cost: below it a slot does next to nothing
_WORTHWHILE_RATIO = 4.0  # of it: where the fixed cost is a quarter, longer slots gain little
_TIE_RATIO = 1e-4
_SPARE_RATIO = 1.6  # capacity wanted above the offered work, so that bursts clear fast
_ROOM_RATIO = 1.05  # theta admits this much more work than the capacity: fillers get taken too
_KNEES = (0.002, 0.05, 0.25, 0.5)  # deadline quantiles whose own best length is tried as well
_LEAST_ARRIVALS = 32
_MARGIN_MS = 1.0
_FIRST_MS = 50.0
_SMALL_QUANTILE = 0.25


@dataclass(slots=True, frozen=True, kw_only=True)
class SlotPlan:
    """What the planner aims for until the next plan.

    `small_key` is a size per weight that always gets served: what a lottery winner pretends.
    `load_ratio` is offered work over capacity at this slot length, None before any traffic.
    """

    slot_ms: float
    theta: float = math.inf
    small_key: float = 64.0
    load_ratio: float | None = None

    @property
    def mode(self) -> str:
        return "edf" if self.theta == math.inf else "goodput"

    def numbers(self) -> dict[str, float | str | None]:
        """The plan as the view and the decision record show it."""
        theta = self.theta if self.theta < math.inf else None
        return {"mode": self.mode, "slot_ms": self.slot_ms, "theta": theta}


def first_plan(devices: Sequence[Device]) -> SlotPlan:
    """Before any traffic: room for a few times the fixed cost."""
    fixed_ms = min((device.cost.fixed_ms for device in devices), default=0.0)
    return SlotPlan(slot_ms=max(_WORTHWHILE_RATIO * fixed_ms, _FIRST_MS))


def make_plan(ring: ArrivalRing, devices: Sequence[Device], now_ms: float) -> SlotPlan | None:
    """The best plan for the traffic in the ring, or None while there is too little of it."""
    span_ms = ring.span_ms(now_ms)
    if len(ring.items) < _LEAST_ARRIVALS or span_ms <= 0.0 or not devices:
        return None
    arrivals = sorted(ring.items, key=itemgetter(0))
    work_sums = list(accumulate([item[1] for item in arrivals]))
    weight_sums = list(accumulate([item[2] for item in arrivals]))
    deadlines = sorted([item[3] for item in arrivals])
    deadline_sums = [0.0, *accumulate(deadlines)]
    fleet = _Fleet(devices)
    stretch = 1.0 + max(device.cost.deviation_ratio for device in devices)
    turns = 1.0 + 1.0 / len(devices)
    shortest_ms = max(_SHORTEST_RATIO * fleet.fixed_ms, 1.0)
    longest_ms = max(2.0 * shortest_ms, deadlines[-1] / 2.0)
    worthwhile_ms = _WORTHWHILE_RATIO * fleet.fixed_ms
    step = (longest_ms / shortest_ms) ** (1.0 / (_LENGTHS - 1))
    lengths = [shortest_ms * step**i for i in range(_LENGTHS)]
    for quantile in _KNEES:
        knee_ms = deadlines[int(quantile * len(deadlines))]
        lengths.append((knee_ms - _MARGIN_MS) / (turns * stretch))
    best_ms, best_value = shortest_ms, -1.0
    for length_ms in sorted(lengths):
        if length_ms < shortest_ms:
            continue
        served = _served(length_ms, fleet, work_sums, weight_sums, span_ms * (1 / _SPARE_RATIO))
        run_ms = length_ms * stretch + _MARGIN_MS
        value = served * (1.0 - _missed(run_ms, run_ms * (turns - 1.0), deadlines, deadline_sums))
        ties = best_ms < worthwhile_ms and value >= best_value * (1.0 - _TIE_RATIO)
        if ties or value > best_value * (1.0 + _TIE_RATIO):
            best_ms, best_value = length_ms, max(value, best_value)
    capacity = fleet.capacity(best_ms) * span_ms
    admitted = min(
        bisect_left(work_sums, capacity * _ROOM_RATIO),
        int(fleet.places(best_ms) * span_ms * _ROOM_RATIO),
    )
    return SlotPlan(
        slot_ms=best_ms,
        theta=arrivals[admitted][0] if admitted < len(arrivals) else math.inf,
        small_key=arrivals[int(_SMALL_QUANTILE * len(arrivals))][0],
        load_ratio=work_sums[-1] / capacity if capacity > 0.0 else None,
    )


class _Fleet:
    """The devices as sums, so that the capacity at any slot length costs O(log devices)."""

    __slots__ = ("_per_ms", "_shares", "_starts", "_taxes", "fixed_ms")

    def __init__(self, devices: Sequence[Device]) -> None:
        speeds = sorted(
            (device.cost.fixed_ms, max(device.cost.per_work_ms, 1e-9)) for device in devices
        )
        self.fixed_ms = speeds[0][0]
        self._starts = [a for a, _ in speeds]
        self._shares = [0.0, *accumulate(1.0 / b for _, b in speeds)]
        self._taxes = [0.0, *accumulate(a / b for a, b in speeds)]
        self._per_ms = float(sum(device.max_batch_size for device in devices))

    def capacity(self, length_ms: float) -> float:
        """Work per ms of all devices in slots of this length."""
        count = bisect_left(self._starts, length_ms)
        return self._shares[count] - self._taxes[count] / length_ms

    def places(self, length_ms: float) -> float:
        """Requests per ms that the batch-size limits leave room for."""
        return self._per_ms / length_ms


def _served(
    length_ms: float,
    fleet: _Fleet,
    work_sums: list[float],
    weight_sums: list[float],
    span_ms: float,
) -> float:
    """Share of the arriving weight that fits, the smallest size per weight first."""
    fits = bisect_right(work_sums, fleet.capacity(length_ms) * span_ms)
    fits = min(fits, int(fleet.places(length_ms) * span_ms))
    if fits >= len(work_sums):
        return 1.0
    return weight_sums[fits - 1] / weight_sums[-1] if fits > 0 else 0.0


def _missed(
    run_ms: float, wait_ms: float, deadlines: list[float], deadline_sums: list[float]
) -> float:
    """Share of the deadlines that a wait of uniform [0, wait] and then a run would miss."""
    if wait_ms <= 0.0:
        return bisect_left(deadlines, run_ms) / len(deadlines)
    surely = bisect_left(deadlines, run_ms)
    maybe = bisect_left(deadlines, run_ms + wait_ms)
    part = (maybe - surely) * (run_ms + wait_ms) - (deadline_sums[maybe] - deadline_sums[surely])
    return (surely + part / wait_ms) / len(deadlines)
