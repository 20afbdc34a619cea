"""What `verify_rollout` takes for an end, and what its exit code says of it."""

from typing import Any

import pytest
from django.core.management import CommandError, call_command

from fleet.models import Replica
from rollouts import services
from rollouts.management.commands.verify_rollout import NOT_OFFERED, exit_code
from rollouts.models import Rollout
from rollouts.verification.player import Player, Result, decided_since
from rollouts.verification.scenes import HELD_WINDOWS, SCENES, Scene
from rollouts.verification.stage import StageBroken
from tests.rollouts.scene import fleet, history, run, start, step

pytestmark = pytest.mark.django_db

BY_NAME = {scene.name: scene for scene in SCENES}
STEPS = {"steps": [5, 50, 100], "intervalS": 4}


def ended(scene: Scene, rollout: Rollout) -> bool | None:
    rollout.refresh_from_db()
    return scene.ended(rollout, list(rollout.decisions.order_by("seq")))


@pytest.fixture
def rollout() -> Rollout:
    fleet()
    history()
    return start(policy=STEPS)


def test_nothing_has_ended_while_it_is_under_way(rollout: Rollout) -> None:
    step(rollout)
    assert {ended(scene, rollout) for scene in SCENES} == {None}


@pytest.mark.parametrize(
    ("shape", "holds"),
    [({}, "good"), ({"slowdown": 0.6}, "slow"), ({"faults": 0.05}, "failing")],
)
def test_an_end_holds_for_the_scene_that_must_come_to_it_and_for_no_other(
    rollout: Rollout, shape: dict[str, Any], holds: str
) -> None:
    run(rollout, **shape)
    assert not rollout.is_active
    assert {name for name, scene in BY_NAME.items() if ended(scene, rollout)} == {holds}
    assert ended(BY_NAME["cramped"], rollout) is False


def test_an_abort_by_somebody_else_holds_for_no_scene(rollout: Rollout) -> None:
    step(rollout)
    services.abort("m", actor="ada", reason="mine")
    assert {ended(scene, rollout) for scene in SCENES} == {False}


def test_held_for_capacity_long_enough_is_what_the_cramped_one_must_come_to() -> None:
    fleet("v1", "v2", replicas=1)
    Replica.objects.update(max_batch_size=2)
    history()
    rollout = start(policy={"steps": [5, 60, 100], "intervalS": 4})
    names = run(rollout, windows=HELD_WINDOWS + 4, per_s=900)
    assert names.count("hold:capacity_limited") >= HELD_WINDOWS
    assert ended(BY_NAME["cramped"], rollout) is True


def test_the_exit_code_says_which_scenes_did_not_hold() -> None:
    def result(name: str, held: bool) -> Result:
        scene = BY_NAME[name]
        return Result(
            scene=scene, held=held, verdicts=[], took_s=1.0, success=None, reaction_s=None
        )

    assert exit_code([result(name, True) for name in BY_NAME]) == 0
    assert exit_code([result("good", False), result("slow", True), result("cramped", False)]) == 9
    assert sorted(scene.bit for scene in SCENES) == [1, 2, 4, 8]


def test_a_gap_in_the_numbers_of_windows_shows_no_decision_twice_and_hides_none(
    rollout: Rollout,
) -> None:
    for _ in range(3):
        step(rollout)
    one, two, three = rollout.decisions.order_by("seq")
    assert decided_since(rollout, []) == [one, two, three]
    assert decided_since(rollout, [one, two]) == [three]
    assert decided_since(rollout, [two]) == [three]
    assert decided_since(rollout, [three]) == []


def test_a_scene_that_breaks_ends_those_that_are_played_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    player = Player([], interval_s=1, warm_up_s=0.0, tell=lambda scene, line: None)
    struck = []

    def play(scene: Scene) -> Result:
        if scene.name == "slow":
            raise StageBroken("no web process")
        try:
            while True:
                player._pause(60.0)
        finally:
            struck.append(scene.name)

    monkeypatch.setattr(player, "_play", play)
    with pytest.raises(StageBroken, match="no web process"):
        player.play(SCENES, len(SCENES))
    assert sorted(struck) == ["cramped", "failing", "good"]


def test_without_a_gateway_it_says_which_one_is_missing(settings: Any) -> None:
    settings.HALCYON_GATEWAY_URL = "http://127.0.0.1:1, http://127.0.0.1:2"
    with pytest.raises(CommandError, match=r"no gateway is ready at http://127.0.0.1:1:") as error:
        call_command("verify_rollout")
    assert error.value.returncode == NOT_OFFERED


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--only", "slow,nice"), "nice"),
        (("--only", ","), "--only"),
        (("--rate", "1"), "--rate"),
        (("--interval", "0"), "--interval"),
        (("--steps", "50,5"), "steps"),
        (("--steps", "half"), "steps"),
        (("--warm-up", "-1"), "--warm-up"),
        (("--at-once", "0"), "--at-once"),
    ],
)
def test_a_wrong_word_is_named_before_anything_starts(words: tuple[str, ...], names: str) -> None:
    with pytest.raises(CommandError, match=names) as error:
        call_command("verify_rollout", *words)
    assert error.value.returncode == 2
