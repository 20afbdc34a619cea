"""A tenant's account: what it may still use, what it is using, and why it was turned away.

Three limits, each optional, checked in the order of their cost: requests in flight, requests
per second, tokens per second. Absent means unlimited: a tenant with nothing configured may
use everything. Tokens are reserved as prompt + maximal output and settled with the real use.

A bucket without a configured burst holds one minute's worth, because limits are set and
read per minute: whoever may send 500 a minute may send them at once.
"""

from collections.abc import Callable
from math import inf
from typing import Protocol

from engine.errors import Refusal, RefusalCode
from engine.stats.sampled import SampledRates
from engine.types import TenantSpec
from engine.view import TenantView

DEFAULT_BURST_S = 60.0
_UNMEASURED_HOLD_MS = 1000.0  # how long a request is taken to last before one has ended
_HOLD_SHARE = 0.1  # weight of the newest request in that mean
_RATE_WINDOW_MS = 10_000.0


class Bucket(Protocol):
    """What an account needs of a bucket: a local one, or a block leased from a shared one."""

    burst: float

    @property
    def rate_per_s(self) -> float: ...
    def take(self, need: float, now_ms: float) -> float: ...
    def wait_ms(self, need: float, now_ms: float) -> float: ...
    def settle(self, reserved: float, used: float, now_ms: float) -> None: ...
    def level(self, now_ms: float) -> float: ...
    def reconfigure(self, rate_per_s: float, burst: float, now_ms: float) -> None: ...


# (tenant, "requests" or "tokens", rate_per_s, burst, now_ms) -> a full bucket
BucketFactory = Callable[[str, str, float, float, float], Bucket]
# (tenant, max_in_flight) -> the places of a tenant that other gateways fill too
PlacesFactory = Callable[[str, float], Bucket]


class Account:
    """One tenant's limits and use. Survives a change of its limits with its levels."""

    __slots__ = (
        "_make_places",
        "_rates",
        "hold_ms",
        "in_flight",
        "max_in_flight",
        "places",
        "refused",
        "requests",
        "requests_taken",
        "spec",
        "tokens",
        "tokens_used",
    )

    def __init__(
        self,
        spec: TenantSpec,
        make_bucket: BucketFactory,
        now_ms: float,
        make_places: PlacesFactory | None = None,
    ) -> None:
        self._make_places = make_places
        self.places: Bucket | None = None
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.in_flight = 0
        self.hold_ms: float | None = None
        self.refused: dict[str, int] = {}
        self.requests_taken = 0
        self.tokens_used = 0
        self._rates = SampledRates(_RATE_WINDOW_MS, 2, now_ms)
        self.configure(spec, make_bucket, now_ms)

    def configure(self, spec: TenantSpec, make_bucket: BucketFactory, now_ms: float) -> None:
        """Take over changed limits at once, keeping what is in the buckets."""
        self.spec = spec
        self.max_in_flight = inf if spec.max_in_flight is None else spec.max_in_flight
        if not spec.enabled:
            self.max_in_flight = -1.0
        self._share_places(now_ms)
        self.requests = _bucket(
            self.requests,
            spec,
            "requests",
            spec.requests_per_s,
            spec.requests_burst,
            make_bucket,
            now_ms,
        )
        self.tokens = _bucket(
            self.tokens, spec, "tokens", spec.tokens_per_s, spec.tokens_burst, make_bucket, now_ms
        )

    def take(self, tokens: int, now_ms: float) -> Refusal | None:
        """Reserve one request of `tokens`, or say which limit it hits and take nothing."""
        if self.in_flight >= self.max_in_flight:
            return self._refuse(self._occupied())
        if self.places is not None and self.places.take(1.0, now_ms):
            return self._refuse(self._occupied())
        requests = self.requests
        if requests is not None:
            wait_ms = requests.take(1.0, now_ms)
            if wait_ms:
                self._free_place(now_ms)
                return self._refuse(self._empty("requests", requests, 1.0, wait_ms, now_ms))
        bucket = self.tokens
        if bucket is not None:
            wait_ms = bucket.take(tokens, now_ms)
            if wait_ms:
                self._free_place(now_ms)
                if requests is not None:
                    requests.settle(1.0, 0.0, now_ms)
                return self._refuse(self._empty("tokens", bucket, tokens, wait_ms, now_ms))
        self.in_flight += 1
        self.requests_taken += 1
        return None

    def would_refuse(self, tokens: int, now_ms: float) -> Refusal | None:
        """What `take` would say, taking nothing."""
        if self.in_flight >= self.max_in_flight:
            return self._occupied()
        if self.places is not None and self.places.wait_ms(1.0, now_ms):
            return self._occupied()
        for kind, bucket, need in (("requests", self.requests, 1), ("tokens", self.tokens, tokens)):
            wait_ms = 0.0 if bucket is None else bucket.wait_ms(need, now_ms)
            if bucket is not None and wait_ms:
                return self._empty(kind, bucket, need, wait_ms, now_ms)
        return None

    def undo(self, tokens: int, now_ms: float) -> None:
        """Return everything that `take` took: the request was not served."""
        self.in_flight -= 1
        self.requests_taken -= 1
        self._free_place(now_ms)
        if self.requests is not None:
            self.requests.settle(1.0, 0.0, now_ms)
        if self.tokens is not None:
            self.tokens.settle(tokens, 0.0, now_ms)

    def settle(self, reserved: int, used: int, now_ms: float, held_ms: float | None = None) -> None:
        """Charge the real use of a request that ended, and learn how long it was in flight."""
        self.in_flight -= 1
        self.tokens_used += used
        if self.places is not None:
            self.places.settle(1.0, 0.0, now_ms)
        if self.tokens is not None:
            self.tokens.settle(reserved, used, now_ms)
        if held_ms is not None:
            mean_ms = self.hold_ms
            if mean_ms is None:
                self.hold_ms = held_ms
            else:
                self.hold_ms = mean_ms + _HOLD_SHARE * (held_ms - mean_ms)

    def note_refusal(self, code: RefusalCode) -> None:
        self.refused[code.value] = self.refused.get(code.value, 0) + 1

    def view(self, now_ms: float) -> TenantView:
        """The account as the dashboard shows it, with the bucket that would refuse first."""
        totals = (self.requests_taken, self.tokens_used)
        requests_per_s, tokens_per_s = self._rates.sample(totals, now_ms)
        bucket = _scarcer(self.requests, self.tokens, now_ms)
        return {
            "tenant": self.spec.tenant,
            "inFlight": self.in_flight,
            "ratePerS": max(requests_per_s, 0.0),  # a late refusal returns what it took
            "tokensPerS": tokens_per_s,
            "bucketLevel": None if bucket is None else bucket.level(now_ms),
            "bucketBurst": None if bucket is None else bucket.burst,
            "refused": dict(self.refused),
        }

    def _free_place(self, now_ms: float) -> None:
        if self.places is not None:
            self.places.settle(1.0, 0.0, now_ms)

    def _share_places(self, now_ms: float) -> None:
        """Count the requests in flight together with the other gateways, where there are any."""
        limit = self.spec.max_in_flight
        if limit is None or limit < 1 or self._make_places is None:
            self.places = None
        elif self.places is None:
            self.places = self._make_places(self.spec.tenant, float(limit))
        else:
            self.places.reconfigure(1.0, float(limit), now_ms)

    def _refuse(self, refusal: Refusal) -> Refusal:
        self.note_refusal(refusal.code)
        return refusal

    def _occupied(self) -> Refusal:
        tenant = self.spec.tenant
        if not self.spec.enabled:
            return Refusal(
                code=RefusalCode.FORBIDDEN,
                message=f"tenant {tenant} is disabled",
                limit_name="enabled",
                limit=0.0,
                used=0.0,
            )
        here = "now" if self.places is None else "here, the others at other gateways"
        hold_ms = _UNMEASURED_HOLD_MS if self.hold_ms is None else self.hold_ms
        return Refusal(
            code=RefusalCode.QUOTA_EXCEEDED,
            message=(
                f"tenant {tenant} may have {self.max_in_flight:g} requests in flight, "
                f"{self.in_flight} are in flight {here}"
            ),
            limit_name="max_in_flight",
            limit=float(self.max_in_flight),
            used=float(self.in_flight),
            retry_after_ms=max(hold_ms / max(self.in_flight, 1), 1.0),
        )

    def _empty(
        self, kind: str, bucket: Bucket, need: float, wait_ms: float, now_ms: float
    ) -> Refusal:
        tenant = self.spec.tenant
        if wait_ms == inf:
            return Refusal(
                code=RefusalCode.INVALID_REQUEST,
                message=(
                    f"this request reserves {need:g} {kind}, tenant {tenant} may never use more "
                    f"than {bucket.burst:g} at once: ask for fewer, or for a larger burst"
                ),
                limit_name=f"{kind}_burst",
                limit=bucket.burst,
                used=float(need),
            )
        level = bucket.level(now_ms)
        per_minute = 60.0 * bucket.rate_per_s
        return Refusal(
            code=RefusalCode.QUOTA_EXCEEDED,
            message=(
                f"tenant {tenant} is at its limit of {per_minute:g} {kind} per minute: "
                f"{need:g} needed, {level:.6g} left, enough in {wait_ms:.0f} ms"
            ),
            limit_name=f"{kind}_per_minute",
            limit=per_minute,
            used=bucket.burst - level,
            retry_after_ms=wait_ms,
            details={"need": need, "level": level, "burst": bucket.burst},
        )


def _bucket(
    current: Bucket | None,
    spec: TenantSpec,
    kind: str,
    rate_per_s: float | None,
    burst: float | None,
    make_bucket: BucketFactory,
    now_ms: float,
) -> Bucket | None:
    if rate_per_s is None:
        return None
    if burst is None:
        burst = max(rate_per_s * DEFAULT_BURST_S, 1.0)
    if current is None:
        return make_bucket(spec.tenant, kind, rate_per_s, burst, now_ms)
    if current.rate_per_s != rate_per_s or current.burst != burst:
        current.reconfigure(rate_per_s, burst, now_ms)
    return current


def _scarcer(one: Bucket | None, other: Bucket | None, now_ms: float) -> Bucket | None:
    """The bucket that would refuse first."""
    if one is None or other is None:
        return one or other
    emptier = one.level(now_ms) / one.burst <= other.level(now_ms) / other.burst
    return one if emptier else other
