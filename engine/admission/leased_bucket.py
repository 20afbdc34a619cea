"""The gateway's end of a shared quota: spend the leased block, and go on without it.

`LeasedBucket` stands where a `TokenBucket` stands with one gateway. While its lease lives it
spends the block, and not a token more. Without a lease (a tenant's first request here, the
store away or frozen) it spends on credit: a bucket of `limit / live gateways`, filled with no
more than this gateway's part of what the pool last held. Whatever was spent on credit is told
to the pool at the next renewal, so nothing is free.

`QuotaLeases` makes the buckets and knows which have something to tell the store:

    gate = Gate(GateConfig(bucket_factory=leases.make))
    for bucket in leases.due(now_ms):
        ask = bucket.ask(now_ms)          then, with the store's answer or without one:
        bucket.granted(grant, now_ms)     bucket.unheard(ask)
"""

from collections.abc import Callable
from math import exp, inf
from weakref import WeakSet

from engine.admission.leased_places import LeasedPlaces
from engine.admission.quota_lease import Ask, Grant, QuotaPool
from engine.admission.token_bucket import TokenBucket

RENEW_MS = 100.0
_DEMAND_TAU_MS = 1000.0  # over which the demand is averaged
_AHEAD_S = 1.0  # of demand that a block should cover: ten renewals


class LeasedBucket:
    """A part of a shared quota."""

    pool_type = QuotaPool

    __slots__ = (
        "__weakref__",
        "_asked_ms",
        "_balance",
        "_demand_per_s",
        "_gateways",
        "_held",
        "_leases",
        "_need",
        "_rate_per_s",
        "_share",
        "_spent",
        "_until_ms",
        "_wanted",
        "burst",
        "kind",
        "outstanding",
        "tenant",
        "touched",
    )

    def __init__(
        self,
        leases: "QuotaLeases",
        tenant: str,
        kind: str,
        rate_per_s: float,
        burst: float,
        now_ms: float,
    ) -> None:
        self.tenant = tenant
        self.kind = kind
        self.burst = burst
        self.touched = False
        self.outstanding: float | None = None
        self._leases = leases
        self._rate_per_s = rate_per_s
        self._gateways = leases.live_gateways
        self._share = TokenBucket(rate_per_s / self._gateways, burst / self._gateways, now_ms)
        self._held = 0.0
        self._until_ms = -inf
        self._balance = burst
        self._spent = 0.0
        self._wanted = 0.0
        self._need = 0.0
        self._demand_per_s = 0.0
        self._asked_ms = -inf

    @property
    def rate_per_s(self) -> float:
        return self._rate_per_s

    def take(self, need: float, now_ms: float) -> float:
        """Take `need` and return 0, or take nothing and return the wait in ms (inf: never)."""
        if need > self.burst:
            return inf
        if not self.touched:
            self._leases.touch(self)
        self._wanted += need
        if need > self._need:
            self._need = need
        if now_ms < self._until_ms:
            if need <= self._held:
                self._held -= need
                self._spent += need
                return 0.0
            return self._wait_ms(need)
        return self._on_credit(need, now_ms)

    def wait_ms(self, need: float, now_ms: float) -> float:
        """What `take` would return, taking nothing."""
        if need > self.burst:
            return inf
        if now_ms < self._until_ms:
            return 0.0 if need <= self._held else self._wait_ms(need)
        return self._share.wait_ms(min(need, self._share.burst), now_ms)

    def settle(self, reserved: float, used: float, now_ms: float) -> None:
        """Return what was reserved and not used, or charge what was used beyond it."""
        if not self.touched:
            self._leases.touch(self)
        self._spent += used - reserved
        if now_ms < self._until_ms:
            self._held += reserved - used
        else:
            self._share.settle(reserved, used, now_ms)

    def level(self, now_ms: float) -> float:
        """What is left for everyone, as far as this gateway knows."""
        if now_ms < self._until_ms:
            return min(self.burst, max(0.0, self._held + self._balance))
        return self._share.level(now_ms)

    def reconfigure(self, rate_per_s: float, burst: float, now_ms: float) -> None:
        """Change the limits from now on. The pool learns of it at the next renewal."""
        self._rate_per_s = rate_per_s
        self.burst = burst
        self._held = min(self._held, burst)
        self._set_share(now_ms)

    def ask(self, now_ms: float) -> Ask:
        """What to tell the store, and what to ask of it. Spending starts anew from here."""
        elapsed_ms = min(now_ms - self._asked_ms, 10.0 * _DEMAND_TAU_MS)
        if elapsed_ms > 0.0:
            kept = exp(-elapsed_ms / _DEMAND_TAU_MS)
            rate_per_s = self._wanted * 1000.0 / elapsed_ms
            self._demand_per_s = kept * self._demand_per_s + (1.0 - kept) * rate_per_s
        ask = Ask(
            spent=self._spent,
            wanted=self._demand_per_s * _AHEAD_S + self._need,
            need=self._need,
        )
        self.touched = False
        self._asked_ms = now_ms
        self._spent = 0.0
        self._wanted = 0.0
        self._need = 0.0
        return ask

    def granted(self, grant: Grant, now_ms: float) -> None:
        """The store answered: from now on this block is what may be spent."""
        self._held = grant.held - self._spent
        self._until_ms = now_ms + grant.ttl_ms
        self._balance = grant.balance
        self.outstanding = grant.outstanding
        self._gateways = max(grant.gateways, 1)
        self._set_share(now_ms)
        part = max(grant.balance, 0.0) / self._gateways
        self._share.settle(part, self._share.level(now_ms), now_ms)

    def unheard(self, ask: Ask) -> None:
        """The store did not answer: remember what it was not told."""
        self._spent += ask.spent
        if not self.touched:
            self._leases.touch(self)

    def is_due(self, now_ms: float) -> bool:
        """Whether it was asked long enough ago to ask again."""
        return now_ms - self._asked_ms >= RENEW_MS

    def is_degraded(self, now_ms: float) -> bool:
        """Whether it spends on credit, for want of a lease."""
        return now_ms >= self._until_ms

    def spread(self, gateways: int, now_ms: float) -> None:
        """So many gateways live: without the store, each has this part of the limit."""
        if now_ms >= self._until_ms and gateways != self._gateways:
            self._gateways = gateways
            self._set_share(now_ms)

    def _on_credit(self, need: float, now_ms: float) -> float:
        self.spread(self._leases.live_gateways, now_ms)
        share = self._share
        at_once = min(need, share.burst)
        wait_ms = share.take(at_once, now_ms)
        if not wait_ms:
            share.settle(0.0, need - at_once, now_ms)  # more than a share waits for a full one
            self._spent += need
        return wait_ms

    def _wait_ms(self, need: float) -> float:
        """When this gateway's part of the pool and of the rate should cover `need`."""
        missing = need - self._held - max(self._balance, 0.0) / self._gateways
        return max(missing * self._gateways * 1000.0 / self._rate_per_s, RENEW_MS)

    def _set_share(self, now_ms: float) -> None:
        parts = self._gateways
        self._share.reconfigure(self._rate_per_s / parts, self.burst / parts, now_ms)


Leased = LeasedBucket | LeasedPlaces


class QuotaLeases:
    """The leased buckets and places of one gateway."""

    __slots__ = ("_buckets", "live_gateways", "on_touch", "touched")

    def __init__(self, live_gateways: int = 1) -> None:
        self.live_gateways = live_gateways
        self.touched: list[Leased] = []
        self.on_touch: Callable[[], None] | None = None  # called with the first one touched
        self._buckets: WeakSet[Leased] = WeakSet()

    def make(
        self, tenant: str, kind: str, rate_per_s: float, burst: float, now_ms: float
    ) -> LeasedBucket:
        """A bucket for the gate: its `bucket_factory`."""
        bucket = LeasedBucket(self, tenant, kind, rate_per_s, burst, now_ms)
        self._buckets.add(bucket)
        return bucket

    def make_places(self, tenant: str, places: float) -> LeasedPlaces:
        """A tenant's `max_in_flight`, shared with the other gateways."""
        leased = LeasedPlaces(self, tenant, places)
        self._buckets.add(leased)
        return leased

    def touch(self, leased: Leased) -> None:
        """`leased`, which was not touched before, has something to tell."""
        leased.touched = True
        self.touched.append(leased)
        if self.on_touch is not None and len(self.touched) == 1:
            self.on_touch()

    def due(self, now_ms: float) -> list[Leased]:
        """The buckets that have something to tell and were not heard for a renewal's time."""
        due = [bucket for bucket in self.touched if bucket.is_due(now_ms)]
        self.touched = [bucket for bucket in self.touched if not bucket.is_due(now_ms)]
        return due

    def error_bound(self) -> float:
        """How far all limits together may be off: the outstanding blocks, as last heard."""
        return sum(bucket.outstanding or 0.0 for bucket in self._buckets)

    def degraded(self, now_ms: float) -> int:
        """How many quotas in use are served on credit."""
        return sum(1 for bucket in self.touched if bucket.is_degraded(now_ms))
