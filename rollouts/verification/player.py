"""Play scenes, each on a stage of its own: replicas, traffic, a rollout, and what came of it.

Scenes have nothing in common but the fleet's gateways and its judge, so they are played at
the same time, one thread each. The first that breaks ends the others, and every stage is
struck before the failure is told.
"""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from django.db import connections

from engine.rollout.verdict import Phase
from rollouts import services
from rollouts.models import Decision, Rollout
from rollouts.verification.scenes import SCENE_WITHIN_S, Scene
from rollouts.verification.stage import ACTOR, Stage
from rollouts.verification.traffic import SteadyTraffic

WATCH_S = 2.0  # after a rollback: does the canary get anything more?
POLL_S = 0.25

Tell = Callable[[Scene, str], None]


class Stopped(Exception):
    """Another scene broke, or the operator had enough."""


@dataclass(slots=True, kw_only=True)
class Result:
    """How a scene ended."""

    scene: Scene
    held: bool
    verdicts: list[str]
    took_s: float
    success: float | None
    reaction_s: float | None  # from the verdict that rolled back to the canary's last request

    def to_row(self) -> dict[str, Any]:
        return {
            "scene": self.scene.name,
            "must": self.scene.must,
            "held": self.held,
            "windows": len(self.verdicts),
            "last": self.verdicts[-1] if self.verdicts else None,
            "seconds": round(self.took_s, 1),
            "reactionS": None if self.reaction_s is None else round(self.reaction_s, 2),
            "answered": None if self.success is None else round(self.success, 4),
        }


class Player:
    """`warm_up_s` is how old a replica must be for its timings to count at the gateways."""

    def __init__(
        self, gateways: Sequence[str], *, interval_s: int, warm_up_s: float, tell: Tell
    ) -> None:
        self._gateways = gateways
        self._interval_s = interval_s
        self._warm_up_s = warm_up_s
        self._tell = tell
        self._stop = threading.Event()

    def play(self, scenes: Sequence[Scene], at_once: int) -> list[Result]:
        """The results in the order of the scenes, at most `at_once` of them at a time."""
        with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="scene") as pool:
            playing = [pool.submit(self._play, scene) for scene in scenes]
            try:
                done, _ = wait(playing, return_when=FIRST_EXCEPTION)
                for scene in done:
                    scene.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        return [scene.result() for scene in playing]

    def _play(self, scene: Scene) -> Result:
        stage = Stage(scene.name, scene.parts)
        self._tell(scene, f"must be {scene.must}; {len(stage.parts)} replicas of {stage.model}")
        try:
            with stage.up():
                long_s = self._warm_up_s + scene.history_s
                with SteadyTraffic(self._gateways, stage.key, stage.model, scene.per_s):
                    self._tell(scene, f"{scene.per_s:g} requests/s, {long_s:g} s before it begins")
                    while stage.age_s() < long_s:
                        self._pause(POLL_S)
                return self._roll_out(scene, stage)
        finally:
            connections.close_all()  # this thread's own

    def _roll_out(self, scene: Scene, stage: Stage) -> Result:
        began_s = time.monotonic()
        traffic = SteadyTraffic(
            self._gateways, stage.key, stage.model, scene.per_s, scene.saboteur(stage)
        )
        decisions: list[Decision] = []
        held: bool | None = None
        with traffic:
            rollout = services.start(
                stage.model,
                scene.name,
                policy={**scene.policy, "intervalS": self._interval_s},
                actor=ACTOR,
                reason=f"scene {scene.name}",
            )
            while held is None and time.monotonic() - began_s < SCENE_WITHIN_S:
                self._pause(POLL_S)
                rollout.refresh_from_db()
                for decision in decided_since(rollout, decisions):
                    decisions.append(decision)
                    self._tell(scene, line_of(decision))
                held = scene.ended(rollout, decisions)
            if rollout.phase == Phase.ROLLED_BACK.value:
                self._pause(WATCH_S)
            if rollout.is_active:
                services.abort(stage.model, actor=ACTOR, reason="the scene is over")
        reaction_s = _reaction_s(rollout, traffic)
        self._tell(scene, "held" if held else "DID NOT HOLD")
        if reaction_s is not None:
            self._tell(
                scene, f"the canary's last request came {reaction_s:.2f} s after the verdict"
            )
        return Result(
            scene=scene,
            held=bool(held),
            verdicts=[decision.name for decision in decisions],
            took_s=time.monotonic() - began_s,
            success=traffic.success,
            reaction_s=reaction_s,
        )

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped


def decided_since(rollout: Rollout, known: Sequence[Decision]) -> list[Decision]:
    """The decisions after the last of those known, oldest first; numbers may have gaps."""
    rows = rollout.decisions.order_by("seq")
    return list(rows.filter(seq__gt=known[-1].seq) if known else rows)


def line_of(decision: Decision) -> str:
    """When, what share, what verdict and why."""
    before, after = decision.percent_before, decision.percent
    share = f"{before:g} %" if before == after else f"{before:g} -> {after:g} %"
    return f"{decision.at:%H:%M:%S}  {share:<12} {decision.name:<24} {decision.text}"


def _reaction_s(rollout: Rollout, traffic: SteadyTraffic) -> float | None:
    """From the verdict to the last request that still met the canary; None if not rolled back."""
    last = traffic.last_sent.get(rollout.canary)
    if rollout.phase != Phase.ROLLED_BACK.value or rollout.ended_at is None or last is None:
        return None
    return max(last - rollout.ended_at.timestamp(), 0.0)
