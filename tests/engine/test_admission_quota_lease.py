"""One quota through several gateways: how close to the limit, and what when the store goes."""

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admission.leased_bucket import LeasedBucket, QuotaLeases
from engine.admission.quota_lease import TTL_MS, Ask, QuotaPool
from engine.errors import InvalidInput
from engine.simulation.events import EventLoop

RATE = 1000.0


class Gateways:
    """Several gateways that spend one tenant's tokens, with a store `trip_ms` away."""

    def __init__(
        self, count: int, rate_per_s: float, burst: float, *, trip_ms: float = 2.0
    ) -> None:
        self.loop = EventLoop()
        self.rate_per_s = rate_per_s
        self.burst = burst
        self.trip_ms = trip_ms
        self.store_up = True
        self.pool = QuotaPool(burst, 0.0)
        self.leases = [QuotaLeases(count) for _ in range(count)]
        self.buckets = [
            leases.make("acme", "tokens", rate_per_s, burst, 0.0) for leases in self.leases
        ]
        self.admitted: list[tuple[float, float]] = []
        self.refused = 0
        for number in range(count):
            self.loop.after(7.0 * number, lambda number=number: self.renew(number))

    def renew(self, number: int) -> None:
        now_ms = self.loop.now_ms()
        for bucket in self.leases[number].due(now_ms):
            ask = bucket.ask(now_ms)
            if self.store_up:
                self.loop.after(self.trip_ms, lambda b=bucket, a=ask: self.at_store(number, b, a))
            else:
                bucket.unheard(ask)
        self.loop.after(20.0, lambda: self.renew(number))

    def at_store(self, number: int, bucket: LeasedBucket, ask: Ask) -> None:
        grant = self.pool.renew(
            f"gateway-{number}", ask, self.rate_per_s, self.burst, self.loop.now_ms()
        )
        self.loop.after(self.trip_ms, lambda: bucket.granted(grant, self.loop.now_ms()))

    def offer(
        self,
        tokens_per_s: float,
        size: tuple[int, int],
        until_ms: float,
        seed: int = 5,
        shares: tuple[float, ...] | None = None,
        used_ratio: float = 1.0,
        took_ms: float = 0.0,
    ) -> None:
        """Poisson requests at `tokens_per_s` in all, spread over the gateways."""
        rng = random.Random(seed)
        mean = sum(size) / 2.0
        weights = shares or (1.0,) * len(self.buckets)

        def arrive() -> None:
            now_ms = self.loop.now_ms()
            number = rng.choices(range(len(self.buckets)), weights)[0]
            bucket = self.buckets[number]
            tokens = rng.randint(*size)
            if bucket.take(tokens, now_ms):
                self.refused += 1
            else:
                used = tokens * used_ratio
                self.admitted.append((now_ms, used))
                if used_ratio != 1.0:
                    self.loop.after(
                        took_ms, lambda: bucket.settle(tokens, used, self.loop.now_ms())
                    )
            again_ms = rng.expovariate(tokens_per_s / mean / 1000.0)
            if now_ms + again_ms < until_ms:
                self.loop.after(again_ms, arrive)

        arrive()

    def worst_window(self, from_ms: float, until_ms: float) -> tuple[float, float]:
        """The least and the most that any ten seconds carried."""
        sums = []
        start_ms = from_ms
        while start_ms + 10_000.0 <= until_ms:
            end_ms = start_ms + 10_000.0
            sums.append(sum(n for at_ms, n in self.admitted if start_ms <= at_ms < end_ms))
            start_ms += 250.0
        return min(sums), max(sums)


@pytest.mark.parametrize("shares", [(1.0, 1.0, 1.0), (8.0, 1.0, 1.0), (1.0, 0.0, 0.0)])
@pytest.mark.parametrize("size", [(5, 35), (20, 100)])
def test_three_times_the_limit_through_three_gateways_is_admitted_within_five_percent(
    shares: tuple[float, ...], size: tuple[int, int]
) -> None:
    fleet = Gateways(3, RATE, burst=RATE)
    fleet.offer(3.0 * RATE, size, 60_000.0, shares=shares)
    fleet.loop.run(60_000.0)
    least, most = fleet.worst_window(5000.0, 60_000.0)
    assert least >= 0.95 * 10.0 * RATE
    assert most <= 1.05 * 10.0 * RATE


def test_reservations_twice_as_large_as_the_use_do_not_halve_the_quota() -> None:
    fleet = Gateways(3, RATE, burst=2.0 * RATE)
    fleet.offer(3.0 * RATE, (5, 35), 60_000.0, used_ratio=0.5, took_ms=400.0)
    fleet.loop.run(60_000.0)
    least, most = fleet.worst_window(10_000.0, 60_000.0)
    assert least >= 0.95 * 10.0 * RATE
    assert most <= 1.05 * 10.0 * RATE


def test_a_tenant_under_its_limit_through_three_gateways_is_never_refused() -> None:
    per_minute = 500_000.0
    fleet = Gateways(3, per_minute / 60.0, burst=per_minute)
    fleet.offer(450_000.0 / 60.0, (200, 1800), 300_000.0)
    fleet.loop.run(300_000.0)
    assert fleet.refused == 0


def test_ten_may_enter_at_once_of_two_hundred_through_two_gateways() -> None:
    fleet = Gateways(2, 10.0 / 60.0, burst=10.0)
    admitted = sum(1 for number in range(200) if fleet.buckets[number % 2].take(1.0, 0.0) == 0.0)
    assert admitted == 10


def test_without_the_store_each_gateway_has_its_part_of_the_limit() -> None:
    fleet = Gateways(3, RATE, burst=RATE)
    fleet.store_up = False
    fleet.offer(3.0 * RATE, (5, 35), 40_000.0)
    fleet.loop.run(40_000.0)
    least, most = fleet.worst_window(5000.0, 40_000.0)
    assert least >= 0.95 * 10.0 * RATE
    assert most <= 1.05 * 10.0 * RATE
    assert all(leases.degraded(fleet.loop.now_ms()) for leases in fleet.leases)


def test_what_was_spent_while_the_store_was_away_is_charged_when_it_returns() -> None:
    fleet = Gateways(2, 10.0, burst=1000.0)
    fleet.store_up = False
    fleet.loop.run(100.0)
    for bucket in fleet.buckets:
        assert bucket.take(400.0, fleet.loop.now_ms()) == 0.0
    fleet.loop.run(1000.0)
    fleet.store_up = True
    fleet.loop.run(2000.0)
    known = fleet.pool.balance + fleet.pool.outstanding()
    assert known == pytest.approx(1000.0 - 800.0, abs=25.0)


def test_a_killed_gateway_costs_its_block_for_one_lease_and_no_longer() -> None:
    pool = QuotaPool(100.0, 0.0)
    grant = pool.renew("doomed", Ask(spent=0.0, wanted=40.0, need=40.0), 0.001, 100.0, 0.0)
    assert grant.held == 40.0
    other = Ask(spent=0.0, wanted=100.0, need=100.0)
    assert pool.renew("alive", other, 0.001, 100.0, TTL_MS - 1.0).held == pytest.approx(
        60.0, abs=0.1
    )
    assert pool.renew("alive", other, 0.001, 100.0, TTL_MS).held == pytest.approx(100.0, abs=0.1)
    assert TTL_MS <= 15_000.0


def test_sleeping_until_the_lease_lapses_does_not_refill_the_quota() -> None:
    fleet = Gateways(2, 1.0, burst=100.0)
    bucket = fleet.buckets[0]
    spent = 0.0
    for _ in range(10):
        for _ in range(40):
            while bucket.take(5.0, fleet.loop.now_ms()) == 0.0:
                spent += 5.0
            fleet.loop.run(fleet.loop.now_ms() + 50.0)
        fleet.loop.run(fleet.loop.now_ms() + TTL_MS + 500.0)
    elapsed_s = fleet.loop.now_ms() / 1000.0
    assert spent <= 100.0 + elapsed_s * 1.0 + 5.0


def test_a_need_above_the_burst_is_never_promised() -> None:
    bucket = QuotaLeases().make("acme", "tokens", 10.0, 100.0, 0.0)
    assert bucket.take(101.0, 0.0) == inf
    assert bucket.wait_ms(101.0, 0.0) == inf


def test_a_need_above_a_gateways_share_waits_for_a_full_share_and_runs_into_debt() -> None:
    bucket = QuotaLeases(4).make("acme", "tokens", 40.0, 100.0, 0.0)
    assert bucket.take(90.0, 0.0) == 0.0
    wait_ms = bucket.take(5.0, 0.0)
    assert wait_ms == pytest.approx((90.0 - 25.0 + 5.0) / 10.0 * 1000.0)


def test_a_new_limit_is_in_force_at_once_and_keeps_what_was_left() -> None:
    bucket = QuotaLeases().make("acme", "tokens", 1.0, 100.0, 0.0)
    assert bucket.take(60.0, 0.0) == 0.0
    bucket.reconfigure(1.0, 200.0, 0.0)
    assert bucket.level(0.0) == pytest.approx(40.0)
    bucket.reconfigure(1.0, 10.0, 0.0)
    assert bucket.take(11.0, 0.0) == inf


def test_the_pool_survives_the_store_byte_for_byte() -> None:
    pool = QuotaPool(50.0, 3.0)
    pool.renew("a", Ask(spent=2.0, wanted=9.0, need=1.0), 5.0, 50.0, 10.0)
    again = QuotaPool.from_fields(pool.to_fields())
    assert again.to_fields() == pool.to_fields()
    with pytest.raises(InvalidInput):
        QuotaPool.from_fields({"balance": "none"})


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.floats(0.0, 1.0),
            st.floats(0.0, 500.0),
            st.floats(0.0, 50.0),
            st.floats(0.0, 3000.0),
        ),
        min_size=1,
        max_size=60,
    )
)
def test_blocks_and_balance_never_exceed_the_burst_whoever_renews_when(
    renewals: list[tuple[int, float, float, float, float]],
) -> None:
    burst = 300.0
    pool = QuotaPool(burst, 0.0)
    held = [0.0] * 4
    now_ms = 0.0
    for gateway, spent_ratio, wanted, need, pause_ms in renewals:
        now_ms += pause_ms
        spent = held[gateway] * spent_ratio
        grant = pool.renew(
            f"g{gateway}", Ask(spent=spent, wanted=wanted, need=need), 20.0, burst, now_ms
        )
        held[gateway] = grant.held
        assert grant.held >= 0.0
        assert pool.balance + pool.outstanding() <= burst + 1e-6
        assert grant.outstanding == pool.outstanding()
