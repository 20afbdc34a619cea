"""`manage.py verify_rollout` on a real `up` with a second gateway."""

import pytest

from bench.two_gateways import two_gateways

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("up")]

ENDS = {
    "slow": "rollback:latency",
    "failing": "rollback:failures",
    "good": "promote",
    "cramped": "hold:capacity_limited",
}


def test_each_canary_comes_to_the_end_it_deserves_over_two_gateways() -> None:
    with two_gateways({"HALCYON_WARM_UP_S": "12"}) as stack:
        code, rows, errors = stack.verify()
    assert {row["scene"]: row["last"] for row in rows} == ENDS, (rows, errors)
    assert code == 0, (rows, errors)
    assert [row["scene"] for row in rows if row["reactionS"] is not None] == ["slow", "failing"]
