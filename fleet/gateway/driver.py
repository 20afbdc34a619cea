"""The asyncio interpreter of the scheduler's actions.

    submit -> (one poll per loop turn) -> Dispatch -> transport -> complete -> Deliver -> answer

Every event of a loop turn (arrivals, completions, departures) marks the scheduler dirty and
a single poll answers for all of them: sixteen requests parsed from one read of the sockets
are planned once, not sixteen times. One timer stands for `next_wake_ms`; it is moved earlier
when needed and otherwise left to fire idly, which is cheaper than moving it.

`Request.payload` is the request's `Waiter`: where the answer goes. A dispatch holds no task
unless its transport wants one.

Should the scheduler break an invariant, the error is logged and counted, the requests that
waited are answered by the watch (`sweep`), and the process goes on.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol as TypingProtocol
from typing import cast

from engine.actions import Abort, Deliver, Dispatch, LeaseReport
from engine.errors import BrokenInvariant, Refusal
from engine.outcomes import Outcome
from engine.scheduler import Scheduler
from engine.types import Protocol, ReplicaSpec, Request
from fleet.gateway.clock import MonotonicClock
from fleet.gateway.transports.base import Handle, Transport

log = logging.getLogger("halcyon.gateway")

AFTER_A_FAULT_S = 0.05  # poll again this long after the scheduler raised
OVERDUE_MS = 2_000.0  # past its deadline by this much, the watch answers for the scheduler


class Waiter(TypingProtocol):
    """Who waits for a request: `payload` of every request the gateway submits."""

    input: object

    def deliver(self, answer: Deliver) -> None:
        """Take the one answer."""
        ...

    def overdue(self) -> None:
        """The scheduler never answered: a bug of ours, told as an internal error."""
        ...


class Driver:
    """Runs one scheduler on the current event loop. Not thread-safe."""

    def __init__(
        self,
        scheduler: Scheduler,
        clock: MonotonicClock,
        transports: Mapping[Protocol, Transport],
    ) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.transports = dict(transports)
        self.replicas: Mapping[str, ReplicaSpec] = {}
        self.waiting: dict[str, Request] = {}
        self.faults = 0
        self.polls = 0
        self.late_ms = 0.0  # how late a timer fired at worst, since somebody set this to 0
        self._loop = asyncio.get_running_loop()
        self._attempts: dict[int, Handle] = {}
        self._due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0.0

    @property
    def running_attempts(self) -> int:
        """Dispatches on their way."""
        return len(self._attempts)

    def submit(self, request: Request) -> Refusal | None:
        """Hand a request to the scheduler. None: the answer will come to its payload."""
        answer = self.scheduler.submit(request)
        if isinstance(answer, Refusal):
            return answer
        self.waiting[request.request_id] = request
        self.touch()
        return None

    def cancel(self, request_id: str) -> None:
        """The client left."""
        if self.waiting.pop(request_id, None) is not None:
            self.scheduler.cancel(request_id)
            self.touch()

    def touch(self) -> None:
        """Something changed: poll once this turn of the loop is over."""
        if not self._due:
            self._due = True
            self._loop.call_soon(self._poll)

    def sweep(self) -> None:
        """Answer what the scheduler forgot. Called every second; finds nothing, we hope."""
        late_ms = self.clock.now_ms() - OVERDUE_MS
        for request in [r for r in self.waiting.values() if r.deadline_ms < late_ms]:
            self._fault(BrokenInvariant(f"request {request.request_id} was never answered"))
            del self.waiting[request.request_id]
            self.scheduler.cancel(request.request_id)
            cast("Waiter", request.payload).overdue()
            self.touch()

    async def close(self) -> None:
        """Abort what runs and let go of every connection."""
        if self._timer is not None:
            self._timer.cancel()
        for lease_id in list(self._attempts):
            self._attempts.pop(lease_id).abort()
        for transport in self.transports.values():
            await transport.close()

    # -- the loop's turns --------------------------------------------------------------

    def _poll(self) -> None:
        self._due = False
        self.polls += 1
        try:
            actions = self.scheduler.poll()
        except Exception as error:
            self._fault(error)
            self._loop.call_later(AFTER_A_FAULT_S, self.touch)
            return
        for action in actions:
            kind = type(action)
            if kind is Deliver:
                self._deliver(cast("Deliver", action))
            elif kind is Dispatch:
                self._dispatch(cast("Dispatch", action))
            else:
                self._abort(cast("Abort", action))
        self._arm()

    def _arm(self) -> None:
        wake_ms = self.scheduler.next_wake_ms()
        if wake_ms is None:
            return
        if self._timer is not None:
            if self._timer_ms <= wake_ms + 0.1:
                return
            self._timer.cancel()
        now_ms = self.clock.now_ms()
        self._timer_ms = max(wake_ms, now_ms)
        self._timer = self._loop.call_later((self._timer_ms - now_ms) / 1000.0, self._wake)

    def _wake(self) -> None:
        self._timer = None
        late_ms = self.clock.now_ms() - self._timer_ms
        if late_ms > self.late_ms:
            self.late_ms = late_ms
        if not self._due:
            self._due = True
            self._poll()

    def _deliver(self, answer: Deliver) -> None:
        try:
            if self.waiting.pop(answer.request.request_id, None) is not None:
                cast("Waiter", answer.request.payload).deliver(answer)
        except Exception as error:
            self._fault(error)
        if answer.result is not None:
            answer.result.payload = None  # the decision record outlives the answer

    def _dispatch(self, dispatch: Dispatch) -> None:
        lease_id = dispatch.lease_id
        spec = self.replicas.get(dispatch.replica_id)
        transport = None if spec is None else self.transports.get(spec.protocol)
        if spec is None or transport is None:
            why = "it left the snapshot" if spec is None else f"no transport for {spec.protocol}"
            report = LeaseReport(Outcome.FAULT, error=f"replica {dispatch.replica_id}: {why}")
            self._loop.call_soon(self._complete, lease_id, report)
            return
        try:
            self._attempts[lease_id] = transport.start(
                dispatch,
                spec,
                lambda report: self._done(lease_id, report),
                lambda: self._first_byte(lease_id),
            )
        except Exception as error:
            self._fault(error)
            report = LeaseReport(Outcome.FAULT, error=f"{type(error).__name__}: {error}")
            self._loop.call_soon(self._complete, lease_id, report)

    def _done(self, lease_id: int, report: LeaseReport) -> None:
        if self._attempts.pop(lease_id, None) is not None:
            self._complete(lease_id, report)

    def _complete(self, lease_id: int, report: LeaseReport) -> None:
        try:
            self.scheduler.complete(lease_id, report)
        except Exception as error:
            self._fault(error)
        self.touch()

    def _first_byte(self, lease_id: int) -> None:
        if lease_id in self._attempts:
            self.scheduler.first_byte(lease_id)
            self.touch()

    def _abort(self, abort: Abort) -> None:
        handle = self._attempts.pop(abort.lease_id, None)
        if handle is None:
            return
        handle.abort()
        report = LeaseReport(Outcome.CANCELLED, error=abort.why)
        self._loop.call_soon(self._complete, abort.lease_id, report)

    def _fault(self, error: BaseException) -> None:
        self.faults += 1
        log.error("the scheduler's driver met %s", type(error).__name__, exc_info=error)
