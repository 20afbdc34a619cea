"""The scheduler: admission, rollout, batching and routing as one conversation, sans I/O.

A driver (the gateway's asyncio loop, or the simulator's virtual time) tells it what happened
and asks what to do:

    submit(request)            -> Ticket | Refusal
    complete(lease, report)       an attempt ended
    cancel(request id)            a client left
    apply(snapshot)               configuration changed
    poll()                     -> [Dispatch | Deliver | Abort]
    next_wake_ms()             -> when to poll though nothing happened

It owns no clock, no randomness and no socket; given the same calls at the same times it
makes the same decisions. Scheduling state is per gateway, by design: power-of-two-choices
wants independent views.
"""

from __future__ import annotations

import random

from engine.actions import Action, ItemResult, LeaseReport
from engine.admission.quote import Quote
from engine.clock import Clock
from engine.errors import InvalidInput, Refusal
from engine.outcomes import Outcome
from engine.rollout.evidence import WindowRecord
from engine.scheduling import admit, configure, describe, dispatch, judging, quoting, settle
from engine.scheduling import explain as explaining
from engine.scheduling.attempt import Attempt
from engine.scheduling.retry import retry_or_fail
from engine.scheduling.state import SchedulerConfig, State
from engine.scheduling.ticket import DONE, Ticket
from engine.types import FleetSnapshot, Request
from engine.view import Conservation, SchedulerView


class Scheduler:
    """One gateway's scheduling state. Not thread-safe: one driver, one thread."""

    __slots__ = ("_state",)

    def __init__(
        self, clock: Clock, rng: random.Random, config: SchedulerConfig | None = None
    ) -> None:
        self._state = State(clock, rng, config or SchedulerConfig())

    # -- configuration ---------------------------------------------------------------

    def apply(self, snapshot: FleetSnapshot) -> None:
        """Swap the configuration whole. Queues, leases and learned costs survive."""
        configure.apply(self._state, snapshot)

    def replica_reported(
        self,
        replica_id: str,
        *,
        ready: bool | None = None,
        max_concurrency: int | None = None,
        max_batch_size: int | None = None,
        queued: int | None = None,
        gpu_memory_ratio: float | None = None,
        loaded_models: frozenset[str] | None = None,
    ) -> None:
        """Take in what a health probe learned of a replica; unknown ids are ignored."""
        configure.replica_reported(
            self._state,
            replica_id,
            ready=ready,
            max_concurrency=max_concurrency,
            max_batch_size=max_batch_size,
            queued=queued,
            gpu_memory_ratio=gpu_memory_ratio,
            loaded_models=loaded_models,
        )

    def drain(self) -> None:
        """Refuse new work from now on; what is queued still runs."""
        self._state.draining = True
        for pool in self._state.pools.values():
            self._state.dirty[pool] = None

    # -- requests --------------------------------------------------------------------

    def submit(self, request: Request) -> Ticket | Refusal:
        """Admit or refuse a request. Raises `InvalidInput` for one that makes no sense."""
        return admit.submit(self._state, request)

    def quote(self, request: Request) -> Quote:
        """Whether this request could be served in time now; takes nothing."""
        return quoting.quote(self._state, request)

    def cancel(self, request_id: str) -> bool:
        """The client left. True if the request was still in the system."""
        state = self._state
        found = settle.cancel(state, request_id)
        if found is None:
            return False
        for attempt in found[1]:
            if not attempt.waiting():
                dispatch.abort(state, attempt, Outcome.CANCELLED, "the client left")
        return True

    # -- attempts --------------------------------------------------------------------

    def first_byte(self, lease_id: int) -> None:
        """A stream began to answer: from here on no retry and no hedge."""
        attempt = self._attempt(lease_id)
        if attempt.streaming:
            return
        state = self._state
        attempt.answered_ms = now_ms = state.clock.now_ms()
        if attempt.lease.begin(now_ms):
            state.dirty[attempt.pool] = None
        rival = attempt.rival
        if rival is not None and rival.lease_id in state.attempts:
            dispatch.abort(state, rival, Outcome.CANCELLED, "the other attempt began to answer")

    def complete(self, lease_id: int, report: LeaseReport) -> None:
        """An attempt ended. Its lease is released here, exactly once."""
        attempt = self._attempt(lease_id)
        items = report.items
        if items is not None and len(items) != len(attempt.members):
            raise InvalidInput(
                "items", len(items), f"must have one result for each of {len(attempt.members)}"
            )
        state = self._state
        now_ms = state.clock.now_ms()
        del state.attempts[lease_id]
        settle.observe(state, attempt, report, now_ms)
        judging.judge(state, attempt, report, now_ms)
        execution_ms = report.execution_ms
        if execution_ms is None:
            execution_ms = now_ms - attempt.started_ms
        losers: list[tuple[Ticket, ItemResult | None]] = []
        answered = 0
        for index, member in enumerate(attempt.members):
            member.running -= 1
            if member.state == DONE:
                continue
            item = None if items is None else items[index]
            outcome = report.outcome if item is None else item.outcome
            if outcome is Outcome.SUCCESS:
                item = item or ItemResult(Outcome.SUCCESS)
                settle.serve(state, attempt, member, item, execution_ms, now_ms)
                answered += 1
            elif member.running > 0:
                if (
                    attempt.hedge_of is None and outcome.is_retryable
                ):  # the primary's error is the one that is shown
                    member.outcome = item or ItemResult(
                        outcome, error=report.error, status=report.status
                    )
            else:
                losers.append((member, item))
        if losers:
            retry_or_fail(state, attempt, report, losers, now_ms)
        rival = attempt.rival
        if rival is not None and rival.lease_id in state.attempts and not rival.waiting():
            dispatch.abort(state, rival, Outcome.CANCELLED, "the other attempt answered first")
        attempt.pool.former.on_finished(answered, now_ms)
        state.dirty[attempt.pool] = None
        if attempt.lease.replica.shared is not None:
            state.freed(attempt.lease.replica_id, attempt.pool)

    def _attempt(self, lease_id: int) -> Attempt:
        attempt = self._state.attempts.get(lease_id)
        if attempt is None:
            raise InvalidInput("lease_id", lease_id, "no such attempt is running")
        return attempt

    # -- the driver's loop -----------------------------------------------------------

    def poll(self) -> list[Action]:
        """Everything to do now, in order. Each action is returned once."""
        return dispatch.poll(self._state)

    def next_wake_ms(self) -> float | None:
        """When to poll even if nothing happens; None where only an event can change things."""
        return dispatch.next_wake_ms(self._state)

    # -- telling ---------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Requests admitted and not yet answered."""
        return self._state.ledger.queued + self._state.ledger.running

    @property
    def running_attempts(self) -> int:
        """Dispatches that have not reported yet, aborted ones included."""
        return len(self._state.attempts)

    def conservation(self) -> Conservation:
        return self._state.ledger.conservation()

    def windows(self) -> list[WindowRecord]:
        """The evidence windows that closed since the last call."""
        return self._state.evidence.close_windows(self._state.clock.now_ms())

    def explain(self, request_id: str) -> dict[str, object] | None:
        """The decision record of a recent request, or None where it is not remembered."""
        return explaining.explain(self._state, request_id)

    def samples(self, limit: int = 8) -> list[dict[str, object]]:
        """Decision records of recent finished requests, those that went wrong preferred."""
        return explaining.samples(self._state, limit)

    def view(self) -> SchedulerView:
        """The live state, for dashboards and APIs."""
        return describe.view(self._state)
