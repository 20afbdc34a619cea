"""Four rollouts and the ends they must come to.

    good      an identical version ramps and is promoted
    slow      a version 1.5 times slower is rolled back for its latency
    failing   a version that fails 5 % of its requests is rolled back for its failures
    cramped   an identical version on too few replicas is held, never rolled back

Each has a model of its own, so they can be played at the same time. Their replicas take long
(0.4 s a request) and take requests one by one, many at once: a busy machine delays an answer
by milliseconds, and what it delays is one timing, not a batch of them. The judge is the one
that judges everything else, at its usual strictness.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from engine.rollout.verdict import Phase
from fleet.loadtest.sender import Ending
from rollouts.models import Decision, Rollout
from rollouts.verification.stage import SPEED, Part, Stage

FAILING_ONE_IN = 20
HELD_WINDOWS = 8
SCENE_WITHIN_S = 150.0

STEPS = [10, 50, 100]
HISTORY_S = 10.0  # of warm replicas, for the judge to know the baseline by
CAPACITY_HISTORY_S = 22.0  # and to know what a replica carries


@dataclass(slots=True, frozen=True, kw_only=True)
class Scene:
    """One rollout. `ended` says, after each decision, whether all is known: True held,
    False did not, None goes on. `bit` is this scene's part of the exit code. `history_s` of
    traffic go before it; a `fixed` one keeps its rate and steps."""

    name: str
    bit: int
    must: str
    parts: tuple[Part, ...]
    policy: dict[str, Any]
    ended: Callable[[Rollout, list[Decision]], bool | None]
    per_s: float = 60.0
    history_s: float = HISTORY_S
    fixed: bool = False

    def changed(self, steps: list[float] | None, per_s: float | None) -> "Scene":
        """This scene on other steps and at another rate, where they are given."""
        if self.fixed:  # it is rate and steps that make it what it is
            return self
        return replace(
            self,
            policy=self.policy if steps is None else {**self.policy, "steps": steps},
            per_s=self.per_s if per_s is None else per_s,
        )

    def saboteur(self, stage: Stage) -> Callable[[Ending], None]:
        """What goes wrong while it plays."""
        if self.name != "failing":
            return lambda _: None
        counted = 0

        def fail_now_and_then(ending: Ending) -> None:
            nonlocal counted
            if ending.version == "failing":
                counted += 1
                if counted % FAILING_ONE_IN == 0:
                    stage.inject("failing", "worker_crash", calls=1)

        return fail_now_and_then


def _promoted(rollout: Rollout, decisions: list[Decision]) -> bool | None:
    return _at_its_end(rollout, Phase.PROMOTED, None, decisions)


def _rolled_back(reason: str) -> Callable[[Rollout, list[Decision]], bool | None]:
    return lambda rollout, decisions: _at_its_end(rollout, Phase.ROLLED_BACK, reason, decisions)


def _at_its_end(
    rollout: Rollout, phase: Phase, reason: str | None, decisions: list[Decision]
) -> bool | None:
    if rollout.is_active and rollout.phase != Phase.INCONCLUSIVE.value:
        return None
    last = decisions[-1].reason if decisions else ""
    return rollout.phase == phase.value and reason in (None, last)


def _held(rollout: Rollout, decisions: list[Decision]) -> bool | None:
    if not rollout.is_active:
        return False
    held = [d for d in decisions if d.name == "hold:capacity_limited"]
    return True if len(held) >= HELD_WINDOWS else None


SCENES = (
    Scene(
        name="slow",
        bit=2,
        must="rolled back for its latency",
        parts=(Part(version="v1"), Part(version="slow", speed=SPEED / 1.5)),
        policy={"steps": STEPS},
        ended=_rolled_back("latency"),
    ),
    Scene(
        name="failing",
        bit=4,
        must="rolled back for its failures",
        parts=(Part(version="v1"), Part(version="failing", faults=True)),
        policy={"steps": STEPS},
        ended=_rolled_back("failures"),
    ),
    Scene(
        name="good",
        bit=1,
        must="promoted",
        parts=(Part(version="v1"), Part(version="good")),
        policy={"steps": STEPS},
        ended=_promoted,
        per_s=150.0,
    ),
    Scene(
        name="cramped",
        bit=8,
        must="held for capacity, never rolled back",
        # sixteen at a time: each carries 44 requests/s, and 85 % of 60 are 51
        parts=(
            Part(version="v1", number=0, at_once=16),
            Part(version="v1", number=1, at_once=16),
            Part(version="cramped", at_once=16),
        ),
        policy={"steps": [25, 85, 100]},
        ended=_held,
        history_s=CAPACITY_HISTORY_S,
        fixed=True,
    ),
)
