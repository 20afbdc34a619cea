"""How long a batch takes on one replica, learned from what it took.

    tokens            service = a + b x W                     W: tokens in the batch
    padded            service = a + b x B L                   B: items, L: the longest of them
    padded_quadratic  service = a + b x B L + c x B L^2

The runtime declares which (`WorkUnit`): a decoder is near affine in tokens, while an encoder
pads every member to the longest, and then real tokens explain less than half of the time.

Fitted by recursive least squares on the *relative* error (each sample is divided by its
predicted time; an unweighted fit is ruled by the largest batches and gives negative
intercepts), with coefficients >= 0. A ridge pulls towards the shape of the prior, scaled to
the replica's speed, as strongly as the noise warrants: batches of one single shape can fix
the scale and nothing else, so the prior's shape stays until there is a real spread.

Replicas of one version on one class of hardware share a prior that learns from all of them,
so a new replica starts from what its siblings know. Two residuals in a row that agree on a
surprise of more than four deviations mean that the world changed: old samples fade at once,
instead of over fifty batches. Times are ms; `samples` and `standard_errors` go to the view.
"""

import math
from dataclasses import dataclass

from engine.errors import InvalidInput, require_range
from engine.stats.rls import RecursiveLeastSquares
from engine.types import WorkUnit

_FORGETTING = 0.98
_SHARED_FORGETTING = 0.995
_SHAPE_DOUBT_RATIO = 0.7  # how wrong the prior's ratio of a to b may well be
_FIRST_DEVIATION_RATIO = 0.08  # believed before anything was measured
_DEVIATION_SMOOTHING = 0.04
_LEAST_DEVIATION_RATIO = 0.01
_OUTLIER_VARIANCES = 6.0  # one odd batch must not widen every margin
_SURPRISE_DEVIATIONS = 4.0
_SURPRISE_KEEP_RATIO = 0.1
_SCALE_TRUST = 0.25


@dataclass(slots=True, frozen=True, kw_only=True)
class CostPrior:
    """What a replica is believed to cost before it has run anything."""

    fixed_ms: float = 8.0
    per_work_ms: float = 0.05
    quadratic_ms: float = 0.00002

    def __post_init__(self) -> None:
        require_range("fixed_ms", self.fixed_ms, 0.0, 3_600_000.0, unit="ms")
        require_range("per_work_ms", self.per_work_ms, 1e-9, 3_600_000.0, unit="ms")
        require_range("quadratic_ms", self.quadratic_ms, 0.0, 3_600_000.0, unit="ms")

    def coefficients(self, unit: WorkUnit) -> list[float]:
        if unit is WorkUnit.PADDED_QUADRATIC:
            return [self.fixed_ms, self.per_work_ms, self.quadratic_ms]
        return [self.fixed_ms, self.per_work_ms]


class SharedPrior:
    """What replicas of one version on one class of hardware have in common: the shape."""

    __slots__ = ("_c", "_fit", "_prior", "_stale", "unit")

    def __init__(self, unit: WorkUnit = WorkUnit.TOKENS, prior: CostPrior | None = None) -> None:
        self.unit = unit
        self._prior = (prior or CostPrior()).coefficients(unit)
        self._c = list(self._prior)
        self._fit = RecursiveLeastSquares(len(self._c), _SHARED_FORGETTING)
        self._stale = 0

    def new_model(self) -> "CostModel":
        """A model for a replica that has run nothing yet."""
        return CostModel(self.unit, self)

    def learn(self, features: list[float], service_ms: float, weight: float) -> None:
        self._fit.add(features, service_ms, weight)
        self._stale += 1

    def coefficients(self, variance: float) -> list[float]:
        """The shape now. Solved anew once an eighth of what it knows is new."""
        if self._stale * 8 >= self._fit.mass and self._stale > 0:
            self._stale = 0
            self._c = _solve(self._fit, self._prior, variance)
        return self._c

    def predict_ms(self, work: float, count: int = 1, longest: float = 0.0) -> float:
        """The typical replica's service time: the yardstick of canary evidence."""
        features = _features(self.unit, work, count, longest)
        shape = self.coefficients(_FIRST_DEVIATION_RATIO**2)
        return sum(c * x for c, x in zip(shape, features, strict=True))


class CostModel:
    """One replica's learned service time. Implements `ServiceModel`."""

    __slots__ = (
        "_a",
        "_b",
        "_c",
        "_deviation_ratio",
        "_fit",
        "_longest",
        "_shared",
        "_surprise",
        "_tokens",
        "_typical_ms",
        "_variance",
        "last_ms",
        "last_work",
        "samples",
        "unit",
    )

    def __init__(
        self, unit: WorkUnit = WorkUnit.TOKENS, prior: CostPrior | SharedPrior | None = None
    ) -> None:
        self.unit = unit
        self._tokens = unit is WorkUnit.TOKENS
        self._shared = prior if isinstance(prior, SharedPrior) else SharedPrior(unit, prior)
        if self._shared.unit is not unit:
            raise InvalidInput("prior", self._shared.unit, f"must be a prior in {unit}")
        self._variance = _FIRST_DEVIATION_RATIO**2
        self._deviation_ratio = _FIRST_DEVIATION_RATIO
        self._fit = RecursiveLeastSquares(len(self._shape()), _FORGETTING)
        self._surprise = 0
        self._longest = 0.0
        self._typical_ms: float | None = None
        self.last_work = self.last_ms = 0.0  # of the last batch, as its line is drawn
        self.samples = 0
        self._take(self._shape())

    # -- asking ----------------------------------------------------------------------

    def predict_ms(self, work: float, count: int = 1, longest: float = 0.0) -> float:
        """Service time of a batch of `work` tokens in `count` items, the longest of `longest`."""
        if self._tokens:
            return self._a + self._b * work
        padded = count * longest
        return self._a + self._b * padded + self._c * padded * longest

    @property
    def fixed_ms(self) -> float:
        return self._a

    @property
    def per_work_ms(self) -> float:
        """Marginal cost of one more (padded) token, at the lengths seen lately."""
        return self._b + self._c * self._longest

    @property
    def quadratic_ms(self) -> float:
        return self._c

    @property
    def deviation_ratio(self) -> float:
        """Standard deviation of the residuals, relative to the prediction."""
        return self._deviation_ratio

    @property
    def deviation_ms(self) -> float:
        """Standard deviation of the residuals at the batch size of late, in ms."""
        return self.deviation_ratio * (self._typical_ms or self._a)

    @property
    def standard_errors(self) -> tuple[float, ...] | None:
        """Standard errors of a, b (and c) in ms, or None before the first sample."""
        if self.samples == 0:
            return None
        strength = _strength(self._shape(), self._variance)
        return tuple(self._fit.standard_errors(self._variance, strength))

    # -- learning --------------------------------------------------------------------

    def observe(self, work: float, count: int, longest: float, service_ms: float) -> None:
        """A batch of this shape took `service_ms`."""
        if not (math.isfinite(service_ms) and service_ms > 0.0):
            raise InvalidInput("service_ms", service_ms, "must be a finite time > 0 ms")
        if not (math.isfinite(work) and work > 0.0 and count >= 1):
            raise InvalidInput("work", work, "must be a finite number > 0, in >= 1 items")
        features = _features(self.unit, work, count, longest)
        before_ms = self.predict_ms(work, count, longest)
        scale_ms = min(max(before_ms, service_ms / 3.0), service_ms * 3.0)
        weight = 1.0 / (scale_ms * scale_ms)
        self._notice_change((service_ms - before_ms) / scale_ms)
        self._fit.add(features, service_ms, weight)
        self._shared.learn(features, service_ms, weight)
        self.samples += 1
        self.last_work, self.last_ms = features[1], service_ms
        self._longest += 0.1 * (longest - self._longest)
        if self._typical_ms is None:
            self._typical_ms = service_ms
        else:
            self._typical_ms += 0.1 * (service_ms - self._typical_ms)
        self._take(_solve(self._fit, self._shape(), self._variance))
        residual = (service_ms - self.predict_ms(work, count, longest)) / scale_ms
        seen = min(residual * residual, _OUTLIER_VARIANCES * self._variance)
        self._variance += _DEVIATION_SMOOTHING * (seen - self._variance)
        self._variance = max(self._variance, _LEAST_DEVIATION_RATIO**2)
        self._deviation_ratio = math.sqrt(self._variance)

    def _notice_change(self, residual_ratio: float) -> None:
        """Two like surprises in a row: fade what was learned before."""
        limit = _SURPRISE_DEVIATIONS * max(self.deviation_ratio, 0.03)
        sign = 0 if abs(residual_ratio) <= limit else (1 if residual_ratio > 0 else -1)
        if sign != 0 and sign == self._surprise:
            self._fit.forget(_SURPRISE_KEEP_RATIO)
        self._surprise = sign

    def _shape(self) -> list[float]:
        return self._shared.coefficients(self._variance)

    def _take(self, coefficients: list[float]) -> None:
        self._a = coefficients[0]
        self._b = coefficients[1]
        self._c = coefficients[2] if len(coefficients) > 2 else 0.0


def _features(unit: WorkUnit, work: float, count: int, longest: float) -> list[float]:
    if unit is WorkUnit.TOKENS:
        return [1.0, work]
    padded = count * longest
    if unit is WorkUnit.PADDED:
        return [1.0, padded]
    return [1.0, padded, padded * longest]


def _solve(fit: RecursiveLeastSquares, shape: list[float], variance: float) -> list[float]:
    """Fit towards the shape, once that is scaled to the speed that the samples show."""
    scale = fit.scale_of(shape, _SCALE_TRUST)
    target = [scale * value for value in shape]
    return fit.solve(target, _strength(target, variance))


def _strength(target: list[float], variance: float) -> list[float]:
    """As if one sample had shown each coefficient to be the target, give or take the doubt."""
    kappa = variance / _SHAPE_DOUBT_RATIO**2
    return [kappa / max(value * value, 1e-18) for value in target]
