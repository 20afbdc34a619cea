"""A tenant's requests in flight, counted over several gateways."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admission.gate import Gate, GateConfig
from engine.admission.leased_bucket import QuotaLeases
from engine.admission.leased_places import LeasedPlaces
from engine.admission.permit import Permit
from engine.admission.place_pool import PlacePool
from engine.admission.quota_lease import TTL_MS, Ask
from engine.errors import InvalidInput, Refusal
from engine.types import ModelSpec, TenantSpec


def renew(pool: PlacePool, leases: QuotaLeases, name: str, limit: float, now_ms: float) -> None:
    """What a gateway does every tenth of a second, with a store that answers at once."""
    for places in leases.due(now_ms):
        grant = pool.renew(name, places.ask(now_ms), 1.0, limit, now_ms)
        places.granted(grant, now_ms)


def gateways(count: int, limit: float) -> tuple[list[QuotaLeases], list[LeasedPlaces], PlacePool]:
    leases = [QuotaLeases(count) for _ in range(count)]
    return leases, [each.make_places("acme", limit) for each in leases], PlacePool(limit, 0.0)


def test_a_cap_of_ten_admits_ten_of_two_hundred_through_two_gateways() -> None:
    leases, places, pool = gateways(2, 10.0)
    filled = 0
    for turn in range(200):
        now_ms = 5.0 * turn
        filled += places[turn % 2].take(1.0, now_ms) == 0.0
        for number in (0, 1):
            renew(pool, leases[number], f"g{number}", 10.0, now_ms)
    assert filled == 10


def test_one_busy_gateway_gets_all_the_places_that_the_other_leaves() -> None:
    leases, places, pool = gateways(2, 10.0)
    now_ms = 0.0
    while now_ms < 2000.0:
        places[0].take(1.0, now_ms)
        renew(pool, leases[0], "g0", 10.0, now_ms)
        now_ms += 20.0
    assert places[0].filled == 10


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["take", "free"]), st.floats(0.0, 400.0)),
        max_size=120,
    )
)
def test_with_leases_no_more_than_the_cap_are_ever_in_flight(
    steps: list[tuple[int, str, float]],
) -> None:
    limit = 7.0
    leases, places, pool = gateways(3, limit)
    now_ms = 0.0
    for number in range(3):  # each holds a lease before the first request
        places[number].granted(
            pool.renew(f"g{number}", places[number].ask(0.0), 1.0, limit, 0.0), 0.0
        )
    for number, verb, pause_ms in steps:
        now_ms += pause_ms
        for each in range(3):
            if places[each].is_degraded(now_ms + 100.0):
                grant = pool.renew(f"g{each}", places[each].ask(now_ms), 1.0, limit, now_ms)
                places[each].granted(grant, now_ms)
            renew(pool, leases[each], f"g{each}", limit, now_ms)
        if verb == "take":
            places[number].take(1.0, now_ms)
        elif places[number].filled:
            places[number].settle(1.0, 0.0, now_ms)
        assert sum(each.filled for each in places) <= limit
        assert sum(allowance for allowance, _ in pool.holders.values()) <= limit


def test_a_killed_gateways_places_are_free_again_when_its_lease_ends() -> None:
    leases, places, pool = gateways(2, 4.0)
    for _ in range(2):
        assert places[0].take(1.0, 0.0) == 0.0
    renew(pool, leases[0], "doomed", 4.0, 0.0)
    ask = Ask(spent=0.0, wanted=4.0, need=1.0, in_use=0.0)
    assert pool.renew("alive", ask, 1.0, 4.0, 1.0).held <= 1.0
    assert pool.renew("alive", ask, 1.0, 4.0, TTL_MS + 1.0).held == 2.0
    full = Ask(spent=0.0, wanted=4.0, need=1.0, in_use=3.0)
    assert pool.renew("alive", full, 1.0, 4.0, TTL_MS + 2.0).held == 1.0
    assert TTL_MS <= 15_000.0


def test_a_request_that_runs_for_minutes_keeps_its_place() -> None:
    leases, places, pool = gateways(2, 2.0)
    for other in places:
        assert other.take(1.0, 0.0) == 0.0
    now_ms = 0.0
    while now_ms < 120_000.0:
        for number in (0, 1):
            renew(pool, leases[number], f"g{number}", 2.0, now_ms)
        now_ms += 100.0
        if now_ms <= 1200.0:
            continue  # who joins on credit is known to the others one renewal later
        assert places[0].wait_ms(1.0, now_ms) > 0.0
        assert not places[0].is_degraded(now_ms)


def test_a_renewal_that_is_repeated_counts_nothing_twice() -> None:
    pool = PlacePool(10.0, 0.0)
    ask = Ask(spent=0.0, wanted=3.0, need=1.0, in_use=4.0)
    first = pool.renew("g", ask, 1.0, 10.0, 0.0)
    assert pool.renew("g", ask, 1.0, 10.0, 1.0) == first


def test_without_the_store_each_gateway_fills_its_part() -> None:
    _, places, _ = gateways(2, 10.0)
    assert sum(places[0].take(1.0, float(n)) == 0.0 for n in range(50)) == 5


def test_alone_a_tenant_fills_all_its_places_at_once() -> None:
    _, places, _ = gateways(1, 10.0)
    assert sum(places[0].take(1.0, 0.0) == 0.0 for _ in range(50)) == 10


def test_every_end_of_a_request_frees_its_place() -> None:
    leases = QuotaLeases(2)
    gate = Gate(GateConfig(places_factory=leases.make_places))
    gate.set_models({"m": ModelSpec(model="m", versions=frozenset({"v"}))}, 0.0)
    gate.set_tenants({"acme": TenantSpec(tenant="acme", max_in_flight=8, tokens_per_s=1000.0)}, 0.0)
    rng = random.Random(3)
    held: list[Permit] = []
    refusals = 0
    for step in range(400):
        tokens = rng.choice((10, 10**7))
        reservation = gate.reserve("acme", tokens, float(step))
        if isinstance(reservation, Refusal):
            refusals += 1
            if held:
                permit = held.pop(rng.randrange(len(held)))
                permit.ignore(0, float(step)) if step % 2 else permit.succeed(5.0, 1, float(step))
            continue
        permit_or_not = gate.admit(reservation, rng.choice(("m", "nowhere")), 1, float(step))
        if isinstance(permit_or_not, Permit):
            held.append(permit_or_not)
    assert refusals > 0
    for permit in held:
        permit.drop(900.0, 0, 500.0)
    filled = 0
    while not isinstance(gate.reserve("acme", 1, 500.0), Refusal):
        filled += 1
    assert filled == 4
    refusal = gate.would_refuse("acme", 1, "m", 1, 500.0)
    assert refusal is not None
    assert (refusal.limit_name, refusal.limit) == ("max_in_flight", 8.0)


def test_the_pool_survives_the_store_byte_for_byte() -> None:
    pool = PlacePool(5.0, 0.0)
    pool.renew("a", Ask(spent=0.0, wanted=1.0, need=1.0, in_use=2.0), 1.0, 5.0, 10.0)
    assert PlacePool.from_fields(pool.to_fields()).to_fields() == pool.to_fields()
    with pytest.raises(InvalidInput):
        PlacePool.from_fields({"holders": 3})
