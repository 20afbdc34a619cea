"""What a former costs in CPU time, without the cost of looking at the clock.

Timing each call would measure the clock: a reading costs as much as a cheap call. So a run
records the calls it makes, and the recording is played again to a fresh former, with the
clock read once before and once after. The fewest microseconds of a few rounds count: what
a loaded machine adds is not the former's.
"""

import time
from collections.abc import Callable, Sequence

from engine.batching.former import BatchFormer, BatchPlan, Device, Queued, Wait

_Call = tuple[str, object, float]


class RecordedFormer:
    """A `BatchFormer` that notes every call and passes it on."""

    def __init__(self, inner: BatchFormer) -> None:
        self.inner = inner
        self.calls: list[_Call] = []

    def offer(self, entry: Queued, now_ms: float, *, again: bool = False) -> None:
        self.calls.append(("offer", _copy(entry), now_ms))
        self.inner.offer(entry, now_ms, again=again)

    def remove(self, entry: Queued) -> bool:
        return self.inner.remove(entry)

    def expire(self, now_ms: float) -> list[Queued]:
        self.calls.append(("expire", None, now_ms))
        return self.inner.expire(now_ms)

    def form(self, device: Device, now_ms: float) -> BatchPlan | Wait | None:
        self.calls.append(("form", device, now_ms))
        return self.inner.form(device, now_ms)

    def on_finished(self, answered: int, now_ms: float) -> None:
        self.calls.append(("on_finished", answered, now_ms))
        self.inner.on_finished(answered, now_ms)

    def next_wake_ms(self, now_ms: float) -> float | None:
        self.calls.append(("next_wake_ms", None, now_ms))
        return self.inner.next_wake_ms(now_ms)

    def set_devices(self, devices: Sequence[Device], now_ms: float) -> None:
        self.calls.append(("set_devices", devices, now_ms))
        self.inner.set_devices(devices, now_ms)

    def numbers(self) -> dict[str, float | str | None]:
        return self.inner.numbers()

    def __len__(self) -> int:
        return len(self.inner)


def cpu_s(calls: Sequence[_Call], make_former: Callable[[], BatchFormer], rounds: int) -> float:
    """CPU seconds that a fresh former takes for these calls, the best of `rounds`."""
    best_s = float("inf")
    for _ in range(rounds):
        former = make_former()
        bound: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        for name, argument, now_ms in calls:
            if isinstance(argument, Queued):
                argument = _copy(argument)
            arguments = (now_ms,) if argument is None else (argument, now_ms)
            bound.append((getattr(former, name), arguments))
        start_s = time.thread_time()
        for call, arguments in bound:
            call(*arguments)
        best_s = min(best_s, time.thread_time() - start_s)
    return best_s


def _copy(entry: Queued) -> Queued:
    """The entry as it was offered: a former keeps its own marks on it."""
    return Queued(
        ticket=entry.identity(),
        work=entry.work,
        deadline_ms=entry.deadline_ms,
        arrived_ms=entry.arrived_ms,
        items=entry.items,
        weight=entry.weight,
        lane=entry.lane,
        tried=entry.tried,
        split_group=entry.split_group,
    )
