"""Places in flight, many gateways: how many of a tenant's may each fill on its own?

Tokens that were granted are spent; places are filled and freed. So a gateway does not hold a
block but an *allowance*: the places it has filled, and some of the free ones.

    free = limit - allowances of the others - filled here
    allowance = filled here + min(max(wanted, 1), free / 2)

rounded up for a gateway that wants places and down for one that does not, so that the last
free place goes where it is asked for. The allowances never add up to more than the limit, so
there is no error to publish while leases live; places filled on credit (a gateway's first
request) are known to the others one renewal later. A gateway reports what it has filled, not
what changed, so a renewal that is repeated or lost counts nothing twice; one that was killed
gives its places back when its lease ends, because its requests died with it.

Like `engine.admission.quota_lease` this is arithmetic on shared state: the gateway reads,
renews and writes back by compare and set. Times are milliseconds of the store's clock.
"""

from collections.abc import Mapping
from math import ceil, floor
from typing import Any

from engine.admission.quota_lease import TTL_MS, Ask, Grant
from engine.errors import InvalidInput, require_positive


class PlacePool:
    """The shared state of one tenant's places."""

    __slots__ = ("balance", "holders")

    def __init__(self, burst: float, now_ms: float) -> None:
        self.balance = require_positive("burst", burst)
        self.holders: dict[str, tuple[float, float]] = {}  # gateway -> (allowance, until_ms)

    def renew(
        self, gateway: str, ask: Ask, rate_per_s: float, burst: float, now_ms: float
    ) -> Grant:
        """Take in what `gateway` has filled and tell it how many more it may fill."""
        self.holders = {
            name: holder
            for name, holder in self.holders.items()
            if holder[1] > now_ms and name != gateway
        }
        free = floor(burst - sum(allowance for allowance, _ in self.holders.values()) - ask.in_use)
        half = ceil(free / 2) if ask.wanted > 0.0 else floor(free / 2)
        more = min(ceil(max(ask.wanted, 1.0)), max(half, 0))
        self.holders[gateway] = (ask.in_use + more, now_ms + TTL_MS)
        self.balance = float(max(free - more, 0))
        return Grant(
            held=float(more), balance=self.balance, gateways=len(self.holders), outstanding=0.0
        )

    def to_fields(self) -> dict[str, Any]:
        """The pool as plain JSON."""
        holders = {gateway: list(holder) for gateway, holder in self.holders.items()}
        return {"balance": self.balance, "holders": holders}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "PlacePool":
        """Read what `to_fields` wrote."""
        try:
            pool = cls(1.0, 0.0)
            pool.balance = float(fields["balance"])
            pool.holders = {
                str(gateway): (float(allowance), float(until_ms))
                for gateway, (allowance, until_ms) in fields["holders"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInput("pool", dict(fields), "is not what to_fields writes") from error
        return pool
