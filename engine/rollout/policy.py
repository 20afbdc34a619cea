"""What a rollout may risk, and what it must show: the knobs of the judge.

Every ratio is a fraction (0.1 = 10 %). `alpha` is the chance, over the whole life of a
rollout and over all metrics, of rolling back a version that is no worse than tolerated; it is
divided among the metrics by `ALPHA_SHARES`. `promotion_alpha` is the chance of promoting one
that is slower by `non_inferiority_ratio` or more. Windows are the unit of time here: how
long one lasts is the caller's business.
"""

from dataclasses import dataclass
from math import log

from engine.errors import InvalidInput, require_range

ALPHA_SHARES = {"latency": 0.5, "failures": 0.3, "misses": 0.2}


@dataclass(slots=True, frozen=True, kw_only=True)
class RolloutPolicy:
    """One rollout's policy.

    `steps` are canary shares in (0, 1], ascending. `tolerated_slowdown_ratio` is what
    regression is measured against, `non_inferiority_ratio` what promotion must exclude.
    `failure_allowance_ratio` and `miss_allowance_ratio` are added to the baseline's own.
    `slo_ms` is absolute: 95 % of the canary's requests must be faster, end to end.
    A step needs `healthy_windows` healthy windows in a row and `minimum_requests` canary
    requests; a rollback needs `unhealthy_windows` unhealthy ones in a row. Where a window
    holds fewer than `few_requests` canary requests one healthy window is enough: two requests
    endanger as little as they teach, and waiting there only delays the truth.
    `error_tolerance_factor`, where set, also bounds the canary's observed failure ratio.
    A step that lasts `max_wait_windows`, or `silent_windows` without canary traffic, or a
    rollout that lasts `max_windows`, is inconclusive: time alone never promotes.
    `capacity_rho` is the highest utilisation of the canary's replicas a step may cause.
    """

    steps: tuple[float, ...] = (0.01, 0.05, 0.25, 0.5, 1.0)
    alpha: float = 0.01
    promotion_alpha: float = 0.005
    tolerated_slowdown_ratio: float = 0.10
    non_inferiority_ratio: float = 0.20
    failure_allowance_ratio: float = 0.0005
    miss_allowance_ratio: float = 0.01
    error_tolerance_factor: float | None = None
    slo_ms: float | None = None
    healthy_windows: int = 2
    unhealthy_windows: int = 1
    few_requests: int = 5
    minimum_requests: int = 0
    min_windows: int = 5
    max_wait_windows: int = 240
    silent_windows: int = 20
    max_windows: int | None = None
    capacity_rho: float = 0.8

    def __post_init__(self) -> None:
        if not self.steps:
            raise InvalidInput("steps", self.steps, "must hold at least one canary share")
        before = 0.0
        for step in self.steps:
            require_range("steps", step, 0.0, 1.0)
            if step <= before:
                raise InvalidInput("steps", self.steps, "must ascend from above 0 to at most 1")
            before = step
        if self.steps[0] >= 1.0:
            raise InvalidInput(
                "steps", self.steps, "needs a step below 1, where the versions are compared"
            )
        for name in ("alpha", "promotion_alpha"):
            require_range(name, getattr(self, name), 1e-6, 0.5)
        require_range("tolerated_slowdown_ratio", self.tolerated_slowdown_ratio, 0.0, 5.0)
        require_range("non_inferiority_ratio", self.non_inferiority_ratio, 0.01, 5.0)
        if self.non_inferiority_ratio < self.tolerated_slowdown_ratio:
            raise InvalidInput(
                "non_inferiority_ratio",
                self.non_inferiority_ratio,
                f"must not be below tolerated_slowdown_ratio ({self.tolerated_slowdown_ratio:g})",
            )
        require_range("failure_allowance_ratio", self.failure_allowance_ratio, 0.0, 1.0)
        require_range("miss_allowance_ratio", self.miss_allowance_ratio, 0.0, 1.0)
        if self.error_tolerance_factor is not None:
            require_range("error_tolerance_factor", self.error_tolerance_factor, 1.0, 100.0)
        if self.slo_ms is not None:
            require_range("slo_ms", self.slo_ms, 0.1, unit="ms")
        require_range("healthy_windows", self.healthy_windows, 1, 1000)
        require_range("unhealthy_windows", self.unhealthy_windows, 1, 1000)
        require_range("few_requests", self.few_requests, 0)
        require_range("minimum_requests", self.minimum_requests, 0)
        require_range("min_windows", self.min_windows, 1, 1000)
        require_range("max_wait_windows", self.max_wait_windows, 1, 10_000)
        require_range("silent_windows", self.silent_windows, 1, 10_000)
        if self.max_windows is not None:
            require_range("max_windows", self.max_windows, 1, 100_000)
        require_range("capacity_rho", self.capacity_rho, 0.05, 1.0)

    @property
    def judged_step(self) -> int:
        """The last step that leaves the baseline any traffic: where promotion is earned."""
        last = len(self.steps) - 1
        return last - 1 if self.steps[last] >= 1.0 and last > 0 else last

    def log_limit(self, metric: str) -> float:
        """The log E at which `metric` alone rolls back: log(1 / its share of alpha)."""
        return -log(self.alpha * ALPHA_SHARES[metric])
