"""What a request is worth, and the lottery that keeps a floor for large ones."""

import pytest

from engine.batching.worth import Objective, Worth
from engine.errors import InvalidInput
from tests.engine.batching_bench import entry


def wins(worth: Worth, count: int = 5000) -> float:
    large = [entry(4000.0, 1000.0) for _ in range(count)]
    return sum(worth.key(each, 64.0) == 64.0 for each in large) / count


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_share_of_large_requests_weighed_as_small_is_the_one_configured(share: float) -> None:
    assert wins(Worth(Objective.REQUESTS, share, b"salt")) == pytest.approx(share, abs=0.015)


def test_a_draw_is_the_same_on_every_retry_and_another_with_another_secret() -> None:
    requests = [entry(4000.0, 1000.0) for _ in range(200)]
    first = Worth(Objective.REQUESTS, 0.5, b"salt")
    again = Worth(Objective.REQUESTS, 0.5, b"salt")
    other = Worth(Objective.REQUESTS, 0.5, b"pepper")
    keys = [first.key(each, 64.0) for each in requests]
    assert keys == [again.key(each, 64.0) for each in requests]
    assert keys != [other.key(each, 64.0) for each in requests]


def test_winning_never_makes_a_request_worse_off() -> None:
    assert Worth(Objective.REQUESTS, 1.0, b"salt").key(entry(16.0, 1000.0), 64.0) == 16.0


def test_a_heavier_tenant_is_served_as_if_its_requests_were_smaller() -> None:
    worth = Worth(Objective.REQUESTS, 0.0, b"salt")
    assert worth.key(entry(400.0, 1000.0, weight=4.0), 64.0) == 100.0
    assert worth.weight(entry(400.0, 1000.0, weight=4.0)) == 4.0


def test_counting_tokens_orders_by_draw_and_not_by_size() -> None:
    worth = Worth(Objective.TOKENS, 0.0, b"salt")
    small = [worth.key(entry(16.0, 1000.0), 64.0) for _ in range(2000)]
    large = [worth.key(entry(4000.0, 1000.0), 64.0) for _ in range(2000)]
    assert sum(small) / 2000 == pytest.approx(0.5, abs=0.03)
    assert sum(large) / 2000 == pytest.approx(0.5, abs=0.03)
    assert worth.weight(entry(4000.0, 1000.0)) == 4000.0


def test_a_probability_out_of_range_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="size_lottery"):
        Worth(Objective.REQUESTS, -0.1, b"")
