"""Failures on purpose: what a replica does wrong in the field, on request, for a while.

    delay          every batch takes `milliseconds` longer (300)
    cpu_stress     one busy process per core eats the machine's CPU
    memory_spike   `megabytes` (500) are allocated, touched and held
    worker_crash   the next `calls` (3) batches raise
    hang           batches are taken and never answered
    busy           batches are refused with 503
    slow_start     batches take `factor` (3) times as long, as before caches are warm
    oom_fast_fail  batches fail at once: the replica that looks fastest of all

Each ends by itself after `duration_seconds`. Only with HALCYON_FAULTS=1.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from engine.errors import InvalidInput, UnknownName, require_range
from fleet.replica.runtimes.base import RuntimeBusy
from fleet.replica.wire import SimulateRequest

MAX_DURATION_S = 3600.0
_FAST_FAIL_S = 0.002
_PAGE = 4096
# Ends by itself even if this process is killed before it can end it.
_BURN = """
import sys, time
end_s = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end_s:
    pass
"""


class Fault(StrEnum):
    DELAY = "delay"
    CPU_STRESS = "cpu_stress"
    MEMORY_SPIKE = "memory_spike"
    WORKER_CRASH = "worker_crash"
    HANG = "hang"
    BUSY = "busy"
    SLOW_START = "slow_start"
    OOM_FAST_FAIL = "oom_fast_fail"


class InjectedFault(RuntimeError):
    """A batch that failed because a fault was asked for."""


@dataclass(slots=True)
class _Active:
    until_s: float
    request: SimulateRequest
    calls_left: int = 0
    held: bytearray | None = None
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def end(self) -> None:
        self.held = None
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes.clear()


class Faults:
    """The faults in force. `clock_s` is monotonic seconds."""

    def __init__(self, *, enabled: bool, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.enabled = enabled
        self._clock_s = clock_s
        self._active: dict[Fault, _Active] = {}

    def start(self, request: SimulateRequest) -> dict[str, float]:
        """Put a fault in force, replacing one of its kind; return what is in force."""
        try:
            fault = Fault(request.fault)
        except ValueError:
            raise UnknownName("fault", request.fault, [each.value for each in Fault]) from None
        require_range("duration_seconds", request.duration_seconds, 0.0, MAX_DURATION_S, unit="s")
        milliseconds = 300.0 if request.milliseconds is None else request.milliseconds
        require_range("milliseconds", milliseconds, 0.0, 600_000.0)
        megabytes = 500 if request.megabytes is None else request.megabytes
        require_range("megabytes", megabytes, 1, 16_384)
        calls = 3 if request.calls is None else request.calls
        require_range("calls", calls, 1, 1_000_000)
        factor = 3.0 if request.factor is None else request.factor
        require_range("factor", factor, 1.0, 1000.0)
        self._end(fault)
        active = _Active(self._clock_s() + request.duration_seconds, request, calls_left=calls)
        active.request = SimulateRequest(
            fault, request.duration_seconds, milliseconds, megabytes, calls, factor
        )
        if fault is Fault.MEMORY_SPIKE:
            active.held = bytearray(megabytes * 1024 * 1024)
            active.held[::_PAGE] = b"\x01" * len(range(0, len(active.held), _PAGE))
        elif fault is Fault.CPU_STRESS:
            command = [sys.executable, "-S", "-c", _BURN, str(request.duration_seconds)]
            active.processes = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
        self._active[fault] = active
        return self.in_force()

    def in_force(self) -> dict[str, float]:
        """Seconds left of each fault."""
        self.sweep()
        now_s = self._clock_s()
        return {fault.value: active.until_s - now_s for fault, active in self._active.items()}

    def sweep(self) -> None:
        """End what is over."""
        now_s = self._clock_s()
        for fault in [f for f, active in self._active.items() if active.until_s <= now_s]:
            self._end(fault)

    def clear(self) -> None:
        """End every fault."""
        for fault in list(self._active):
            self._end(fault)

    def refuse_if_busy(self) -> None:
        """At the door: raise `RuntimeBusy` where the replica plays busy."""
        active = self._find(Fault.BUSY)
        if active is not None:
            raise RuntimeBusy("busy (injected)", retry_after_s=0.2)

    async def before_batch(self) -> None:
        """Where a batch starts: delay, hang, crash or fail it."""
        if not self._active:
            return
        if self._find(Fault.OOM_FAST_FAIL) is not None:
            await asyncio.sleep(_FAST_FAIL_S)
            raise InjectedFault("out of memory (injected)")
        crash = self._find(Fault.WORKER_CRASH)
        if crash is not None and crash.calls_left > 0:
            crash.calls_left -= 1
            raise InjectedFault("worker crashed (injected)")
        while (hang := self._find(Fault.HANG)) is not None:
            await asyncio.sleep(min(1.0, max(0.0, hang.until_s - self._clock_s())))
        delay = self._find(Fault.DELAY)
        if delay is not None and delay.request.milliseconds is not None:
            await asyncio.sleep(delay.request.milliseconds / 1000)

    async def after_batch(self, took_s: float) -> None:
        """Where a batch ends: stretch it while the replica plays cold."""
        slow = self._find(Fault.SLOW_START) if self._active else None
        if slow is not None and slow.request.factor is not None:
            await asyncio.sleep(took_s * (slow.request.factor - 1.0))

    def _find(self, fault: Fault) -> _Active | None:
        active = self._active.get(fault)
        if active is not None and active.until_s <= self._clock_s():
            self._end(fault)
            return None
        return active

    def _end(self, fault: Fault) -> None:
        active = self._active.pop(fault, None)
        if active is not None:
            active.end()


def require_enabled(faults: Faults) -> None:
    """Raise where failure injection is not allowed in this process."""
    if not faults.enabled:
        raise InvalidInput("HALCYON_FAULTS", "0", "start the replica with HALCYON_FAULTS=1 first")
