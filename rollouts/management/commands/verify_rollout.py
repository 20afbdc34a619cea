"""`manage.py verify_rollout`: does the running fleet keep good versions and catch bad ones?

Exit code: 0 where every scene came to the end it must, else the sum of those that did not
(good 1, slow 2, failing 4, cramped 8); 64 where the fleet does not offer what is needed.
"""

import threading
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from engine.errors import InvalidInput, require_range
from fleet.dashboard import gateways
from fleet.management.command import FleetCommand
from fleet.selectors import last_seen
from rollouts.management.commands.rollout import percentages
from rollouts.selectors import preview
from rollouts.verification.player import Player, Result
from rollouts.verification.scenes import SCENES, Scene
from rollouts.verification.stage import StageBroken, gateway_answers, wait_until

NOT_OFFERED = 64
TICK_AT_MOST_S = 15.0
TICK_WITHIN_S = 20.0


def exit_code(results: Sequence[Result]) -> int:
    """0 where every scene held, else the sum of the bits of those that did not."""
    return sum(result.scene.bit for result in results if not result.held)


class Command(FleetCommand):
    help = (
        "Play four rollouts on the running fleet, at the same time: a good, a slow, a failing "
        "and a cramped canary. Brings its own replicas and traffic and takes them away again."
    )

    def arguments(self, parser: CommandParser) -> None:
        names = [scene.name for scene in SCENES]
        rates = ", ".join(f"{scene.name} {scene.per_s:g}" for scene in SCENES)
        parser.add_argument(
            "--only", metavar="NAMES", help=f"some of {', '.join(names)}, with commas between"
        )
        parser.add_argument(
            "--at-once",
            type=int,
            default=len(SCENES),
            metavar="N",
            help="scenes at a time (all; 1 plays one after the other)",
        )
        parser.add_argument(
            "--rate", type=float, help=f"requests a second ({rates}, which keeps its own)"
        )
        parser.add_argument("--interval", type=int, default=1, help="length of a window, s (1)")
        parser.add_argument(
            "--warm-up",
            type=float,
            metavar="S",
            help="age from which the gateways count a replica's timings (HALCYON_WARM_UP_S)",
        )
        parser.add_argument("--steps", metavar="10,50,100", help="percent (cramped keeps its own)")

    def act(
        self, only: str | None, at_once: int, rate: float | None, interval: int, **options: Any
    ) -> None:
        steps, warm_up_s = options["steps"], options["warm_up"]
        if steps is not None:
            steps = percentages(steps)
            preview({"steps": steps})
        if warm_up_s is None:
            warm_up_s = settings.HALCYON_WARM_UP_S
        require_range("--warm-up", warm_up_s, 0.0, 600.0, unit="s")
        scenes = [scene.changed(steps, rate) for scene in _chosen(only)]
        if rate is not None and not 5.0 <= rate <= 1000.0:
            raise InvalidInput("--rate", rate, "must be from 5 to 1000 requests a second")
        if not 1 <= interval <= 60:
            raise InvalidInput("--interval", interval, "must be from 1 to 60 s")
        if not 1 <= at_once <= len(SCENES):
            raise InvalidInput("--at-once", at_once, f"must be from 1 to {len(SCENES)}")
        urls = gateways.addresses()
        self._speaks = threading.Lock()
        player = Player(urls, interval_s=interval, warm_up_s=warm_up_s, tell=self._tell)
        try:
            _require_a_fleet(urls)
            results = player.play(scenes, at_once)
        except StageBroken as error:
            raise CommandError(str(error), returncode=NOT_OFFERED) from None
        self.show([result.to_row() for result in results])
        if code := exit_code(results):
            raise SystemExit(code)

    def _tell(self, scene: Scene, line: str) -> None:
        if self.as_json:
            return
        with self._speaks:
            self.stdout.write(f"{scene.name:<8} {line}")
            self.stdout.flush()


def _require_a_fleet(urls: Sequence[str]) -> None:
    for url in urls:
        if not gateway_answers(url):
            raise StageBroken(
                f"no gateway is ready at {url}: start one with `manage.py up`, or name "
                "yours with HALCYON_GATEWAY_URL"
            )
    if not wait_until(_is_judged, TICK_WITHIN_S):  # `up` starts worker and beat last
        tick = last_seen("rollouts")
        ago = "never" if tick is None else f"{tick.age_s:.0f} s ago"
        raise StageBroken(
            f"rollouts were last judged {ago}: start a Celery worker and beat (`manage.py up` does)"
        )


def _is_judged() -> bool:
    tick = last_seen("rollouts")
    return tick is not None and tick.age_s <= TICK_AT_MOST_S


def _chosen(only: str | None) -> list[Scene]:
    if only is None:
        return list(SCENES)
    known = {scene.name: scene for scene in SCENES}
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names or [""]:
        if name not in known:
            raise InvalidInput("--only", name, f"no such scene; known: {', '.join(known)}")
    return [scene for scene in SCENES if scene.name in names]
