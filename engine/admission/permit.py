"""What was taken is returned exactly once: reservations and permits.

A `Reservation` holds a tenant's quota while the request is examined; it is either given
back whole or turned into a `Permit`. A permit is a place in flight and ends by exactly one
of three verbs:

    succeed   served: a latency sample, the tokens it used are charged
    ignore    says nothing about load: a fault, a client error, a cancellation
    drop      ran out of time: a congestion sample

What ends by `ignore` or `drop` having used nothing costs nothing, not even the request: a
refusal is free, however late it comes. A second verb raises `BrokenInvariant`, because a
permit that is returned twice makes room that does not exist.
"""

from __future__ import annotations

from engine.admission.account import Account
from engine.admission.occupancy import Occupancy
from engine.errors import BrokenInvariant
from engine.outcomes import Outcome

_SUCCESS = Outcome.SUCCESS


class Reservation:
    """A tenant's quota for one request, held until it is admitted or given back."""

    __slots__ = ("account", "open", "tokens")

    def __init__(self, account: Account, tokens: int) -> None:
        self.account = account
        self.tokens = tokens
        self.open = True

    def give_back(self, now_ms: float) -> None:
        """The request is refused elsewhere: return all of it."""
        if not self.open:
            raise BrokenInvariant("this reservation was given back or admitted already")
        self.open = False
        self.account.undo(self.tokens, now_ms)


class Permit:
    """A place in flight. Ends by exactly one of succeed, ignore and drop."""

    __slots__ = ("_account", "_occupancy", "_open", "_priority", "_tokens")

    def __init__(self, account: Account, tokens: int, occupancy: Occupancy, priority: int) -> None:
        self._account = account
        self._tokens = tokens
        self._occupancy = occupancy
        self._priority = priority
        self._open = True

    def succeed(
        self,
        latency_ms: float,
        tokens_used: int,
        now_ms: float,
        against_slo_ms: float | None = None,
    ) -> None:
        """Served after `latency_ms`, `against_slo_ms` of which (None: all) the SLO speaks of."""
        self._leave(now_ms)
        self._account.settle(self._tokens, tokens_used, now_ms, latency_ms)
        sample_ms = latency_ms if against_slo_ms is None else against_slo_ms
        self._occupancy.limit.observe(sample_ms, _SUCCESS, now_ms)

    def ignore(self, tokens_used: int, now_ms: float) -> None:
        """Ended in a way that says nothing about load."""
        self._leave(now_ms)
        self._charge(tokens_used, now_ms)

    def drop(self, latency_ms: float, tokens_used: int, now_ms: float) -> None:
        """Ran out of time after `latency_ms`."""
        self._leave(now_ms)
        self._charge(tokens_used, now_ms)
        self._occupancy.limit.observe(latency_ms, Outcome.DEADLINE, now_ms)

    def _leave(self, now_ms: float) -> None:
        if not self._open:
            raise BrokenInvariant("this permit was returned already")
        self._open = False
        self._occupancy.leave(self._priority, now_ms)

    def _charge(self, tokens_used: int, now_ms: float) -> None:
        if tokens_used:
            self._account.settle(self._tokens, tokens_used, now_ms)
        else:
            self._account.undo(self._tokens, now_ms)
