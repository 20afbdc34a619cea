"""A rollout's policy as people write it, and the judge's rules that follow from it.

Written with percent, seconds and milliseconds; the engine counts ratios and windows. Every
field is optional. Beside Halcyon's own, the fields that older systems use are taken for what
their names say, each as one more guard on top of the statistics:

    healthyChecksToAdvance      healthy windows in a row before a step (then always as many)
    unhealthyChecksToRollback   unhealthy windows in a row before a rollback
    minimumRequests             canary requests before any decision at a step
    latencyToleranceFactor      slower by up to this factor is no reason to roll back, and
                                promotion must exclude more
    errorRateToleranceFactor    the canary's observed failures, at most this times the baseline's
    maxDurationMs               the whole rollout; then it is inconclusive, never promoted
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any

from engine.errors import InvalidInput, require_range
from engine.rollout.policy import RolloutPolicy

DEFAULT_STEPS = (1.0, 5.0, 25.0, 50.0, 100.0)
DEFAULT_INTERVAL_S = 30


@dataclass(slots=True, frozen=True, kw_only=True)
class Field:
    """One field of the written policy: what it means, its unit and its default."""

    name: str
    help: str
    unit: str = ""
    default: object = None
    whole: bool = False


FIELDS = (
    Field(name="steps", help="canary shares, ascending", unit="%", default=list(DEFAULT_STEPS)),
    Field(name="intervalS", help="length of a window", unit="s", default=DEFAULT_INTERVAL_S,
          whole=True),
    Field(name="alpha", help="chance of a false rollback, whole rollout", default=0.01),
    Field(name="promotionAlpha", help="chance of promoting a slow version", default=0.005),
    Field(name="toleratedSlowdownPercent", help="slower by this is tolerated", unit="%",
          default=10.0),
    Field(name="nonInferiorityPercent", help="promotion must exclude slower by this", unit="%",
          default=20.0),
    Field(name="failureAllowancePercent", help="failures tolerated beyond the baseline's",
          unit="%", default=0.05),
    Field(name="missAllowancePercent", help="missed deadlines tolerated beyond the baseline's",
          unit="%", default=1.0),
    Field(name="sloMs", help="95 % of the canary's requests must be faster", unit="ms"),
    Field(name="minimumWindows", help="windows before a latency rollback", default=5, whole=True),
    Field(name="maxWaitS", help="patience at one step, then inconclusive", unit="s",
          default=7200.0),
    Field(name="silenceS", help="patience without canary traffic, then inconclusive", unit="s",
          default=600.0),
    Field(name="capacityPercent", help="highest load of the canary's replicas", unit="%",
          default=80.0),
    Field(name="healthyChecksToAdvance", help="healthy windows in a row before a step",
          default=2, whole=True),
    Field(name="unhealthyChecksToRollback", help="unhealthy windows in a row before a rollback",
          default=1, whole=True),
    Field(name="minimumRequests", help="canary requests before any decision at a step",
          default=0, whole=True),
    Field(name="latencyToleranceFactor",
          help="slower by up to this is tolerated, and promotion must exclude more"),
    Field(name="errorRateToleranceFactor", help="observed failures, times the baseline's"),
    Field(name="maxDurationMs", help="the whole rollout, then inconclusive", unit="ms"),
)  # fmt: skip
_KNOWN = {field.name: field for field in FIELDS}

# the engine's field -> the written one, to name the right field in an error
_WRITTEN = {
    "steps": "steps",
    "alpha": "alpha",
    "promotion_alpha": "promotionAlpha",
    "tolerated_slowdown_ratio": "toleratedSlowdownPercent",
    "non_inferiority_ratio": "nonInferiorityPercent",
    "failure_allowance_ratio": "failureAllowancePercent",
    "miss_allowance_ratio": "missAllowancePercent",
    "slo_ms": "sloMs",
    "min_windows": "minimumWindows",
    "max_wait_windows": "maxWaitS",
    "silent_windows": "silenceS",
    "capacity_rho": "capacityPercent",
    "healthy_windows": "healthyChecksToAdvance",
    "unhealthy_windows": "unhealthyChecksToRollback",
    "minimum_requests": "minimumRequests",
    "error_tolerance_factor": "errorRateToleranceFactor",
    "max_windows": "maxDurationMs",
}


@dataclass(slots=True, frozen=True, kw_only=True)
class Policy:
    """A policy that makes sense. `written` is what is stored, defaults included."""

    interval_s: int
    rules: RolloutPolicy
    written: dict[str, Any]


def read_policy(given: object = None, *, slo_ms: float | None = None) -> Policy:
    """Read a written policy; `slo_ms` is the model's, for where the policy names none.

    Raises `InvalidInput` with the field as it was written.
    """
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInput("policy", given, "must be a JSON object")
    given = dict(given or {})
    for name in given:
        if name not in _KNOWN:
            raise InvalidInput(name, given[name], f"unknown; a policy has {', '.join(_KNOWN)}")
    written: dict[str, Any] = {
        field.name: field.default for field in FIELDS if field.default is not None
    }
    if slo_ms is not None:
        written["sloMs"] = slo_ms
    for name, value in given.items():
        if value is None:
            continue
        written[name] = _steps(value) if name == "steps" else _number(name, value)
    interval_s = written["intervalS"]
    require_range("intervalS", interval_s, 1, 3600, unit="s")
    for name, unit_s in (("maxWaitS", 1.0), ("silenceS", 1.0), ("maxDurationMs", 0.001)):
        if written.get(name) is not None:
            require_range(name, written[name], interval_s / unit_s, 1e12)
    if (factor := written.get("latencyToleranceFactor")) is not None:
        require_range("latencyToleranceFactor", factor, 1.01, 6.0)
        written["nonInferiorityPercent"] = round((factor - 1.0) * 100.0, 6)
        if given.get("toleratedSlowdownPercent") is None:
            written["toleratedSlowdownPercent"] = written["nonInferiorityPercent"]
    return Policy(interval_s=interval_s, rules=_rules(written, given, interval_s), written=written)


def rules_of(written: Mapping[str, Any]) -> RolloutPolicy:
    """The rules of a stored policy: the same, bit for bit, as when it was read."""
    return _rules(dict(written), {}, float(written["intervalS"]))


def _rules(written: dict[str, Any], given: Mapping[str, Any], interval_s: float) -> RolloutPolicy:
    if "healthyChecksToAdvance" in given:
        written["alwaysHealthyChecks"] = True
    longest = written.get("maxDurationMs")
    try:
        return RolloutPolicy(
            steps=tuple(step / 100.0 for step in written["steps"]),
            alpha=written["alpha"],
            promotion_alpha=written["promotionAlpha"],
            tolerated_slowdown_ratio=written["toleratedSlowdownPercent"] / 100.0,
            non_inferiority_ratio=written["nonInferiorityPercent"] / 100.0,
            failure_allowance_ratio=written["failureAllowancePercent"] / 100.0,
            miss_allowance_ratio=written["missAllowancePercent"] / 100.0,
            error_tolerance_factor=written.get("errorRateToleranceFactor"),
            slo_ms=written.get("sloMs"),
            healthy_windows=written["healthyChecksToAdvance"],
            unhealthy_windows=written["unhealthyChecksToRollback"],
            few_requests=0 if written.get("alwaysHealthyChecks") else 5,
            minimum_requests=written["minimumRequests"],
            min_windows=written["minimumWindows"],
            max_wait_windows=max(1, ceil(written["maxWaitS"] / interval_s)),
            silent_windows=max(1, ceil(written["silenceS"] / interval_s)),
            max_windows=None if longest is None else max(1, ceil(longest / 1000.0 / interval_s)),
            capacity_rho=written["capacityPercent"] / 100.0,
        )
    except InvalidInput as error:
        name = _WRITTEN.get(error.field, error.field)
        raise InvalidInput(name, written.get(name), error.remedy) from None


def _number(name: str, value: object) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise InvalidInput(name, value, "must be a number")
    if not _KNOWN[name].whole:
        return float(value)
    if value != int(value):
        raise InvalidInput(name, value, "must be a whole number")
    return int(value)


def _is_finite(value: float) -> bool:
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def _steps(value: object) -> list[float]:
    if not isinstance(value, list | tuple) or not value:
        raise InvalidInput("steps", value, "must be a list of percentages, such as [1, 5, 25, 100]")
    return [float(_number("steps", step)) for step in value]
