"""Recursive least squares: exact, forgetful, and never negative."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInput
from engine.stats.rls import RecursiveLeastSquares

samples = st.lists(st.tuples(st.floats(0.1, 100.0), st.floats(0.1, 100.0)), min_size=3, max_size=30)


@pytest.mark.parametrize("features", [2, 3])
def test_without_forgetting_it_is_ordinary_least_squares(features: int) -> None:
    rng = random.Random(1)
    fit = RecursiveLeastSquares(features, forgetting=1.0)
    truth = [3.0, 0.5, 0.02][:features]
    rows, targets = [], []
    for _ in range(50):
        x = [1.0, rng.uniform(1.0, 50.0), rng.uniform(1.0, 900.0)][:features]
        y = sum(c * v for c, v in zip(truth, x, strict=True)) + rng.gauss(0.0, 0.1)
        fit.add(x, y)
        rows.append(x)
        targets.append(y)
    exact, *_ = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)
    assert fit.solve([0.0] * features, [0.0] * features) == pytest.approx(list(exact), rel=1e-6)


def test_old_samples_fade_by_the_forgetting_factor() -> None:
    fit = RecursiveLeastSquares(2, forgetting=0.9)
    for _ in range(200):
        fit.add([1.0, 2.0], 10.0)
    assert fit.mass == pytest.approx(10.0, rel=1e-3)
    fit.forget(0.1)
    assert fit.mass == pytest.approx(1.0, rel=1e-3)


@given(samples)
def test_no_coefficient_is_ever_negative_and_none_explains_better(
    points: list[tuple[float, float]],
) -> None:
    fit = RecursiveLeastSquares(2, forgetting=1.0)
    for x, y in points:
        fit.add([1.0, x], y)
    a, b = fit.solve([1.0, 1.0], [1e-9, 1e-9])
    assert a >= 0.0
    assert b >= 0.0

    def error(a: float, b: float) -> float:
        return sum((y - a - b * x) ** 2 for x, y in points)

    best = error(a, b)
    for da, db in ((0.05, 0.0), (-0.05, 0.0), (0.0, 0.01), (0.0, -0.01)):
        assert error(max(a + da, 0.0), max(b + db, 0.0)) >= best * (1.0 - 1e-6) - 1e-6


@given(samples)
def test_two_and_three_features_agree_where_the_third_is_absent(
    points: list[tuple[float, float]],
) -> None:
    two = RecursiveLeastSquares(2, forgetting=0.98)
    three = RecursiveLeastSquares(3, forgetting=0.98)
    for x, y in points:
        two.add([1.0, x], y)
        three.add([1.0, x, 0.0], y)
    left = two.solve([1.0, 1.0], [0.01, 0.01])
    right = three.solve([1.0, 1.0, 0.0], [0.01, 0.01, 1.0])
    assert right[:2] == pytest.approx(left, rel=1e-4, abs=1e-6)


def test_a_target_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(InvalidInput, match="target"):
        RecursiveLeastSquares(2).solve([1.0], [1.0])
    with pytest.raises(InvalidInput, match="forgetting"):
        RecursiveLeastSquares(2, forgetting=0.1)
