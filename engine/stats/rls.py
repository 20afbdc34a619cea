"""Recursive least squares with forgetting, constrained to coefficients that make sense.

Question: which non-negative coefficients c best explain y = c . x, when recent samples count
more than old ones? Each sample multiplies the weight of all earlier ones by `forgetting`
(0.98: a memory of about 50 samples) and adds its own to the normal equations

    A = sum w x x^T        r = sum w x y        c = argmin (c^T A c - 2 r^T c),  c >= 0

It is kept in information form (A and r, not the inverse), because then a constraint is exact:
where a coefficient would be negative it is fixed at zero and the *others are solved again*.
Clamping each by itself leaves the others wrong: an intercept fitted beside a negative slope
can be a hundred times too large once the slope is cut to zero.

A ridge pulls towards a target with a strength per coefficient, so that a direction that the
samples never explored keeps what was believed before. Standard errors come out of the same
matrix. Plain floats, for two or three features: about 0.5 us a sample and 1 us a solution.
"""

from collections.abc import Sequence
from itertools import combinations

from engine.errors import InvalidInput, require_range

_SINGULAR_RATIO = 1e-12


class RecursiveLeastSquares:
    """Decayed normal equations over `features` inputs."""

    __slots__ = ("_a", "_r", "features", "forgetting", "mass")

    def __init__(self, features: int, forgetting: float = 0.98) -> None:
        self.features = int(require_range("features", features, 1, 4))
        self.forgetting = require_range("forgetting", forgetting, 0.5, 1.0)
        self._a = [[0.0] * self.features for _ in range(self.features)]
        self._r = [0.0] * self.features
        self.mass = 0.0  # how many samples the memory is worth now

    def add(self, x: Sequence[float], y: float, weight: float = 1.0) -> None:
        """Take in one sample of weight `weight`."""
        keep = self.forgetting
        a = self._a
        r = self._r
        self.mass = keep * self.mass + 1.0
        if self.features == 2:  # the common case, unrolled: a third of the time
            x0, x1 = x
            first, second = a
            first[0] = keep * first[0] + weight * x0 * x0
            first[1] = second[0] = keep * first[1] + weight * x0 * x1
            second[1] = keep * second[1] + weight * x1 * x1
            r[0] = keep * r[0] + weight * x0 * y
            r[1] = keep * r[1] + weight * x1 * y
            return
        for i, xi in enumerate(x):
            row = a[i]
            scaled = weight * xi
            for j, xj in enumerate(x):
                row[j] = keep * row[j] + scaled * xj
            r[i] = keep * r[i] + scaled * y

    def forget(self, keep_ratio: float) -> None:
        """Fade everything known to `keep_ratio` of its weight: the world has changed."""
        require_range("keep_ratio", keep_ratio, 0.0, 1.0)
        for row in self._a:
            for j in range(self.features):
                row[j] *= keep_ratio
        self._r = [value * keep_ratio for value in self._r]
        self.mass *= keep_ratio

    def scale_of(self, target: Sequence[float], trust: float = 0.0) -> float:
        """The factor s for which s x target explains the samples best. A `trust` of so many
        samples in s = 1 pulls it there, in proportion of logarithms: a prior may be wrong by
        a factor of a thousand as easily as by a tenth. 1 where nothing is known."""
        top = bottom = 0.0
        for i, ti in enumerate(target):
            top += ti * self._r[i]
            row = self._a[i]
            for j, tj in enumerate(target):
                bottom += ti * row[j] * tj
        if not (top > 0.0 and bottom > 0.0):
            return 1.0
        return float((top / bottom) ** (self.mass / (self.mass + trust)))

    def solve(self, target: Sequence[float], strength: Sequence[float]) -> list[float]:
        """The best non-negative coefficients, pulled towards `target` by `strength`."""
        n = self.features
        if len(target) != n or len(strength) != n:
            raise InvalidInput("target", tuple(target), f"needs {n} coefficients")
        if n == 2:
            return self._solve_two(target, strength)
        a = [list(row) for row in self._a]
        r = list(self._r)
        for i in range(n):
            a[i][i] += strength[i]
            r[i] += strength[i] * target[i]
        free = tuple(range(n))
        solution = _solve_on(a, r, free)
        if solution is not None and min(solution) >= 0.0:
            return solution
        best: list[float] | None = None
        best_cost = 0.0
        for size in range(n - 1, 0, -1):
            for kept in combinations(free, size):
                candidate = _solve_on(a, r, kept)
                if candidate is None or min(candidate) < 0.0:
                    continue
                cost = _cost(a, r, candidate)
                if best is None or cost < best_cost:
                    best, best_cost = candidate, cost
        return best if best is not None else [max(value, 0.0) for value in target]

    def _solve_two(self, target: Sequence[float], strength: Sequence[float]) -> list[float]:
        """`solve` for two features in closed form."""
        (a, b), (_, d) = self._a
        a += strength[0]
        d += strength[1]
        p = self._r[0] + strength[0] * target[0]
        q = self._r[1] + strength[1] * target[1]
        determinant = a * d - b * b
        if determinant > _SINGULAR_RATIO * a * d:
            first = (p * d - q * b) / determinant
            second = (q * a - p * b) / determinant
            if first >= 0.0 and second >= 0.0:
                return [first, second]
        alone_first = max(p / a, 0.0) if a > 0.0 else 0.0
        alone_second = max(q / d, 0.0) if d > 0.0 else 0.0
        if alone_first == alone_second == 0.0:
            return [max(value, 0.0) for value in target]
        if p * alone_first >= q * alone_second:
            return [alone_first, 0.0]
        return [0.0, alone_second]

    def standard_errors(self, variance: float, strength: Sequence[float]) -> list[float]:
        """Standard error of each coefficient for residuals of this (weighted) variance."""
        n = self.features
        a = [list(row) for row in self._a]
        for i in range(n):
            a[i][i] += strength[i]
        errors = []
        for i in range(n):
            unit = [1.0 if j == i else 0.0 for j in range(n)]
            column = _solve_on(a, unit, tuple(range(n)))
            errors.append(float("inf") if column is None else max(column[i] * variance, 0.0) ** 0.5)
        return errors


def _solve_on(
    a: Sequence[Sequence[float]], r: Sequence[float], kept: tuple[int, ...]
) -> list[float] | None:
    """Solve for the kept coefficients with the others at zero; None where singular."""
    out = [0.0] * len(r)
    rows = [[a[i][j] for j in kept] + [r[i]] for i in kept]
    size = len(kept)
    for i in range(size):
        pivot = rows[i][i]
        if not pivot > _SINGULAR_RATIO * abs(a[kept[i]][kept[i]]):
            return None
        for k in range(i + 1, size):
            factor = rows[k][i] / pivot
            if factor:
                for j in range(i, size + 1):
                    rows[k][j] -= factor * rows[i][j]
    for i in range(size - 1, -1, -1):
        value = rows[i][size]
        for j in range(i + 1, size):
            value -= rows[i][j] * out[kept[j]]
        out[kept[i]] = value / rows[i][i]
    return out


def _cost(a: Sequence[Sequence[float]], r: Sequence[float], c: Sequence[float]) -> float:
    cost = 0.0
    for i, ci in enumerate(c):
        for j, cj in enumerate(c):
            cost += ci * a[i][j] * cj
        cost -= 2.0 * r[i] * ci
    return cost
