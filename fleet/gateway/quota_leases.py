"""Quotas that several gateways share: renewing leased blocks through Valkey, in the background.

`engine.admission.quota_lease` has the arithmetic, `leased_bucket` the gateway's end of it.
Here is the I/O: every `STEP_S` the buckets that have something to tell are renewed by the
store's clock and written back if nobody else wrote since they were last seen (compare and
set, one script for all; who was overtaken gets the newer state with the answer and tries
again). Mostly that is one exchange. A request never waits for any of it.

The store may refuse, or accept and freeze: every wait has a limit. Without it each gateway
spends its part of the limit on credit, `limits` is degraded, and what was spent is told later.

A request that was refused for want of tokens is told when to come back; until then its need
is asked for at each step, so that the block is there when it does.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from engine.admission.leased_bucket import Leased, QuotaLeases
from engine.admission.place_pool import PlacePool
from engine.admission.quota_lease import Ask, Grant, QuotaPool
from engine.errors import InvalidInput
from fleet.gateway.clock import MonotonicClock
from fleet.gateway.pace import Rest

STEP_S = 0.1
STORE_TIMEOUT_S = 0.5
BACKOFF_S = (0.25, 2.0)
BEAT_S = 2.0
LIVE_S = 10.0  # a gateway that did not beat for so long is not counted
SLICE = 200
TRIES = 4
HUNGRY_FOR_MS = 60_000.0
PREFIX = "halcyon:quota:"
GATEWAYS = "halcyon:gateways"

# Write each pool whose stored state is still the one expected, give back the state of the
# others; and the store's time.
_SWAP = """
local answer = redis.call('TIME')
for i, key in ipairs(KEYS) do
    local stored = redis.call('GET', key) or ''
    if stored == ARGV[3 * i - 2] then
        redis.call('SET', key, ARGV[3 * i - 1], 'PX', ARGV[3 * i])
        stored = false
    end
    answer[i + 2] = stored
end
return answer
"""
MAX_KNOWN = 50_000
NEARLY_FULL_RATIO = 0.5

log = logging.getLogger("halcyon.gateway")


class Renewal:
    """A bucket on its way to the store and back."""

    __slots__ = ("ask", "bucket", "grant", "key", "told")

    def __init__(self, bucket: Leased, told: Ask, ask: Ask) -> None:
        self.bucket = bucket
        self.told = told  # by the bucket
        self.ask = ask  # of the pool
        self.key = f"{PREFIX}{bucket.kind}:{bucket.tenant}"
        self.grant: Grant | None = None


class QuotaKeeper:
    """Keeps one process's leases alive."""

    def __init__(
        self,
        valkey_url: str,
        gateway: str,
        leases: QuotaLeases,
        clock: MonotonicClock,
        went: Callable[[str | None], None],
    ) -> None:
        self._gateway = gateway
        self._leases = leases
        self._clock = clock
        self._went = went
        self._hungry: WeakKeyDictionary[Leased, tuple[float, float]] = WeakKeyDictionary()
        self._store = redis.asyncio.Redis.from_url(
            valkey_url,
            socket_timeout=STORE_TIMEOUT_S,
            socket_connect_timeout=STORE_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            single_connection_client=True,
        )
        self._swap = self._store.register_script(_SWAP)
        self._known: dict[str, bytes] = {}  # pools as last seen in the store
        self._ahead_ms = 0.0  # the store's clock against ours
        # what all gateways had on lease when this one last heard, and until when its own lives
        self._outstanding: WeakKeyDictionary[Leased, tuple[float, float]] = WeakKeyDictionary()
        self._next_beat_s = 0.0
        self._rest = Rest(STEP_S)
        leases.on_touch = self._rest.nudge
        self.renewals = 0
        self.conflicts = 0
        self.failures = 0

    async def run(self) -> None:
        """Until cancelled."""
        pause_s = 0.0
        while True:
            if pause_s:
                await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))
            else:
                busy = self._hungry or self._leases.touched
                await self._rest.until(0.0 if busy else self._next_beat_s)
            try:
                async with asyncio.timeout(4 * STORE_TIMEOUT_S):
                    await self._beat()
                    await self._renew_due()
            except (RedisError, OSError, TimeoutError, InvalidInput) as error:
                self.failures += 1
                pause_s = min(max(pause_s * 2.0, BACKOFF_S[0]), BACKOFF_S[1])
                self._went(str(error)[:200] or "Valkey does not answer")
            else:
                pause_s = 0.0
                self._went(None)

    def error_bound(self) -> float:
        """How far all limits together may be off: the blocks out on lease, as last heard."""
        now_ms = self._clock.now_ms()
        return sum(
            outstanding
            for outstanding, until_ms in self._outstanding.values()
            if until_ms >= now_ms
        )

    async def close(self) -> None:
        """Leave the count of gateways. Blocks return by themselves."""
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                await self._store.zrem(GATEWAYS, self._gateway)
        except (RedisError, OSError, TimeoutError) as error:
            log.debug("no farewell to Valkey: %s", error)
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                await self._store.aclose()
        except (RedisError, OSError, TimeoutError) as error:
            log.debug("no orderly end with Valkey: %s", error)

    @property
    def _is_beat_due(self) -> bool:
        return self._next_beat_s <= self._rest.horizon_s()

    async def _beat(self) -> None:
        """Say that this gateway lives and count the others; also the proof that the store does."""
        if not self._is_beat_due:
            return
        seconds, micros = await self._store.time()
        self._tell_time(seconds, micros)
        at = seconds + micros / 1e6
        pipe = self._store.pipeline(transaction=False)
        pipe.zadd(GATEWAYS, {self._gateway: at})
        pipe.zremrangebyscore(GATEWAYS, 0, at - LIVE_S)
        pipe.zcard(GATEWAYS)
        self._leases.live_gateways = max(int((await pipe.execute())[-1]), 1)
        self._next_beat_s = time.monotonic() + BEAT_S

    async def _renew_due(self) -> None:
        now_ms = self._clock.now_ms()
        due = dict.fromkeys(self._leases.due(now_ms))
        for bucket, (_, until_ms) in list(self._hungry.items()):
            if now_ms > until_ms:
                del self._hungry[bucket]
            elif bucket.is_due(now_ms):
                due[bucket] = None
        renewals = [self._renewal(bucket, now_ms) for bucket in due]
        for start in range(0, len(renewals), SLICE):
            part = renewals[start : start + SLICE]
            try:
                await self._renew(part)
            finally:
                self._settle(part)

    def _renewal(self, bucket: Leased, now_ms: float) -> Renewal:
        """What to tell and to ask. Of what was spent without a lease, this gateway's share of
        the rate meanwhile was its own: telling it would charge for the outage itself."""
        told = bucket.ask(now_ms)
        until_ms = self._outstanding.get(bucket, (0.0, now_ms))[1]
        away_s = max(now_ms - until_ms, 0.0) / 1000.0
        own = bucket.rate_per_s / self._leases.live_gateways * away_s
        need = max(told.need, self._hungry.get(bucket, (0.0, 0.0))[0])
        ask = replace(
            told,
            spent=told.spent if told.spent <= 0.0 else max(told.spent - own, 0.0),
            wanted=max(told.wanted, need),
            need=need,
        )
        return Renewal(bucket, told, ask)

    def _settle(self, renewals: Sequence[Renewal]) -> None:
        """Hand out what was granted; what was not heard is told again."""
        now_ms = self._clock.now_ms()
        for renewal in renewals:
            bucket, grant = renewal.bucket, renewal.grant
            if grant is None:
                bucket.unheard(renewal.told)
                continue
            self.renewals += 1
            bucket.granted(grant, now_ms)
            self._outstanding[bucket] = (grant.outstanding, now_ms + grant.ttl_ms)
            if grant.held >= renewal.ask.need:
                self._hungry.pop(bucket, None)
            elif renewal.ask.need <= bucket.burst:
                until_ms = self._hungry.get(bucket, (0.0, now_ms + HUNGRY_FOR_MS))[1]
                self._hungry[bucket] = (renewal.ask.need, until_ms)

    async def _renew(self, renewals: list[Renewal]) -> None:
        """Compute and write; whoever was overtaken by another gateway tries again."""
        known = self._known
        if len(known) > MAX_KNOWN:
            known.clear()
        for _ in range(TRIES):
            now_ms = self._clock.now_ms() + self._ahead_ms
            granted: list[Grant] = []
            arguments: list[Any] = []
            for renewal in renewals:
                before = known.get(renewal.key, b"")
                grant, after, life_ms = self._compute(renewal, before, now_ms)
                granted.append(grant)
                arguments += [before, after, life_ms]
            keys = [renewal.key for renewal in renewals]
            seconds, micros, *stored = await self._swap(keys=keys, args=arguments)
            self._tell_time(int(seconds), int(micros))
            for place, (renewal, found) in enumerate(zip(renewals, stored, strict=True)):
                if found is None:
                    renewal.grant = granted[place]
                    known[renewal.key] = arguments[3 * place + 1]
                else:
                    known[renewal.key] = found
            renewals = [each for each in renewals if each.grant is None]
            if not renewals:
                return
            self.conflicts += len(renewals)
            await asyncio.sleep(random.uniform(0.0, 0.005))

    def _tell_time(self, seconds: int, micros: int) -> None:
        self._ahead_ms = seconds * 1000.0 + micros / 1000.0 - self._clock.now_ms()

    def _compute(self, renewal: Renewal, before: bytes, now_ms: float) -> tuple[Grant, bytes, int]:
        bucket = renewal.bucket
        rate_per_s, burst = bucket.rate_per_s, bucket.burst
        pool: QuotaPool | PlacePool | None = None
        if before:
            try:
                pool = bucket.pool_type.from_fields(msgspec.json.decode(before))
            except (InvalidInput, msgspec.MsgspecError) as error:
                log.error("the quota of %s is unreadable and starts anew: %s", bucket.tenant, error)
        if pool is None:
            pool = bucket.pool_type(burst, now_ms)
        ask = renewal.ask
        if pool.balance >= NEARLY_FULL_RATIO * burst:
            # far from the limit a block is kept though nobody asks: the next burst starts on it
            spare = burst / (2.0 * self._leases.live_gateways)
            ask = replace(ask, wanted=max(ask.wanted, spare))
        grant = pool.renew(self._gateway, ask, rate_per_s, burst, now_ms)
        life_ms = int(min(2000.0 * burst / rate_per_s + 60_000.0, 7 * 86_400_000.0))
        return grant, msgspec.json.encode(pool.to_fields()), life_ms
