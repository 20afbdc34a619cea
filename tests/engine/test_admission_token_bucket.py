"""Buckets: exact waits, never negative, never above the burst."""

from math import inf, nextafter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admission.token_bucket import TokenBucket
from engine.errors import InvalidInput

MINUTE_MS = 60_000.0
DAY_MS = 86_400_000.0


def test_a_refusal_fifty_nine_seconds_into_the_minute_waits_the_sixtieth() -> None:
    bucket = TokenBucket(1.0, 60.0, 0.0)
    assert bucket.take(60.0, 0.0) == 0.0
    assert bucket.take(60.0, 59_000.0) == pytest.approx(1000.0)
    assert bucket.take(60.0, 60_000.0) == 0.0


def test_a_clock_that_steps_back_refills_nothing_and_takes_nothing() -> None:
    bucket = TokenBucket(1.0, 60.0, 100_000.0)
    assert bucket.take(50.0, 100_000.0) == 0.0
    assert bucket.level(70_000.0) == 10.0
    assert bucket.take(11.0, 70_000.0) == pytest.approx(1000.0)
    assert bucket.level(101_000.0) == pytest.approx(11.0)


def test_an_idle_day_fills_the_bucket_to_the_burst_and_no_further() -> None:
    bucket = TokenBucket(10.0, 25.0, 0.0)
    assert bucket.take(25.0, 0.0) == 0.0
    assert bucket.level(DAY_MS) == 25.0


@given(
    rate_per_s=st.floats(0.01, 1e6),
    burst=st.floats(1.0, 1e7),
    need_ratio=st.floats(0.01, 1.0),
    start_ms=st.floats(0.0, 1e10),
)
def test_a_retry_exactly_after_the_wait_succeeds_and_one_before_it_does_not(
    rate_per_s: float, burst: float, need_ratio: float, start_ms: float
) -> None:
    bucket = TokenBucket(rate_per_s, burst, start_ms)
    assert bucket.take(burst, start_ms) == 0.0
    need = need_ratio * burst
    wait_ms = bucket.take(need, start_ms)
    if wait_ms == 0.0:  # less than a microsecond's refill
        assert need <= rate_per_s * 1e-6 * 1.001
        return
    early_ms = start_ms + 0.99 * wait_ms
    if early_ms > start_ms and 0.01 * wait_ms > 0.002 + 4 * (nextafter(start_ms, inf) - start_ms):
        assert bucket.wait_ms(need, early_ms) > 0.0
    assert bucket.take(need, max(start_ms + wait_ms, nextafter(start_ms, inf))) == 0.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["take", "settle", "wait"]),
            st.floats(0.0, 150.0),
            st.floats(0.0, 150.0),
            st.floats(-20.0, 2000.0),
        ),
        max_size=80,
    )
)
def test_a_bucket_is_never_negative_never_overfull_and_never_admits_more_than_it_refills(
    steps: list[tuple[str, float, float, float]],
) -> None:
    rate_per_s, burst = 20.0, 100.0
    bucket = TokenBucket(rate_per_s, burst, 0.0)
    now_ms = latest_ms = 0.0
    net = 0.0
    for verb, one, other, pause_ms in steps:
        now_ms += pause_ms
        latest_ms = max(latest_ms, now_ms)
        if verb == "take":
            wait_ms = bucket.take(one, now_ms)
            assert (wait_ms == inf) == (one > burst)
            if wait_ms == 0.0:
                net += one
        elif verb == "settle":
            reserved, used = one, min(one, other)
            if net >= reserved:
                bucket.settle(reserved, used, now_ms)
                net += used - reserved
        else:
            assert bucket.wait_ms(one, now_ms) >= 0.0
        assert 0.0 <= bucket.level(now_ms) <= burst
        assert net <= burst + rate_per_s * latest_ms / 1000.0 + 1e-3


def test_use_beyond_the_reservation_is_a_debt_that_refilling_pays_first() -> None:
    bucket = TokenBucket(10.0, 100.0, 0.0)
    assert bucket.take(100.0, 0.0) == 0.0
    bucket.settle(100.0, 150.0, 0.0)
    assert bucket.level(0.0) == 0.0
    assert bucket.take(1.0, 0.0) == pytest.approx(5100.0)


def test_use_beyond_the_reservation_counts_after_an_idle_day_too() -> None:
    bucket = TokenBucket(10.0, 100.0, 0.0)
    bucket.settle(10.0, 40.0, DAY_MS)
    assert bucket.level(DAY_MS) == 70.0


def test_new_limits_keep_the_level_and_hold_from_now_on() -> None:
    bucket = TokenBucket(10.0, 100.0, 0.0)
    assert bucket.take(80.0, 0.0) == 0.0
    bucket.reconfigure(1.0, 500.0, 1000.0)
    assert bucket.level(1000.0) == pytest.approx(30.0)
    assert bucket.level(11_000.0) == pytest.approx(40.0)
    bucket.reconfigure(1.0, 5.0, 11_000.0)
    assert bucket.level(11_000.0) == 5.0


def test_a_need_above_the_burst_is_refused_for_good() -> None:
    bucket = TokenBucket(10.0, 100.0, 0.0)
    assert bucket.take(100.5, DAY_MS) == inf
    assert bucket.level(DAY_MS) == 100.0


@pytest.mark.parametrize(("rate", "burst"), [(0.0, 1.0), (1.0, -1.0), (float("nan"), 1.0)])
def test_a_limit_that_is_no_limit_is_refused(rate: float, burst: float) -> None:
    with pytest.raises(InvalidInput):
        TokenBucket(rate, burst, 0.0)
