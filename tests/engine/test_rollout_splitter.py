"""The split is sticky, monotone, even, and new with every salt."""

from hypothesis import given
from hypothesis import strategies as st

from engine.rollout.splitter import assign, point_of
from engine.types import Arm, SplitSpec

_names = st.text(alphabet="aZ09-_ é漢\x00", max_size=40)
SESSIONS = [f"user-{n}" for n in range(4000)]


def split(ratio: float, salt: str = "salt") -> SplitSpec:
    return SplitSpec(model="m", baseline="v1", canary="v2", canary_ratio=ratio, salt=salt)


def on_canary(ratio: float, salt: str = "salt") -> set[str]:
    return {s for s in SESSIONS if assign(split(ratio, salt), s)[0] is Arm.CANARY}


@given(_names, _names, st.floats(0, 1), st.floats(0, 1))
def test_a_wider_canary_keeps_every_session_it_had(
    salt: str, session: str, one: float, other: float
) -> None:
    narrow, wide = sorted((one, other))
    if assign(split(narrow, salt), session)[0] is Arm.CANARY:
        assert assign(split(wide, salt), session)[0] is Arm.CANARY


def test_nobody_leaves_while_it_widens_and_narrowing_removes_only_the_last_added() -> None:
    at_5, at_25, at_60 = on_canary(0.05), on_canary(0.25), on_canary(0.60)
    assert at_5 < at_25 < at_60
    assert on_canary(0.25) == at_25
    assert on_canary(0.05) == at_5


def test_the_realised_share_is_the_configured_one() -> None:
    assert abs(len(on_canary(0.25)) / len(SESSIONS) - 0.25) < 0.02


def test_a_new_salt_draws_new_sessions() -> None:
    both = on_canary(0.25, "first") & on_canary(0.25, "second")
    assert abs(len(both) / len(SESSIONS) - 0.0625) < 0.015


def test_the_point_is_the_same_in_every_process() -> None:
    assert point_of("salt", "user-1") == 0.07569635174714273
    assert assign(split(0.5), "user-1") == (Arm.CANARY, 0.07569635174714273)


def test_without_a_canary_everyone_is_on_the_baseline() -> None:
    alone = SplitSpec(model="m", baseline="v1")
    assert assign(alone, "anyone")[0] is Arm.BASELINE
