"""`manage.py verify_rollout` on a real `up` with a second gateway."""

import pytest

from bench.reaction import SHORT
from bench.two_gateways import two_gateways

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("up")]


def test_a_slow_and_a_failing_canary_are_rolled_back_over_two_gateways() -> None:
    with two_gateways({"HALCYON_WARM_UP_S": "1"}) as stack:
        code, rows, errors = stack.verify("--only", "slow,failing", *SHORT)
        ends = [(row["scene"], row["last"]) for row in rows]
        assert ends == [("slow", "rollback:latency"), ("failing", "rollback:failures")], errors
        assert code == 0, (rows, errors)
        assert all(row["reactionS"] is not None for row in rows)
