"""The gateway's end of places shared with other gateways: a tenant's `max_in_flight`.

Alone, it may fill them all. In company it may fill its allowance while its lease lives, and
without one (its first request, the store away) `places / live gateways`, at least one. What
it has filled is reported whole at each renewal, for as long as anything is filled, so a
request that runs for minutes keeps its place.

It looks like a bucket to the account: `take` fills a place, `settle` frees one.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from engine.admission.place_pool import PlacePool
from engine.admission.quota_lease import Ask, Grant

if TYPE_CHECKING:
    from engine.admission.leased_bucket import QuotaLeases

RENEW_MS = 100.0
_KEEP_MS = 500.0  # between renewals that have nothing new to tell: spare places go back
KIND = "places"


class LeasedPlaces:
    """A part of a tenant's shared places."""

    __slots__ = (
        "__weakref__",
        "_allowance",
        "_asked",
        "_asked_ms",
        "_changed",
        "_leases",
        "_told",
        "_until_ms",
        "burst",
        "filled",
        "kind",
        "outstanding",
        "tenant",
        "touched",
    )

    pool_type = PlacePool
    rate_per_s = 1.0  # nothing refills: only how long an idle pool is remembered

    def __init__(self, leases: QuotaLeases, tenant: str, burst: float) -> None:
        self.tenant = tenant
        self.kind = KIND
        self.burst = burst
        self.touched = False
        self.outstanding: float | None = None
        self.filled = 0
        self._leases = leases
        self._allowance = 0.0
        self._until_ms = -inf
        self._asked = 0  # places asked for since the last renewal
        self._asked_ms = -inf
        self._changed = False
        self._told = 0

    def take(self, need: float, now_ms: float) -> float:
        """Fill a place and return 0, or fill none and return the time to the next renewal."""
        if self._leases.live_gateways > 1:
            self._asked += 1
            self._touch()
        if self.filled < self._may_fill(now_ms):
            self.filled += 1
            return 0.0
        return RENEW_MS

    def wait_ms(self, need: float, now_ms: float) -> float:
        """What `take` would return, filling nothing."""
        return 0.0 if self.filled < self._may_fill(now_ms) else RENEW_MS

    def settle(self, reserved: float, used: float, now_ms: float) -> None:
        """Free a place."""
        self.filled = max(self.filled - 1, 0)
        if self._leases.live_gateways > 1:
            self._touch()

    def level(self, now_ms: float) -> float:
        """The places that may be filled now."""
        return max(self._may_fill(now_ms) - self.filled, 0.0)

    def reconfigure(self, rate_per_s: float, burst: float, now_ms: float) -> None:
        """Change the limit from now on. The pool learns of it at the next renewal."""
        self.burst = burst

    def ask(self, now_ms: float) -> Ask:
        """What to tell the store, and what to ask of it."""
        ask = Ask(spent=0.0, wanted=float(self._asked), need=0.0, in_use=float(self.filled))
        self._told = self.filled
        self._asked = 0
        self._asked_ms = now_ms
        self._changed = self.touched = False
        if self.filled:
            self._keep()
        return ask

    def granted(self, grant: Grant, now_ms: float) -> None:
        """The store answered: from now on this many may be filled."""
        self._allowance = self._told + grant.held
        self._until_ms = now_ms + grant.ttl_ms
        self.outstanding = grant.outstanding

    def unheard(self, ask: Ask) -> None:
        """The store did not answer: tell it again."""
        self._touch()

    def is_due(self, now_ms: float) -> bool:
        """Whether it was asked long enough ago to ask again."""
        return now_ms - self._asked_ms >= (RENEW_MS if self._changed else _KEEP_MS)

    def is_degraded(self, now_ms: float) -> bool:
        """Whether it fills places without a lease."""
        return now_ms >= self._until_ms

    def _may_fill(self, now_ms: float) -> float:
        gateways = self._leases.live_gateways
        if gateways <= 1:
            return self.burst
        if now_ms < self._until_ms:
            return min(self._allowance, self.burst)
        return max(self.burst // gateways, 1.0)

    def _touch(self) -> None:
        self._changed = True
        self._keep()

    def _keep(self) -> None:
        if not self.touched:
            self._leases.touch(self)
