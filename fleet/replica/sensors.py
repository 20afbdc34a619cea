"""What the machine says of itself: CPU and memory, by psutil.

A CPU reading is a mean over the time since the last one. Within `MIN_SPAN_S` the last one
stands, so that two readers, or a decision between two ticks, do not get ten milliseconds'
noise. Before the first span is over it is None.
"""

import time
from typing import Protocol

import psutil

MIN_SPAN_S = 0.5


class Sensors(Protocol):
    """What the machine says of itself. None is "not known"."""

    def cpu_ratio(self) -> float | None: ...

    def memory_ratio(self) -> float | None: ...


class MachineSensors:
    """psutil: CPU of the whole machine since the last reading, memory in use."""

    def __init__(self) -> None:
        psutil.cpu_percent(interval=None)  # the first reading only sets the starting point
        self._read_s = time.monotonic()
        self._cpu: float | None = None

    def cpu_ratio(self) -> float | None:
        now_s = time.monotonic()
        if now_s - self._read_s >= MIN_SPAN_S:
            self._cpu = psutil.cpu_percent(interval=None) / 100
            self._read_s = now_s
        return self._cpu

    def memory_ratio(self) -> float | None:
        return float(psutil.virtual_memory().percent) / 100
