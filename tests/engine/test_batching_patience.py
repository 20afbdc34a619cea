"""Go now, or wait for the clients that were just answered?"""

import random

from engine.batching.patience import Patience


def closed_loop(
    patience: Patience, *, batches: int = 20, clients: int = 16, scale: float = 1.0
) -> float:
    """Batches whose clients all send again within 1 to 4 ms, times `scale`. Returns the time
    afterwards."""
    rng = random.Random(1)
    now_ms = 0.0
    for _ in range(batches):
        patience.finished(clients, now_ms)
        for delay_ms in sorted(scale * rng.uniform(1.0, 4.0) for _ in range(clients)):
            patience.arrived(now_ms + delay_ms)
        now_ms += 80.0
    return now_ms


def open_loop(patience: Patience, *, rate_per_ms: float = 0.2) -> float:
    """Poisson arrivals that care nothing for the batches that end every 60 ms."""
    rng = random.Random(2)
    now_ms, next_finish_ms = 0.0, 60.0
    while now_ms < 20_000.0:
        now_ms += rng.expovariate(rate_per_ms)
        while next_finish_ms <= now_ms:
            patience.finished(12, next_finish_ms)
            next_finish_ms += 60.0
        patience.arrived(now_ms)
    return now_ms


def test_a_crowd_that_was_just_answered_is_waited_for() -> None:
    patience = Patience()
    now_ms = closed_loop(patience)
    assert patience.return_ratio > 0.9
    patience.finished(16, now_ms)
    patience.arrived(now_ms + 1.0)
    until_ms = patience.wait_until_ms(1, 25.0, float("inf"), now_ms + 1.0)
    assert until_ms is not None
    assert now_ms + 3.0 < until_ms <= now_ms + 12.0


def test_nobody_is_waited_for_once_they_are_back() -> None:
    patience = Patience()
    now_ms = closed_loop(patience)
    patience.finished(16, now_ms)
    for index in range(16):
        patience.arrived(now_ms + 1.0 + 0.1 * index)
    assert patience.wait_until_ms(16, 80.0, float("inf"), now_ms + 3.0) is None


def test_those_who_stay_away_are_not_waited_for_for_long() -> None:
    patience = Patience()
    now_ms = closed_loop(patience)
    patience.finished(16, now_ms)
    assert patience.wait_until_ms(1, 25.0, float("inf"), now_ms + 12.5) is None


def test_a_steady_stream_is_never_waited_for() -> None:
    patience = Patience()
    now_ms = open_loop(patience)
    assert patience.return_ratio < 0.15
    patience.finished(12, now_ms)
    assert patience.wait_until_ms(1, 25.0, float("inf"), now_ms) is None


def test_a_deadline_is_not_risked_by_waiting() -> None:
    patience = Patience()
    now_ms = closed_loop(patience)
    patience.finished(16, now_ms)
    assert patience.wait_until_ms(1, 25.0, now_ms - 1.0, now_ms) is None
    until_ms = patience.wait_until_ms(1, 25.0, now_ms + 0.5, now_ms)
    assert until_ms == now_ms + 0.5


def test_one_expected_back_is_not_worth_the_time_of_many() -> None:
    patience = Patience()
    now_ms = closed_loop(patience)
    patience.finished(1, now_ms)
    assert patience.wait_until_ms(30, 60.0, float("inf"), now_ms) is None


def test_half_a_batch_does_not_leave_a_quick_replica_without_the_other_half() -> None:
    patience = Patience()
    now_ms = closed_loop(patience, batches=100, scale=0.1)
    patience.finished(16, now_ms)
    for index in range(10):
        patience.arrived(now_ms + 0.1 + 0.01 * index)
    assert patience.wait_until_ms(10, 1.2, float("inf"), now_ms + 0.2) is not None
    late_ms = now_ms + 0.8  # those who are late by now may not come at all
    assert patience.wait_until_ms(50, 1.2, float("inf"), late_ms) is None
