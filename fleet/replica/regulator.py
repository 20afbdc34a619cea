"""The two-second loop: read the sensors, let the station decide, remember what was.

What counts as busy depends on what the runtime is bound by: the machine's CPU (psutil) where
the work is done here, the share of slot time in use where a device elsewhere does it. A
reading needs a span to be a mean of: within `MIN_SPAN_S` of the last one the last one stands,
so that a decision between two ticks does not rest on ten milliseconds.
"""

import asyncio
import time

import structlog

from engine.regulation.controller import Regulation
from fleet.replica.monitoring import Monitor
from fleet.replica.runtimes.base import BoundBy
from fleet.replica.sensors import MIN_SPAN_S, Sensors
from fleet.replica.workplace import Workplace

SAMPLE_S = 1.0

log = structlog.get_logger("replica")


class Regulator:
    """Ticks the station's controller and feeds the monitor."""

    def __init__(self, workplace: Workplace, monitor: Monitor, sensors: Sensors) -> None:
        self.workplace = workplace
        self.monitor = monitor
        self.sensors = sensors
        self._slot_use: float | None = None
        self._slot_read_ms = workplace.clock_ms()
        workplace.on_alarm = self.decide

    def busy_ratio(self) -> float | None:
        """The use of what does the work."""
        if self.workplace.runtime.bound_by is BoundBy.CPU:
            return self.sensors.cpu_ratio()
        now_ms = self.workplace.clock_ms()
        if now_ms - self._slot_read_ms >= MIN_SPAN_S * 1000:
            self._slot_use = self.workplace.station.slot_use_ratio(now_ms)
            self._slot_read_ms = now_ms
        return self._slot_use

    def decide(self) -> Regulation | None:
        """One decision, now."""
        decision = self.workplace.station.decide(
            self.workplace.clock_ms(),
            busy_ratio=self.busy_ratio(),
            memory_ratio=self.sensors.memory_ratio(),
        )
        if decision is not None and decision.changed:
            self.monitor.note_action(decision)
            log.info(
                "regulated",
                rule=decision.rule.value,
                action=decision.text,
                max_workers=decision.max_workers,
                batch_size=decision.batch_size,
                admission_control=decision.admission_control,
            )
        self.workplace.pump()
        return decision

    async def run(self) -> None:
        """Sample every second and decide every interval, for ever."""
        interval_s = self.workplace.station.config.regulation.interval_ms / 1000
        decide_s = time.monotonic() + interval_s
        sample_s = time.monotonic() + SAMPLE_S
        while True:
            await asyncio.sleep(max(0.0, min(decide_s, sample_s) - time.monotonic()))
            now_s = time.monotonic()
            if now_s >= decide_s:
                self.decide()
                decide_s = max(decide_s + interval_s, now_s)
            if now_s >= sample_s:
                self.workplace.faults.sweep()
                self.monitor.sample(self.sensors)
                sample_s = max(sample_s + SAMPLE_S, now_s)
