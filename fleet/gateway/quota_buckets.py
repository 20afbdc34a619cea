"""Exact while alone, leased in company: the bucket that the gate gets from a gateway.

A gateway process that is the only one keeps plain token buckets: bursts are whole and waits
exact to the millisecond. As soon as a second one lives, the same quota is spent in leased
blocks; what was used before is told to the pool, so joining gives nothing away. When the
others leave, the level they left behind goes on as a plain bucket.

Who lives is known from the store every two seconds. In that moment of not knowing, a joining
gateway may spend its share beside the first one's bucket: once, and a share at most.
"""

from engine.admission.leased_bucket import LeasedBucket, QuotaLeases
from engine.admission.token_bucket import TokenBucket


class SharedBucket:
    """`engine.admission.account.Bucket`: a plain bucket or a leased one, by who else lives."""

    __slots__ = ("_alone", "_joined", "_kind", "_leased", "_leases", "_tenant", "burst")

    def __init__(
        self,
        leases: QuotaLeases,
        tenant: str,
        kind: str,
        rate_per_s: float,
        burst: float,
        now_ms: float,
    ) -> None:
        self.burst = burst
        self._leases = leases
        self._tenant = tenant
        self._kind = kind
        self._alone = TokenBucket(rate_per_s, burst, now_ms)
        self._leased: LeasedBucket | None = None
        self._joined = False

    @property
    def rate_per_s(self) -> float:
        return self._alone.rate_per_s

    def take(self, need: float, now_ms: float) -> float:
        """Take `need` and return 0, or take nothing and return the wait in ms (inf: never)."""
        if self._leases.live_gateways == 1 and not self._joined:
            return self._alone.take(need, now_ms)
        return self._in_force(now_ms).take(need, now_ms)

    def wait_ms(self, need: float, now_ms: float) -> float:
        """What `take` would return, taking nothing."""
        return self._in_force(now_ms).wait_ms(need, now_ms)

    def settle(self, reserved: float, used: float, now_ms: float) -> None:
        """Return what was reserved and not used, or charge what was used beyond it."""
        self._in_force(now_ms).settle(reserved, used, now_ms)

    def level(self, now_ms: float) -> float:
        """What is left, as far as this gateway knows."""
        return self._in_force(now_ms).level(now_ms)

    def reconfigure(self, rate_per_s: float, burst: float, now_ms: float) -> None:
        """Change the limits from now on."""
        self.burst = burst
        self._alone.reconfigure(rate_per_s, burst, now_ms)
        if self._leased is not None:
            self._leased.reconfigure(rate_per_s, burst, now_ms)

    def _in_force(self, now_ms: float) -> TokenBucket | LeasedBucket:
        alone = self._alone
        in_company = self._leases.live_gateways > 1
        if in_company and not self._joined:
            self._joined = True
            if self._leased is None:
                self._leased = self._leases.make(
                    self._tenant, self._kind, alone.rate_per_s, alone.burst, now_ms
                )
            used = alone.burst - alone.level(now_ms)
            if used > 0.0:
                self._leased.settle(0.0, used, now_ms)
        elif self._joined and not in_company:
            self._joined = False
            assert self._leased is not None
            level = min(self._leased.level(now_ms), alone.burst)
            alone.settle(level, alone.level(now_ms), now_ms)
        if self._joined and self._leased is not None:
            return self._leased
        return alone


class SharedBuckets:
    """Makes the buckets of one gateway process: the gate's `bucket_factory`."""

    def __init__(self, leases: QuotaLeases) -> None:
        self._leases = leases

    def make(
        self, tenant: str, kind: str, rate_per_s: float, burst: float, now_ms: float
    ) -> SharedBucket:
        """A full bucket."""
        return SharedBucket(self._leases, tenant, kind, rate_per_s, burst, now_ms)
