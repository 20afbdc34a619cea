"""One quota, many gateways: how much of it may each spend on its own?

A tenant's tokens live in one pool in a shared store. A gateway cannot ask the store for each
request, so it leases a block, spends it locally, and says at the next renewal what it spent:

    room = balance + what the gateway holds
    part = wanted / wanted by all gateways
    block = min(wanted, max(part x room / 2, part x 0.25 s of the rate, largest need))
            but at least part x room / 10

Far from the limit blocks are generous; near it they shrink to 0.25 s of the gateway's part of
the rate, so that all blocks together are 2.5 % of what ten seconds may carry. Parts follow
the demand, because equal parts starve a gateway that has most of a tenant's traffic. The pool
never holds more than the burst less what is out on lease, so blocks are part of the burst,
not on top of it. The sum of the outstanding blocks is the published error bound.

A block lives `ttl_ms` after its last renewal and then returns to the pool by itself: that is
what a killed gateway costs. Use beyond the block (real use above the reservation, credit
while the store was away) is taken from the pool at the next renewal, into debt if need be.

Everything here is arithmetic. The gateway does the I/O: it reads the pool, calls `renew` with
the store's clock, and writes it back if nobody else did in between (compare and set).
Units: tokens (or requests), milliseconds of the store's clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import InvalidInput, require_positive

TTL_MS = 5000.0
_NEAR_LIMIT_S = 0.25
_MOST_RATIO = 0.5  # of the room goes out at once, where it is wanted
_LEAST_RATIO = 0.1  # of the room goes out even unasked: far from the limit nobody waits
_NOBODY = (0.0, 0.0, 0.0)


@dataclass(slots=True, frozen=True, kw_only=True)
class Ask:
    """A renewal: what was spent since the last one, what would be useful, the largest need;
    and, of places (`engine.admission.place_pool`), how many are filled now."""

    spent: float
    wanted: float
    need: float
    in_use: float = 0.0


@dataclass(slots=True, frozen=True, kw_only=True)
class Grant:
    """The answer: the block now held, and what is known of the pool."""

    held: float
    balance: float  # left in the pool, for all gateways
    gateways: int  # that hold a block of it
    outstanding: float  # the sum of all blocks: how far off the limit may be
    ttl_ms: float = TTL_MS


class QuotaPool:
    """The shared state of one tenant's quota of one kind."""

    __slots__ = ("at_ms", "balance", "holders")

    def __init__(self, burst: float, now_ms: float) -> None:
        self.balance = require_positive("burst", burst)
        self.at_ms = now_ms
        # gateway -> (held, until_ms, wanted)
        self.holders: dict[str, tuple[float, float, float]] = {}

    def renew(
        self, gateway: str, ask: Ask, rate_per_s: float, burst: float, now_ms: float
    ) -> Grant:
        """Take in what `gateway` spent and give it the block that is right for it now."""
        self._reclaim(now_ms)
        held = self.holders.pop(gateway, _NOBODY)[0] - ask.spent
        self._refill(rate_per_s, burst, held, now_ms)
        if held < 0.0:
            self.balance += held
            held = 0.0
        gateways = len(self.holders) + 1
        room = max(self.balance, 0.0) + held
        part = ask.wanted / max(ask.wanted + sum(h[2] for h in self.holders.values()), 1e-9)
        near = _NEAR_LIMIT_S * rate_per_s
        block = min(ask.wanted, max(part * _MOST_RATIO * room, part * near, ask.need))
        block = max(block, part * _LEAST_RATIO * room)
        change = min(block - held, max(self.balance, 0.0))
        held += change
        self.balance -= change
        self.holders[gateway] = (held, now_ms + TTL_MS, ask.wanted)
        return Grant(
            held=held, balance=self.balance, gateways=gateways, outstanding=self.outstanding()
        )

    def release(self, gateway: str, spent: float, now_ms: float) -> None:
        """A gateway leaves in peace and returns what it did not spend."""
        self.balance += self.holders.pop(gateway, _NOBODY)[0] - spent
        self._reclaim(now_ms)

    def outstanding(self) -> float:
        """The sum of all blocks: the error bound."""
        return sum(holder[0] for holder in self.holders.values())

    def to_fields(self) -> dict[str, Any]:
        """The pool as plain JSON."""
        holders = {gateway: list(holder) for gateway, holder in self.holders.items()}
        return {"balance": self.balance, "atMs": self.at_ms, "holders": holders}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "QuotaPool":
        """Read what `to_fields` wrote."""
        try:
            pool = cls(1.0, float(fields["atMs"]))
            pool.balance = float(fields["balance"])
            pool.holders = {
                str(gateway): (float(held), float(until_ms), float(wanted))
                for gateway, (held, until_ms, wanted) in fields["holders"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidInput("pool", dict(fields), "is not what to_fields writes") from error
        return pool

    def _refill(self, rate_per_s: float, burst: float, held: float, now_ms: float) -> None:
        """Refill up to the burst less what is out, whoever holds it."""
        elapsed_ms = max(now_ms - self.at_ms, 0.0)
        self.at_ms = max(self.at_ms, now_ms)
        room = burst - self.outstanding() - max(held, 0.0)
        self.balance = min(self.balance + elapsed_ms * rate_per_s / 1000.0, max(room, 0.0))

    def _reclaim(self, now_ms: float) -> None:
        """Return the blocks of gateways that were not heard of for the life of a lease."""
        for gateway, (held, until_ms, _) in list(self.holders.items()):
            if until_ms <= now_ms:
                self.balance += held
                del self.holders[gateway]
