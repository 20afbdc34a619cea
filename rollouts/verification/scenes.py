"""Four rollouts and the ends they must come to.

    good      an identical version ramps and is promoted
    slow      a version 1.5 times slower is rolled back for its latency
    failing   a version that fails 5 % of its requests is rolled back for its failures
    cramped   an identical version on too few replicas is held, never rolled back

All replicas of a stage start together, so that warming up (which counts for nobody) is waited
for once, and the baseline gathers its history meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from engine.rollout.verdict import Phase
from fleet.loadtest.sender import Ending
from rollouts.models import Decision, Rollout
from rollouts.verification.stage import Part, Stage

FAILING_ONE_IN = 20
HELD_WINDOWS = 8
SCENE_WITHIN_S = 150.0

STEPS = [5, 25, 50, 100]
MAIN_PARTS = (
    Part(version="v1", number=0),
    Part(version="v1", number=1),
    Part(version="good", number=0),
    Part(version="good", number=1),
    Part(version="slow", speed=1 / 1.5),
    Part(version="failing", faults=True),
)
# half as fast and two at a time: one of these carries about 50 requests/s at the very most
CRAMPED_PARTS = (
    Part(version="v1", number=0, speed=0.5, max_batch_size=2),
    Part(version="v1", number=1, speed=0.5, max_batch_size=2),
    Part(version="cramped", speed=0.5, max_batch_size=2),
)


@dataclass(slots=True, frozen=True, kw_only=True)
class Scene:
    """One rollout. `ended` says, after each decision, whether all is known: True held,
    False did not, None goes on. `bit` is this scene's part of the exit code."""

    name: str
    bit: int
    must: str
    parts: tuple[Part, ...]
    policy: dict[str, Any]
    ended: Callable[[Rollout, list[Decision]], bool | None]
    per_s: float = 100.0

    def changed(self, steps: list[float] | None, per_s: float | None) -> "Scene":
        """This scene on other steps and at another rate, where they are given."""
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
        parts=MAIN_PARTS,
        policy={"steps": STEPS},
        ended=_rolled_back("latency"),
    ),
    Scene(
        name="failing",
        bit=4,
        must="rolled back for its failures",
        parts=MAIN_PARTS,
        policy={"steps": STEPS},
        ended=_rolled_back("failures"),
    ),
    Scene(
        name="good",
        bit=1,
        must="promoted",
        parts=MAIN_PARTS,
        policy={"steps": STEPS},
        ended=_promoted,
    ),
    Scene(
        name="cramped",
        bit=8,
        must="held for capacity, never rolled back",
        parts=CRAMPED_PARTS,
        policy={"steps": [5, 25, 85, 100]},
        ended=_held,
        per_s=60.0,
    ),
)
