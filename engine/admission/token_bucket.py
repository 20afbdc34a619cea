"""The token bucket: how much may this tenant use now, and if not now, when exactly?

    balance = min(burst, balance + elapsed x rate)         refilled lazily, when asked
    admitted when need <= balance, else wait = (need - balance) / rate

The wait is exact: a request that comes back after it, with nobody in between, is admitted.
A need above the burst could wait for ever, so its wait is infinite and the gate refuses it
for good. Use beyond the reservation leaves a debt that refilling pays first, so that
understating a request does not pay; the level that is shown never falls below 0.

Units: tokens (or requests), per second; times in monotonic milliseconds. A clock that
repeats or goes back refills nothing and takes nothing.
"""

from math import inf

from engine.errors import require_positive

# A caller returns after exactly the wait it was told, but a float of milliseconds since
# boot cannot hold that instant exactly: a microsecond's refill is advanced on trust.
_TRUST_MS = 0.001


class TokenBucket:
    """Refills at `rate_per_s` up to `burst`; starts full."""

    __slots__ = ("_at_ms", "_balance", "_rate_per_ms", "_trust", "burst")

    def __init__(self, rate_per_s: float, burst: float, now_ms: float) -> None:
        self._at_ms = now_ms
        self._set(rate_per_s, burst)
        self._balance = self.burst

    def take(self, need: float, now_ms: float) -> float:
        """Take `need` and return 0, or take nothing and return the wait in ms (inf: never)."""
        elapsed_ms = now_ms - self._at_ms
        if elapsed_ms > 0.0:
            balance = self._balance + elapsed_ms * self._rate_per_ms
            self._balance = balance if balance < self.burst else self.burst
            self._at_ms = now_ms
        if need <= self._balance + self._trust:
            self._balance -= need
            return 0.0
        return self._wait_ms(need)

    def wait_ms(self, need: float, now_ms: float) -> float:
        """What `take` would return, taking nothing."""
        self._refill(now_ms)
        return 0.0 if need <= self._balance + self._trust else self._wait_ms(need)

    def settle(self, reserved: float, used: float, now_ms: float) -> None:
        """Return what was reserved and not used, or charge what was used beyond it."""
        balance = self._balance
        elapsed_ms = now_ms - self._at_ms
        if elapsed_ms > 0.0:  # refill up to the burst first: a charge must not eat the overflow
            balance += elapsed_ms * self._rate_per_ms
            if balance > self.burst:
                balance = self.burst
            self._at_ms = now_ms
        balance += reserved - used
        self._balance = balance if balance < self.burst else self.burst

    def reconfigure(self, rate_per_s: float, burst: float, now_ms: float) -> None:
        """Change the limits from now on. What is in the bucket stays, up to the new burst."""
        self._refill(now_ms)
        self._set(rate_per_s, burst)
        self._balance = min(self._balance, self.burst)

    def level(self, now_ms: float) -> float:
        """What can be taken now: never negative, never above the burst."""
        self._refill(now_ms)
        return max(0.0, self._balance)

    @property
    def rate_per_s(self) -> float:
        return self._rate_per_ms * 1000.0

    def _wait_ms(self, need: float) -> float:
        return inf if need > self.burst else (need - self._balance) / self._rate_per_ms

    def _refill(self, now_ms: float) -> None:
        elapsed_ms = now_ms - self._at_ms
        if elapsed_ms > 0.0:
            self._balance = min(self.burst, self._balance + elapsed_ms * self._rate_per_ms)
            self._at_ms = now_ms

    def _set(self, rate_per_s: float, burst: float) -> None:
        self._rate_per_ms = require_positive("rate_per_s", rate_per_s) / 1000.0
        self.burst = require_positive("burst", burst)
        self._trust = self._rate_per_ms * _TRUST_MS
