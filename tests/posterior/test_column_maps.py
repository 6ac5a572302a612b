"""Functions of single features: inverses, slopes and tails."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.differentiate import derivative

from skdgn._posterior.transformed.column_maps import (
    NAMED_FUNCTIONS,
    ColumnMaps,
    Line,
    NamedFunction,
    NormalScores,
    StraightTails,
    YeoJohnson,
)

MIXTURE = NormalScores(np.array([0.3, 0.7]), np.array([-1.0, 2.0]), np.array([0.05, 0.5]))
MAPS = [
    Line(3.0, 0.5),
    *(YeoJohnson(exponent) for exponent in (0.0, 1e-9, 0.4, 1.0, 1.7, 2.0)),
    MIXTURE,
    *(NamedFunction(name) for name in NAMED_FUNCTIONS),
]


def points(step) -> np.ndarray:
    """Values in the domain of a function, none of them where its pieces meet."""
    low, high = step.domain
    if np.isfinite(high):
        return np.linspace(low, high, 13)[1:-1]
    if np.isfinite(low):
        return low + np.geomspace(1e-3, 1e3, 12)
    return np.concatenate([-np.geomspace(1e-3, 50.0, 8), np.geomspace(1e-3, 50.0, 8)])


@pytest.mark.parametrize("step", MAPS, ids=str)
def test_inverses(step):
    values = points(step)
    transformed = step.forward(values)
    assert np.all(np.diff(transformed[np.argsort(values)]) > 0.0)
    np.testing.assert_allclose(step.backward(transformed), values, rtol=1e-9, atol=1e-12)


def test_normal_scores_cross_wide_gaps():
    gap = NormalScores(np.array([0.98, 0.02]), np.array([0.0, 1e6]), np.array([1.0, 2.0]))
    scores = np.linspace(-8.0, 8.0, 401)
    values = gap.backward(scores)
    assert np.all(np.diff(values) > 0.0)
    np.testing.assert_allclose(gap.forward(values), scores, atol=1e-13)


# Slopes of normal scores are compared with more digits than differences leave, below.
@pytest.mark.parametrize("step", [step for step in MAPS if step is not MIXTURE], ids=str)
def test_slopes(step):
    values = points(step)
    numerical = derivative(step.forward, values, initial_step=1e-3 * np.abs(values))
    slopes = np.exp(step.log_slope(values))
    assert np.all(np.abs(slopes - numerical.df) <= 1e-9 * slopes + 10.0 * numerical.error)
    assert np.all(numerical.error < 1e-4 * slopes)


@pytest.mark.parametrize("value", [-80.0, -3.0, -1.02, -0.8, 0.4, 2.3, 30.0])
def test_normal_scores_are_exact_in_both_tails(value):
    parts = list(zip(MIXTURE.weights, MIXTURE.means, MIXTURE.deviations, strict=True))
    sign = 1.0 if value < 0.5 else -1.0  # the smaller tail: all of it is kept

    def log_tail(score: float) -> float:
        return float(mpmath.log(mpmath.ncdf(sign * score)))

    with mpmath.workdps(50):
        tail = mpmath.fsum(w * mpmath.ncdf(sign * (value - m) / d) for w, m, d in parts)
        score = MIXTURE.forward(np.array([value]))[0]
        assert log_tail(score) == pytest.approx(float(mpmath.log(tail)), rel=1e-11)
        exact = mpmath.findroot(lambda y: mpmath.log(mpmath.ncdf(sign * y) / tail), score)
        density = mpmath.fsum(w * mpmath.npdf(value, m, d) for w, m, d in parts)
        log_slope = float(mpmath.log(density / mpmath.npdf(exact)))
        # It is a difference of two log densities, and has their relative errors.
        tolerance = 1e-12 + 1e-13 * score**2
        assert MIXTURE.log_slope(np.array([value]))[0] == pytest.approx(log_slope, abs=tolerance)


def test_missing_values_stay_missing_and_others_may_be_outside():
    maps = ColumnMaps([(NamedFunction("log"),), (Line(1.0, 2.0), YeoJohnson(0.5))])
    values = np.array([[1.0, np.nan], [-1.0, 3.0], [np.nan, np.nan]])
    transformed, log_slopes, outside = maps.forward(values)
    assert outside.tolist() == [[False, False], [True, False], [False, False]]
    assert np.isnan(transformed).tolist() == [[False, True], [True, False], [True, True]]
    assert log_slopes[[0, 1, 2, 2], [1, 0, 0, 1]].tolist() == [0.0] * 4
    np.testing.assert_array_equal(
        maps.limits(np.array([[-np.inf, np.inf], [-3.0, 1.0]])), [[-np.inf, np.inf], [-np.inf, 0.0]]
    )


def test_straight_tails_go_on_with_the_slope_at_their_ends():
    scores = NormalScores(np.array([0.4, 0.6]), np.array([-1.0, 2.0]), np.array([0.1, 1.0]))
    for function in (YeoJohnson(0.1), scores):
        straight = StraightTails(function, -2.0, 4.0)
        values = np.array([-1e9, -2.0, 0.3, 4.0, 7.0, 1e200])
        transformed = straight.forward(values)
        np.testing.assert_allclose(straight.backward(transformed), values, rtol=1e-10)
        assert np.all(np.diff(transformed) > 0.0)
        np.testing.assert_allclose(transformed[1:4], function.forward(values[1:4]))
        steps = (straight.forward(values[4:5] + 1e-3) - straight.forward(values[4:5])) / 1e-3
        np.testing.assert_allclose(np.log(steps), straight.log_slope(values[4:5]), atol=1e-9)
