"""Can this request still be served in time? The same arithmetic for shedding and for quotes.

    latest start = deadline - (run alone on the fastest device) x (1 + 1.3 deviations) - 1 ms

It is what `Draft.add` demands of a batch of one, so a request is hopeless exactly when no
batch on any device would take it any more.
"""

import math
from collections.abc import Sequence

from engine.batching.form import MARGIN_DEVIATIONS, MARGIN_MS
from engine.batching.former import Device, Queued


def alone_ms(entry: Queued, devices: Sequence[Device]) -> float:
    """Run time by itself plus margin on the device that is done soonest; inf where none can."""
    best_ms = math.inf
    each = entry.work / entry.items
    for device in devices:
        if entry.items > device.max_batch_size or entry.work > device.max_batch_work:
            continue
        if entry.tried and device.replica_id in entry.tried:
            continue
        cost = device.cost
        run_ms = cost.predict_ms(entry.work, entry.items, each)
        run_ms = run_ms * (1.0 + MARGIN_DEVIATIONS * cost.deviation_ratio) + MARGIN_MS
        if run_ms < best_ms:
            best_ms = run_ms
    return best_ms


def latest_start_ms(entry: Queued, devices: Sequence[Device]) -> float:
    """When it must start at the latest; -inf where no device can take it at all."""
    return entry.deadline_ms - alone_ms(entry, devices)


def hopeless(entry: Queued, devices: Sequence[Device], now_ms: float) -> bool:
    """Whether no device could serve it in time even if it were free now."""
    return now_ms > latest_start_ms(entry, devices)


def earliest_finish_ms(
    entry: Queued, devices: Sequence[Device], wait_ms: float, now_ms: float
) -> float:
    """When it would be done if it starts after `wait_ms`: the earliest deadline worth asking."""
    return now_ms + wait_ms + alone_ms(entry, devices)
