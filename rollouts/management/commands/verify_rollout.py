"""`manage.py verify_rollout`: does the running fleet keep good versions and catch bad ones?

Exit code: 0 where every scene came to the end it must, else the sum of those that did not
(good 1, slow 2, failing 4, cramped 8); 64 where the fleet does not offer what is needed.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from engine.errors import InvalidInput, require_range
from engine.rollout.verdict import Phase
from fleet.dashboard import gateways
from fleet.management.command import FleetCommand
from fleet.selectors import last_seen
from rollouts import services
from rollouts.management.commands.rollout import percentages
from rollouts.models import Decision, Rollout
from rollouts.selectors import preview
from rollouts.verification.scenes import SCENE_WITHIN_S, SCENES, Scene
from rollouts.verification.stage import (
    ACTOR,
    Stage,
    StageBroken,
    gateway_answers,
    wait_until,
)
from rollouts.verification.traffic import SteadyTraffic

NOT_OFFERED = 64
TICK_AT_MOST_S = 15.0
TICK_WITHIN_S = 20.0
HISTORY_S = 15.0  # of warm replicas, for the judge to know the baseline by
WATCH_S = 2.0  # after a rollback: does the canary get anything more?
POLL_S = 0.25


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


def exit_code(results: Sequence[Result]) -> int:
    """0 where every scene held, else the sum of the bits of those that did not."""
    return sum(result.scene.bit for result in results if not result.held)


class Command(FleetCommand):
    help = (
        "Play four rollouts on the running fleet: a good, a slow, a failing and a cramped "
        "canary. Brings its own replicas and traffic and takes them away again."
    )

    def arguments(self, parser: CommandParser) -> None:
        names = [scene.name for scene in SCENES]
        parser.add_argument(
            "--only", metavar="NAMES", help=f"some of {', '.join(names)}, with commas between"
        )
        parser.add_argument("--rate", type=float, help="requests a second (100, cramped 60)")
        parser.add_argument("--interval", type=int, default=2, help="length of a window, s (2)")
        parser.add_argument(
            "--warm-up",
            type=float,
            metavar="S",
            help=f"traffic before the first scene (HALCYON_WARM_UP_S + {HISTORY_S:.0f})",
        )
        parser.add_argument(
            "--steps", metavar="5,25,50,100", help="percent, instead of each scene's"
        )

    def act(self, only: str | None, rate: float | None, interval: int, **options: Any) -> None:
        steps, warm_up_s = options["steps"], options["warm_up"]
        if steps is not None:
            steps = percentages(steps)
            preview({"steps": steps})
        if warm_up_s is None:
            warm_up_s = settings.HALCYON_WARM_UP_S + HISTORY_S
        self.warm_up_s = require_range("--warm-up", warm_up_s, 0.0, 600.0, unit="s")
        scenes = [scene.changed(steps, rate) for scene in _chosen(only)]
        self.gateways = gateways.addresses()
        if rate is not None and not 5.0 <= rate <= 1000.0:
            raise InvalidInput("--rate", rate, "must be from 5 to 1000 requests a second")
        if not 1 <= interval <= 60:
            raise InvalidInput("--interval", interval, "must be from 1 to 60 s")
        results: list[Result] = []
        try:
            self._require_a_fleet()
            for _parts, together in groupby(scenes, key=lambda scene: scene.parts):
                results += self._play_together(list(together), interval)
        except StageBroken as error:
            raise CommandError(str(error), returncode=NOT_OFFERED) from None
        self.show([result.to_row() for result in results])
        if code := exit_code(results):
            raise SystemExit(code)

    def _require_a_fleet(self) -> None:
        for url in self.gateways:
            if not gateway_answers(url):
                raise StageBroken(
                    f"no gateway is ready at {url}: start one with `manage.py up`, or name "
                    "yours with HALCYON_GATEWAY_URL"
                )
        if not wait_until(_is_judged, TICK_WITHIN_S):  # `up` starts worker and beat last
            tick = last_seen("rollouts")
            ago = "never" if tick is None else f"{tick.age_s:.0f} s ago"
            raise StageBroken(
                f"rollouts were last judged {ago}: start a Celery worker and beat "
                "(`manage.py up` does)"
            )

    def _play_together(self, scenes: list[Scene], interval: int) -> list[Result]:
        """Play scenes that share a stage, one after the other."""
        played = {"v1", *(scene.name for scene in scenes)}
        parts = [part for part in scenes[0].parts if part.version in played]
        stage = Stage(scenes[0].name, parts)
        self._tell(f"{stage.model}: starting {len(stage.parts)} replicas")
        with stage.up():
            with SteadyTraffic(self.gateways, stage.key, stage.model, scenes[0].per_s):
                self._tell(f"{stage.model}: warming up for {self.warm_up_s:.0f} s")
                while stage.age_s() < self.warm_up_s:
                    time.sleep(POLL_S)
            return [self._play(scene, stage, interval) for scene in scenes]

    def _play(self, scene: Scene, stage: Stage, interval: int) -> Result:
        self._tell(f"\n{scene.name}: must be {scene.must}")
        began_s = time.monotonic()
        traffic = SteadyTraffic(
            self.gateways, stage.key, stage.model, scene.per_s, scene.saboteur(stage)
        )
        decisions: list[Decision] = []
        held: bool | None = None
        with traffic:
            rollout = services.start(
                stage.model,
                scene.name,
                policy={**scene.policy, "intervalS": interval},
                actor=ACTOR,
                reason=f"scene {scene.name}",
            )
            while held is None and time.monotonic() - began_s < SCENE_WITHIN_S:
                time.sleep(POLL_S)
                rollout.refresh_from_db()
                for decision in rollout.decisions.filter(seq__gt=len(decisions)).order_by("seq"):
                    decisions.append(decision)
                    self._tell_decision(decision)
                held = scene.ended(rollout, decisions)
            if rollout.phase == Phase.ROLLED_BACK.value:
                time.sleep(WATCH_S)
            if rollout.is_active:
                services.abort(stage.model, actor=ACTOR, reason="the scene is over")
        result = Result(
            scene=scene,
            held=bool(held),
            verdicts=[decision.name for decision in decisions],
            took_s=time.monotonic() - began_s,
            success=traffic.success,
            reaction_s=_reaction_s(rollout, traffic),
        )
        self._tell(f"{scene.name}: {'held' if result.held else 'DID NOT HOLD'}")
        if result.reaction_s is not None:
            self._tell(
                f"  the canary's last request came {result.reaction_s:.2f} s after the verdict"
            )
        return result

    def _tell_decision(self, decision: Decision) -> None:
        before, after = decision.percent_before, decision.percent
        share = f"{before:g} %" if before == after else f"{before:g} -> {after:g} %"
        self._tell(f"  {decision.at:%H:%M:%S}  {share:<12} {decision.name:<24} {decision.text}")

    def _tell(self, line: str) -> None:
        if not self.as_json:
            self.stdout.write(line)
            self.stdout.flush()


def _is_judged() -> bool:
    tick = last_seen("rollouts")
    return tick is not None and tick.age_s <= TICK_AT_MOST_S


def _reaction_s(rollout: Rollout, traffic: SteadyTraffic) -> float | None:
    """From the verdict to the last request that still met the canary; None if not rolled back."""
    last = traffic.last_sent.get(rollout.canary)
    if rollout.phase != Phase.ROLLED_BACK.value or rollout.ended_at is None or last is None:
        return None
    return max(last - rollout.ended_at.timestamp(), 0.0)


def _chosen(only: str | None) -> list[Scene]:
    if only is None:
        return list(SCENES)
    known = {scene.name: scene for scene in SCENES}
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names or [""]:
        if name not in known:
            raise InvalidInput("--only", name, f"no such scene; known: {', '.join(known)}")
    return [scene for scene in SCENES if scene.name in names]
