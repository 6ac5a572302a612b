"""Intervals: cutting, masses, moments, and the places where the formula changes."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from skdgn._geometry.interface import Cells
from skdgn._geometry.intervals import _FAR, Intervals, gaussian_integrals
from skdgn._geometry.quadrature import LONG_RANGE, NEGLIGIBLE_EXPONENT, SHORT_RANGE
from tests.geometry.helpers import Integral, combine, cut, integrate
from tests.reference import masses

EPSILON = float(np.finfo(float).eps)

# Relative accuracy of masses and means; that of variances, which are differences.
MASS_ACCURACY = 1e-12
VARIANCE_ACCURACY = 1e-11

# Sums and transformations of results that are that accurate each, of inputs rounded once more.
COMBINED_ACCURACY = 1e-10


def make_interval(lower: float, upper: float) -> Intervals:
    return Intervals(np.array([lower]), np.array([upper]))


def integrate_interval(
    cell: Cells, center: float = 0.0, deviation: float = 1.0, log_tolerance: float = -np.inf
) -> Integral:
    return integrate(cell, [center], [[deviation]], log_tolerance)


def reference_interval(lower: float, upper: float, center: float = 0.0) -> Integral:
    """Integrate N(center, 1) in high precision, the center subtracted exactly."""
    with mp.workdps(masses.DIGITS):
        # A tail of e^(-x) has a variance that is a difference of numbers e^x times larger.
        shifted = [mp.mpf(end) - mp.mpf(center) for end in (lower, upper)]
        near = max(shifted[0], -shifted[1], mp.mpf(0))
        with mp.extradps(int(2 * mp.log10(near + 10)) * 5):
            moments = masses._interval(*shifted)
            mean = moments.first[0] / moments.mass
            variance = moments.second[0][0] / moments.mass - mean**2
            log_mass = float(mp.log(moments.mass))
            return Integral(
                log_mass,
                np.array([float(center + mean)]),
                np.array([[float(variance)]]),
            )


def assert_close(
    actual: Integral, expected: Integral, accuracy: float, distance: float, width: float
) -> None:
    """Compare, allowing for what one rounding of the ends of the interval may change."""
    shift = 4.0 * EPSILON * distance
    deviation = math.sqrt(expected.covariance[0, 0])
    steepness = distance + 1.0 / min(width, 1.0)
    assert actual.log_mass == pytest.approx(
        expected.log_mass, rel=4 * EPSILON, abs=accuracy + shift * steepness
    )
    assert actual.mean[0] == pytest.approx(
        expected.mean[0], rel=4 * EPSILON, abs=accuracy * deviation + shift
    )
    assert actual.covariance[0, 0] == pytest.approx(
        expected.covariance[0, 0], rel=10 * accuracy + shift * steepness
    )


positions = st.floats(-8.0, 8.0)
widths = st.floats(-9.0, 1.0).map(lambda exponent: 10.0**exponent)
far_positions = st.floats(-1e3, 1e3)


@given(positions, widths, positions)
@example(lower=0.0, width=2.0, center=0.0)
@example(lower=1e-6, width=2.2, center=0.0)
def test_masses_and_moments_equal_the_reference(lower: float, width: float, center: float) -> None:
    upper = lower + width
    actual = integrate_interval(make_interval(lower, upper), center)
    expected = reference_interval(lower, upper, center)
    distance = abs(lower) + abs(center) + width
    assert_close(actual, expected, MASS_ACCURACY, distance, upper - lower)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("width", [1e-9, 1e-3, 1.0, np.inf])
@pytest.mark.parametrize("start", [1e-9, 0.5, 5.0, 40.0, 1e3])
def test_slivers_and_tails_keep_relative_accuracy(start: float, width: float, sign: float) -> None:
    # The center is at zero and ends are as given: no rounding error is unavoidable.
    ends = sorted([sign * start, sign * (start + width)])
    actual = integrate_interval(make_interval(*ends))
    expected = reference_interval(*ends)
    # The log mass of a far interval is a large number.
    assert actual.log_mass == pytest.approx(expected.log_mass, rel=4 * EPSILON, abs=MASS_ACCURACY)
    nearest = min(np.abs(ends))
    depth = abs(actual.mean[0]) - nearest
    assert depth == pytest.approx(
        abs(expected.mean[0]) - nearest, rel=MASS_ACCURACY, abs=2 * EPSILON * nearest
    )
    np.testing.assert_allclose(actual.covariance, expected.covariance, rtol=VARIANCE_ACCURACY)


def assert_integrals_are_accurate(lower: float, upper: float) -> None:
    """Compare the three integrals with mpmath, about the nearest point and without its factor."""
    nearest, zeroth, first, second = gaussian_integrals(lower, upper)
    assert nearest == (lower if lower > 0 else min(upper, 0.0))
    with mp.workdps(60 + int(lower * lower)):
        shift = mp.mpf(nearest)
        moments = masses._interval(mp.mpf(lower), mp.mpf(upper))
        scale = mp.sqrt(2 * mp.pi) * mp.exp(shift**2 / 2)
        mass, linear, square = moments.mass, moments.first[0], moments.second[0][0]
        expected_zeroth = float(scale * mass)
        expected_first = float(scale * (linear - shift * mass))
        expected_second = float(scale * (square - 2 * shift * linear + shift**2 * mass))
    assert zeroth == pytest.approx(expected_zeroth, rel=MASS_ACCURACY)
    assert second == pytest.approx(expected_second, rel=MASS_ACCURACY)
    # With zero inside, the first moment may cancel: measure it by Schwarz's bound.
    size = math.sqrt(expected_zeroth * expected_second)
    assert first == pytest.approx(expected_first, abs=MASS_ACCURACY * size)


def width_of_exponent(start: float, exponent: float) -> float:
    """Width over which ``start v + v^2 / 2`` grows by an exponent."""
    return 2.0 * exponent / (start + math.sqrt(start * start + 2.0 * exponent))


SIDES = (1.0 - 1e-9, 1.0, 1.0 + 1e-9)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("exponent", [SHORT_RANGE, LONG_RANGE, NEGLIGIBLE_EXPONENT])
@pytest.mark.parametrize("start", [1e-12, 1e-3, 0.3, 1.0, 3.0, 5.9, 6.1, 30.0])
def test_formulas_are_accurate_where_exponent_ranges_end(
    start: float, exponent: float, side: float
) -> None:
    assert_integrals_are_accurate(start, start + width_of_exponent(start, exponent * side))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("exponent", [0.1, 2.0, 5.0, 13.0, 30.0, 1e3])
def test_formulas_are_accurate_where_the_tail_begins(exponent: float, side: float) -> None:
    start = _FAR * side
    assert_integrals_are_accurate(start, start + width_of_exponent(start, exponent))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("lower", [0.0, -1e-12, -0.5, -0.999])
def test_formulas_are_accurate_where_an_interval_around_zero_gets_wide(
    lower: float, side: float
) -> None:
    assert_integrals_are_accurate(lower, lower + side)


@pytest.mark.parametrize("width", [1e-9, 0.3, 2.0, 8.0])
def test_nothing_jumps_when_the_center_enters(width: float) -> None:
    values = [
        integrate_interval(make_interval(0.0, width), center) for center in (-1e-13, 0.0, 1e-13)
    ]
    for value in values:
        assert value.log_mass == pytest.approx(values[1].log_mass, abs=MASS_ACCURACY)
        np.testing.assert_allclose(value.mean, values[1].mean, rtol=10 * MASS_ACCURACY)
        np.testing.assert_allclose(value.covariance, values[1].covariance, rtol=1e-11)


@given(positions, widths, st.floats(0.01, 0.99), far_positions)
def test_pieces_of_a_cut_interval_add_up(
    lower: float, width: float, share: float, center: float
) -> None:
    upper = lower + width
    position = lower + share * width
    assume(lower < position < upper)
    cell = make_interval(lower, upper)
    right, left = cut(cell, [1.0], position)
    assume(right is not None and left is not None)  # else a piece thinner than rounding
    whole = integrate_interval(cell, center)
    parts = combine([integrate_interval(right, center), integrate_interval(left, center)])
    distance = abs(center) + abs(lower) + width
    assert_close(parts, whole, COMBINED_ACCURACY, distance, width)


@given(positions, widths, positions, st.floats(-3, 3).map(lambda e: 10.0**e), positions)
def test_shifting_and_scaling_cell_and_gaussian_together(
    lower: float, width: float, center: float, scale: float, shift: float
) -> None:
    before = integrate_interval(make_interval(lower, lower + width), center)
    moved = make_interval(scale * lower + shift, scale * (lower + width) + shift)
    after = integrate_interval(moved, scale * center + shift, scale)
    back = Integral(after.log_mass, (after.mean - shift) / scale, after.covariance / scale**2)
    distance = abs(lower) + abs(center) + width + abs(shift) / scale
    assert_close(back, before, COMBINED_ACCURACY, 4.0 * distance, width)


@given(positions, widths, far_positions)
def test_reflection(lower: float, width: float, center: float) -> None:
    upper = lower + width
    plain = integrate_interval(make_interval(lower, upper), center)
    mirrored = integrate_interval(make_interval(-upper, -lower), -center)
    # Every operation of one has its mirror image in the other: equal to the last digit but for
    # sums in another order.
    assert mirrored.log_mass == pytest.approx(plain.log_mass, rel=4 * EPSILON, abs=MASS_ACCURACY)
    np.testing.assert_allclose(-mirrored.mean, plain.mean, rtol=4 * EPSILON, atol=4 * EPSILON)
    np.testing.assert_allclose(mirrored.covariance, plain.covariance, rtol=VARIANCE_ACCURACY)


@given(positions, st.floats(-30.0, -1.0))
def test_masses_stay_within_the_tolerance(center: float, log_tolerance: float) -> None:
    cell = make_interval(-0.5, 0.7)
    exact = integrate_interval(cell, center)
    loose = integrate_interval(cell, center, log_tolerance=log_tolerance)
    assert math.exp(loose.log_mass) == pytest.approx(
        math.exp(exact.log_mass), abs=math.exp(log_tolerance)
    )


def test_whole_line_is_the_gaussian_itself() -> None:
    result = integrate_interval(Intervals.whole_space(1), 3.0, 0.25)
    assert result.log_mass == pytest.approx(0.0, abs=4 * EPSILON)
    assert result.mean[0] == pytest.approx(3.0, rel=MASS_ACCURACY)
    assert result.covariance[0, 0] == pytest.approx(0.0625, rel=MASS_ACCURACY)


def test_half_lines_add_up_to_the_line() -> None:
    right, left = cut(Intervals.whole_space(1), [1.0], 0.3)
    total = combine([integrate_interval(right, -1.0), integrate_interval(left, -1.0)])
    assert total.log_mass == pytest.approx(0.0, abs=MASS_ACCURACY)
    assert total.mean[0] == pytest.approx(-1.0, rel=MASS_ACCURACY)
    assert total.covariance[0, 0] == pytest.approx(1.0, rel=MASS_ACCURACY)


def test_split_keeps_order_sides_and_parents() -> None:
    cells = Intervals(np.array([-np.inf, 0.0, 2.0]), np.array([0.0, 2.0, np.inf]))
    # Crossed by a falling function; missed by a rising one; a constant.
    pieces = cells.split(np.array([[-1.0], [1.0], [0.0]]), np.array([-1.0, 5.0, -0.5]))
    assert pieces.parents.tolist() == [0, 0, 1, 2]
    assert pieces.positive.tolist() == [True, False, True, False]
    assert pieces.cells.lower.tolist() == [-np.inf, -1.0, 0.0, 2.0]
    assert pieces.cells.upper.tolist() == [-1.0, 0.0, 2.0, np.inf]


@pytest.mark.parametrize("gradient", [1.0, -1.0])
@pytest.mark.parametrize("end", [-3.0, 0.0, 1e6])
def test_a_cut_at_an_end_leaves_the_cell_whole(end: float, gradient: float) -> None:
    cells = Intervals(np.array([-np.inf, end]), np.array([end, np.inf]))
    slightly_off = end + 1e-13 * (1.0 + abs(end))
    for position in (end, slightly_off):
        values = np.full(2, -gradient * position)
        pieces = cells.split(np.full((2, 1), gradient), values)
        assert pieces.parents.tolist() == [0, 1]
        assert pieces.positive.tolist() == [gradient < 0, gradient > 0]


def test_facets_and_corners() -> None:
    cells = Intervals(np.array([-np.inf, 0.0, 2.0]), np.array([0.0, 2.0, np.inf]))
    facets = cells.facets()
    assert facets.start.tolist() == [0, 1, 3, 4]
    assert facets.normals[:, 0].tolist() == [-1.0, 1.0, -1.0, 1.0]
    assert facets.offsets.tolist() == [0.0, 0.0, -2.0, 2.0]
    corners = cells.corners()
    assert corners.start.tolist() == [0, 0, 2, 2]
    assert corners.points[:, 0].tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(-np.inf, np.inf), (-np.inf, -5.0), (7.0, np.inf), (1.0, 1.0 + 1e-9), (1e17, np.inf)],
)
def test_interior_points_are_inside(lower: float, upper: float) -> None:
    point = make_interval(lower, upper).interior_points()
    assert point.shape == (1, 1)
    assert lower < point[0, 0] < upper


def test_whole_space_refuses_other_dimensions() -> None:
    with pytest.raises(ValueError, match="one latent dimension, got 2"):
        Intervals.whole_space(2)
