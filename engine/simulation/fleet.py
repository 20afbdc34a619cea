"""A whole fleet in virtual time, driving a real `Scheduler`: the gateway's other twin.

It interprets the same three actions as the gateway's asyncio driver. A `Dispatch` runs on a
`SimulatedReplica` and is answered by one `LeaseReport`; a `Deliver` goes to `on_deliver`; an
`Abort` frees a replica that can really stop (`stoppable`) and is otherwise only noted, for a
batch that nobody waits for still occupies its device. After each event it polls, and it
wakes the scheduler when `next_wake_ms` says so. No decision is made here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.actions import Abort, Deliver, Dispatch, ItemResult, LeaseReport
from engine.errors import Refusal
from engine.outcomes import Outcome
from engine.scheduler import Scheduler
from engine.scheduling.ticket import Ticket
from engine.simulation.device import Execution, FaultKind, SimulatedReplica
from engine.simulation.events import Event, EventLoop
from engine.types import Request

_REPORTS = {
    FaultKind.FAIL: (Outcome.FAULT, 500, "injected failure"),
    FaultKind.BUSY: (Outcome.BACKPRESSURE, 503, "busy"),
}


@dataclass(slots=True)
class Running:
    """A batch on a replica, until its report."""

    dispatch: Dispatch
    replica: SimulatedReplica
    execution: Execution
    report: Event | None


class SimulatedFleet:
    """Replicas, a scheduler in front of them, and the loop that moves both.

    `size_of` says how much work a request really is; by default what it claims. The scheduler
    sees the claim, the device the truth.
    """

    __slots__ = (
        "_rng",
        "_wake",
        "_wake_at_ms",
        "aborted",
        "idle_since_ms",
        "loop",
        "on_deliver",
        "on_dispatch",
        "polls",
        "replicas",
        "running",
        "scheduler",
        "size_of",
    )

    def __init__(
        self,
        loop: EventLoop,
        scheduler: Scheduler,
        replicas: list[SimulatedReplica],
        rng: random.Random,
        *,
        on_deliver: Callable[[Deliver], None] | None = None,
        on_dispatch: Callable[[Dispatch], None] | None = None,
        size_of: Callable[[Request], float] | None = None,
    ) -> None:
        self.loop = loop
        self.scheduler = scheduler
        self.replicas = {replica.spec.replica_id: replica for replica in replicas}
        self.on_deliver = on_deliver
        self.on_dispatch = on_dispatch
        self.size_of = size_of or _claimed
        self.running: dict[int, Running] = {}
        self.aborted = 0
        self.idle_since_ms = loop.now_ms()  # when a batch last ended
        self.polls = 0
        self._rng = rng
        self._wake: Event | None = None
        self._wake_at_ms: float | None = None

    # -- driving ---------------------------------------------------------------------

    def submit(self, request: Request) -> Ticket | Refusal:
        """Send a request in, now, and do what the scheduler says."""
        answer = self.scheduler.submit(request)
        self.pump()
        return answer

    def cancel(self, request_id: str) -> bool:
        """Its client leaves, now."""
        found = self.scheduler.cancel(request_id)
        self.pump()
        return found

    def play(
        self, requests: Iterator[Request], on_refused: Callable[[Request, Refusal], None]
    ) -> None:
        """Submit each request at its `arrived_ms`, which must not decrease. Returns at once:
        `loop.run` makes it happen."""
        request = next(requests, None)
        if request is None:
            return

        def arrive(arriving: Request = request) -> None:
            answer = self.submit(arriving)
            if isinstance(answer, Refusal):
                on_refused(arriving, answer)
            self.play(requests, on_refused)

        self.loop.at(request.arrived_ms, arrive)

    def pump(self) -> None:
        """Carry out what the scheduler wants now, then set the alarm it asks for."""
        scheduler = self.scheduler
        self.polls += 1
        while actions := scheduler.poll():
            for action in actions:
                if isinstance(action, Dispatch):
                    self._start(action)
                elif isinstance(action, Deliver):
                    if self.on_deliver is not None:
                        self.on_deliver(action)
                else:
                    self._abort(action)
        wake_at_ms = scheduler.next_wake_ms()
        if wake_at_ms == self._wake_at_ms:
            return
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        self._wake_at_ms = wake_at_ms
        if wake_at_ms is not None:
            self._wake = self.loop.at(max(wake_at_ms, self.loop.now_ms()), self._awake)

    def _awake(self) -> None:
        self._wake = None
        self._wake_at_ms = None
        self.pump()

    # -- replicas --------------------------------------------------------------------

    def _start(self, dispatch: Dispatch) -> None:
        replica = self.replicas[dispatch.replica_id]
        size_of = self.size_of
        sizes = [size_of(request) for request in dispatch.requests]
        execution = replica.run(sizes, self.loop.now_ms(), self._rng)
        running = Running(dispatch, replica, execution, None)
        self.running[dispatch.lease_id] = running
        if execution.service_ms is not None:
            running.report = self.loop.after(
                execution.service_ms, lambda: self._finish(dispatch.lease_id)
            )
        if self.on_dispatch is not None:
            self.on_dispatch(dispatch)

    def _finish(self, lease_id: int) -> None:
        running = self.running.pop(lease_id)
        self.idle_since_ms = self.loop.now_ms()
        execution = running.execution
        if execution.fault is None:
            report = LeaseReport(
                outcome=Outcome.SUCCESS,
                items=[
                    ItemResult(Outcome.SUCCESS, prompt_tokens=request.prompt_tokens)
                    for request in running.dispatch.requests
                ],
                execution_ms=execution.service_ms,
            )
        else:
            outcome, status, error = _REPORTS[execution.fault.kind]
            report = LeaseReport(
                outcome=outcome,
                status=status,
                error=error,
                retry_after_ms=execution.fault.retry_after_ms,
            )
        self.scheduler.complete(lease_id, report)
        self.pump()

    def _abort(self, abort: Abort) -> None:
        """A replica that can stop is free at once, and so is one that would hang for ever."""
        self.aborted += 1
        running = self.running.get(abort.lease_id)
        if running is None:
            return
        if not running.replica.stoppable and running.report is not None:
            return
        del self.running[abort.lease_id]
        if running.report is not None:
            running.report.cancel()
        self.scheduler.complete(abort.lease_id, LeaseReport(outcome=Outcome.CANCELLED))


def _claimed(request: Request) -> float:
    return float(request.prompt_tokens)
