"""A rollout under a magnifying glass: windows made by hand, judged by the real judge."""

import json
from dataclasses import replace

from engine.rollout.calibration import Calibration
from engine.rollout.capacity import UNKNOWN, CapacityFacts
from engine.rollout.controller import judge
from engine.rollout.counts import WindowCounts
from engine.rollout.noise import NoisePrior
from engine.rollout.policy import RolloutPolicy
from engine.rollout.state import JudgeState
from engine.rollout.verdict import Phase, Verdict

QUIET = Calibration(
    threshold=1.6, timed=5000, windows=60, noise=NoisePrior(tau2=0.01, rho=0.0, windows=20.0)
)


class Scene:
    """A rollout that is fed windows of `total` requests, split as its step says."""

    def __init__(
        self,
        policy: RolloutPolicy | None = None,
        *,
        total: int = 1000,
        calibration: Calibration | None = QUIET,
        step: int = 0,
    ) -> None:
        self.policy = policy or RolloutPolicy()
        self.total = total
        self.state = JudgeState(calibration=calibration, step=step)
        self.seq = 0
        self.verdicts: list[Verdict] = []
        self.inputs: list[tuple[WindowCounts, CapacityFacts]] = []

    @property
    def last(self) -> Verdict:
        return self.verdicts[-1]

    @property
    def names(self) -> list[str]:
        return [verdict.name for verdict in self.verdicts]

    def counts(
        self,
        *,
        slow: float = 0.025,
        slower: float = 0.012,
        base_slow: float = 0.05,
        faults: float = 0.0,
        base_faults: float = 0.0,
        **changes: object,
    ) -> WindowCounts:
        """A window whose shares are exactly these; identical versions by default."""
        ratio = self.policy.steps[self.state.step]
        canary = round(self.total * ratio)
        baseline = self.total - canary
        made = WindowCounts(
            seq=self.seq,
            canary_ended=canary,
            baseline_ended=baseline,
            canary_faults=round(canary * faults),
            baseline_faults=round(baseline * base_faults),
            canary_sheds=0,
            baseline_sheds=0,
            canary_misses=0,
            baseline_misses=0,
            canary_timed=canary,
            baseline_timed=baseline,
            slow_canary=round(canary * slow),
            slower_canary=round(canary * slower),
            slow_baseline=round(baseline * base_slow),
            half_timed=baseline // 2,
            half_slow=round(baseline // 2 * base_slow),
            canary_over_slo=0,
            canary_answered=canary,
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    def window(
        self, counts: WindowCounts | None = None, facts: CapacityFacts = UNKNOWN, **shape: object
    ) -> Verdict:
        """Judge one more window."""
        made = self.counts(**shape) if counts is None else counts  # type: ignore[arg-type]
        self.inputs.append((made, facts))
        self.state, verdict = judge(self.state, made, self.policy, facts)
        self.verdicts.append(verdict)
        self.seq += 1
        return verdict

    def run(self, windows: int, **shape: object) -> Verdict:
        """Judge up to `windows` windows of one shape; stop where the rollout ends."""
        for _ in range(windows):
            self.window(**shape)  # type: ignore[arg-type]
            if self.state.phase in (Phase.PROMOTED, Phase.ROLLED_BACK):
                break
        return self.last

    def restart(self) -> None:
        """Forget everything but what JSON remembers."""
        self.state = JudgeState.from_json(json.loads(json.dumps(self.state.to_json())))
