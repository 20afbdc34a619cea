"""Lines for the decision feed about what the routers of the pools did by themselves.

    breaker   one opened (or opened again after a failed probe), or closed
    panic     ejections were suspended because most of a version's replicas tripped, or resumed

Each carries the numbers that were compared. Rare things only: a breaker moves a few times a
minute at worst, by its backoff.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.routing.breaker import BreakerState
from engine.routing.eligibility import WhyNot
from engine.routing.replica_state import ReplicaState
from engine.routing.roster import Roster

if TYPE_CHECKING:
    from engine.scheduling.state import State


class Notices:
    """Watches the roster of one pool. Implements `Watcher`."""

    __slots__ = ("_model", "_state", "_version")

    def __init__(self, state: State, model: str, version: str) -> None:
        self._state = state
        self._model = model
        self._version = version

    def breaker_moved(self, replica: ReplicaState, now_ms: float) -> None:
        """It opened or closed. One that never opened has nothing to tell: it starts afresh
        with each process that answers under the name."""
        breaker = replica.breaker
        if breaker.state is BreakerState.CLOSED and breaker.trips == 0:
            return
        why = breaker.evidence
        numbers: dict[str, object] = {
            "model": self._model,
            "version": self._version,
            "state": str(breaker.state),
            "trips": breaker.trips,
        }
        if breaker.state is BreakerState.CLOSED:
            text = (
                f"closed after {why.successes} good answers to probes"
                if why.successes
                else "closed: another process answers under its name"
            )
            numbers["successes"] = why.successes
        else:
            retry_ms = max(breaker.open_until_ms - now_ms, 0.0)
            numbers |= {
                "cause": str(breaker.cause),
                "faults": why.faults,
                "samples": why.samples,
                "inARow": why.run,
                "overdue": why.silences,
                "retryInMs": retry_ms,
            }
            found = (
                f"{why.silences} answers overdue without a byte"
                if breaker.cause is WhyNot.WEDGED
                else f"{why.run} faults in a row, {why.faults:.0f} of {why.samples:.0f} lately"
            )
            verb = "stays open, a probe failed" if why.probe else "opened"
            text = f"{verb}: {found}; tried again in {retry_ms / 1000.0:.1f} s"
        self._state.event("breaker", replica.replica_id, text, numbers)

    def panic_changed(self, roster: Roster, now_ms: float) -> None:
        """Ejections were suspended or resumed."""
        tripped, available, ratio = roster.tripped, roster.available, roster.max_ejected_ratio
        found = f"{tripped} of {available} available replicas have tripped"
        text = (
            f"panic: {found}, more than {ratio:.0%}: traffic goes to all of them, at a pace"
            if roster.panic
            else f"panic is over: {found}"
        )
        self._state.event(
            "panic",
            f"{self._model} {self._version}",
            text,
            {"panic": roster.panic, "tripped": tripped, "available": available, "limit": ratio},
        )
