"""Quotas that several gateways share: renewing leased blocks through Valkey, in the background.

`engine.admission.quota_lease` has the arithmetic, `leased_bucket` the gateway's end of it.
Here is the I/O: every `STEP_S` the buckets that have something to tell are read from the
store, renewed by its clock and written back if nobody else did in between (compare and set
in one script, however many there are). A request never waits for any of it.

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
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import redis.asyncio
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from engine.admission.leased_bucket import LeasedBucket, QuotaLeases
from engine.admission.quota_lease import Ask, Grant, QuotaPool
from engine.errors import InvalidInput
from fleet.gateway.clock import MonotonicClock

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

_SWAP = """
local done = {}
for i, key in ipairs(KEYS) do
    local now = redis.call('GET', key)
    if (now or '') == ARGV[3 * i - 2] then
        redis.call('SET', key, ARGV[3 * i - 1], 'PX', ARGV[3 * i])
        done[i] = 1
    else
        done[i] = 0
    end
end
return done
"""

log = logging.getLogger("halcyon.gateway")


class Renewal:
    """A bucket on its way to the store and back."""

    __slots__ = ("ask", "bucket", "grant", "key")

    def __init__(self, bucket: LeasedBucket, ask: Ask) -> None:
        self.bucket = bucket
        self.ask = ask
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
        self._hungry: WeakKeyDictionary[LeasedBucket, tuple[float, float]] = WeakKeyDictionary()
        self._store = redis.asyncio.Redis.from_url(
            valkey_url,
            socket_timeout=STORE_TIMEOUT_S,
            socket_connect_timeout=STORE_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
            single_connection_client=False,
            max_connections=2,
        )
        self._swap = self._store.register_script(_SWAP)
        self._outstanding: dict[LeasedBucket, tuple[float, float]] = {}  # as last heard, until
        self._next_beat_s = 0.0
        self.renewals = 0
        self.conflicts = 0
        self.failures = 0

    async def run(self) -> None:
        """Until cancelled."""
        pause_s = 0.0
        while True:
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.2) if pause_s else STEP_S)
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
        for bucket in [b for b, (_, until_ms) in self._outstanding.items() if until_ms < now_ms]:
            del self._outstanding[bucket]
        return sum(outstanding for outstanding, _ in self._outstanding.values())

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

    async def _beat(self) -> None:
        """Say that this gateway lives and count the others; also the proof that the store does."""
        now_s = time.monotonic()
        if now_s < self._next_beat_s:
            return
        seconds, micros = await self._store.time()
        at = seconds + micros / 1e6
        pipe = self._store.pipeline(transaction=False)
        pipe.zadd(GATEWAYS, {self._gateway: at})
        pipe.zremrangebyscore(GATEWAYS, 0, at - LIVE_S)
        pipe.zcard(GATEWAYS)
        self._leases.live_gateways = max(int((await pipe.execute())[-1]), 1)
        self._next_beat_s = now_s + BEAT_S

    async def _renew_due(self) -> None:
        now_ms = self._clock.now_ms()
        due = dict.fromkeys(self._leases.due(now_ms))
        for bucket, (_, until_ms) in list(self._hungry.items()):
            if now_ms > until_ms:
                del self._hungry[bucket]
            elif bucket.is_due(now_ms):
                due[bucket] = None
        renewals = [Renewal(bucket, self._ask(bucket, now_ms)) for bucket in due]
        for start in range(0, len(renewals), SLICE):
            part = renewals[start : start + SLICE]
            try:
                await self._renew(part)
            finally:
                self._settle(part)

    def _ask(self, bucket: LeasedBucket, now_ms: float) -> Ask:
        ask = bucket.ask(now_ms)
        need = max(ask.need, self._hungry.get(bucket, (0.0, 0.0))[0])
        return Ask(spent=ask.spent, wanted=max(ask.wanted, need), need=need)

    def _settle(self, renewals: Sequence[Renewal]) -> None:
        """Hand out what was granted; what was not heard is told again."""
        now_ms = self._clock.now_ms()
        for renewal in renewals:
            bucket, grant = renewal.bucket, renewal.grant
            if grant is None:
                bucket.unheard(renewal.ask)
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
        """Read, compute, write; whoever was overtaken by another gateway tries again."""
        for _ in range(TRIES):
            pipe = self._store.pipeline(transaction=False)
            pipe.time()
            pipe.mget([renewal.key for renewal in renewals])
            (seconds, micros), stored = await pipe.execute()
            now_ms = seconds * 1000.0 + micros / 1000.0
            granted: list[Grant] = []
            arguments: list[Any] = []
            for renewal, before in zip(renewals, stored, strict=True):
                grant, after, life_ms = self._compute(renewal, before, now_ms)
                granted.append(grant)
                arguments += [before or b"", after, life_ms]
            swapped = await self._swap(keys=[each.key for each in renewals], args=arguments)
            for renewal, grant, done in zip(renewals, granted, swapped, strict=True):
                if done:
                    renewal.grant = grant
            renewals = [each for each in renewals if each.grant is None]
            if not renewals:
                return
            self.conflicts += len(renewals)
            await asyncio.sleep(random.uniform(0.0, 0.005))

    def _compute(
        self, renewal: Renewal, before: bytes | None, now_ms: float
    ) -> tuple[Grant, bytes, int]:
        bucket = renewal.bucket
        rate_per_s, burst = bucket.rate_per_s, bucket.burst
        pool: QuotaPool | None = None
        if before is not None:
            try:
                pool = QuotaPool.from_fields(msgspec.json.decode(before))
            except (InvalidInput, msgspec.MsgspecError) as error:
                log.error("the quota of %s is unreadable and starts anew: %s", bucket.tenant, error)
        if pool is None:
            pool = QuotaPool(burst, now_ms)
        grant = pool.renew(self._gateway, renewal.ask, rate_per_s, burst, now_ms)
        life_ms = int(min(2000.0 * burst / rate_per_s + 60_000.0, 7 * 86_400_000.0))
        return grant, msgspec.json.encode(pool.to_fields()), life_ms
