"""Polygons: cutting, masses, moments, and the places where the formula changes."""

from __future__ import annotations

import math
from typing import NamedTuple

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdgn._geometry.interface import Cells
from skdgn._geometry.polygons.boundaries import nearest_point, sliced_polygon
from skdgn._geometry.polygons.cells import Polygons
from tests.geometry.helpers import Integral, cell_from_halfspaces, combine, cut, integrate
from tests.reference import masses

EPSILON = float(np.finfo(float).eps)

# Relative accuracy of a mass, and of moments relative to the spread of the truncated Gaussian.
ACCURACY = 1e-10

# The reference is far more accurate than what it is compared with.
REFERENCE_TOLERANCE = 1e-14


class Shape(NamedTuple):
    """Halfspaces around a point, at least ``width`` away from it."""

    normals: np.ndarray
    offsets: np.ndarray
    point: np.ndarray
    width: float


def unit(angle: float) -> np.ndarray:
    return np.array([math.cos(angle), math.sin(angle)])


def rotation(angle: float) -> np.ndarray:
    return np.array([unit(angle), unit(angle + math.pi / 2)]).T


@st.composite
def shapes(draw: st.DrawFn, smallest: float = -3.0) -> Shape:
    """Polygons with up to six edges, bounded or not, thin or not."""
    angles = draw(st.lists(st.floats(0.0, 2.0 * math.pi), max_size=6))
    exponents = draw(st.lists(st.floats(smallest, 0.5), min_size=len(angles), max_size=len(angles)))
    point = np.array(draw(st.tuples(st.floats(-3, 3), st.floats(-3, 3))))
    normals = np.array([unit(angle) for angle in angles]).reshape(-1, 2)
    gaps = 10.0 ** np.array(exponents)
    return Shape(normals, normals @ point - gaps, point, float(gaps.min(initial=1.0)))


@st.composite
def factors(draw: st.DrawFn) -> np.ndarray:
    """Matrices of positive determinant, not too far from orthogonal."""
    scales = [2.0 ** draw(st.floats(-2, 2)) for _ in range(2)]
    return rotation(draw(st.floats(0, 6.3))) @ np.diag(scales) @ rotation(draw(st.floats(0, 6.3)))


angles = st.floats(0.0, 2.0 * math.pi)
near_centers = st.tuples(st.floats(-6, 6), st.floats(-6, 6)).map(np.array)
# Centers at up to a thousand deviations.
far_centers = st.builds(
    lambda angle, exponent: 10.0**exponent * unit(angle), angles, st.floats(0.0, 3.0)
)
centers = st.one_of(near_centers, far_centers)


def make_cell(shape: Shape) -> Cells:
    return cell_from_halfspaces(shape.normals, shape.offsets)


def reference_integral(cell: Cells, center: np.ndarray) -> Integral:
    """Integrate N(center, I) in high precision, the center subtracted exactly."""
    facets = cell.facets()
    with mp.workdps(masses.DIGITS):
        offsets = [
            mp.mpf(offset) - mp.fdot(normal, center.tolist())
            for normal, offset in zip(facets.normals.tolist(), facets.offsets.tolist(), strict=True)
        ]
        moments = masses.polygon(facets.normals, np.array(offsets, object), REFERENCE_TOLERANCE)
    return Integral(moments.log_mass(), center + moments.mean(), moments.covariance())


def assert_close(
    actual: Integral, expected: Integral, distance: float, width: float, accuracy: float = ACCURACY
) -> None:
    """Compare, allowing for what rounding the positions of the edges changes.

    ``distance`` is the size of the coordinates, in deviations, and ``width`` how thin the cell is.
    """
    shift = 16.0 * EPSILON * (1.0 + distance)
    # By how much the log mass changes when an edge is moved by one.
    steepness = 1.0 + distance + 1.0 / min(width, 1.0)
    relative = accuracy + shift * steepness
    spread = math.sqrt(np.trace(expected.covariance))
    assert actual.log_mass == pytest.approx(expected.log_mass, abs=relative, rel=0.0)
    np.testing.assert_allclose(
        actual.mean, expected.mean, rtol=0.0, atol=relative * spread + 2.0 * shift
    )
    np.testing.assert_allclose(
        actual.covariance, expected.covariance, rtol=0.0, atol=10.0 * relative * spread**2
    )


@settings(max_examples=25)  # the reference takes a tenth of a second
@given(shapes(), centers)
def test_masses_and_moments_equal_the_reference(shape: Shape, center: np.ndarray) -> None:
    cell = make_cell(shape)
    distance = np.linalg.norm(center) + np.linalg.norm(shape.point)
    assert_close(integrate(cell, center), reference_integral(cell, center), distance, shape.width)


@given(shapes(), centers, factors(), angles)
def test_pieces_of_a_cut_polygon_add_up(
    shape: Shape, center: np.ndarray, factor: np.ndarray, angle: float
) -> None:
    cell = make_cell(shape)
    normal = unit(angle)
    right, left = cut(cell, normal, float(normal @ shape.point))
    assert right is not None
    assert left is not None
    whole = integrate(cell, center, factor)
    parts = combine([integrate(right, center, factor), integrate(left, center, factor)])
    # Scales are between a quarter and four.
    distance = 4.0 * (np.linalg.norm(center) + np.linalg.norm(shape.point))
    assert_close(parts, whole, distance, shape.width / 4.0, 2.0 * ACCURACY)


def transform(shape: Shape, matrix: np.ndarray, shift: np.ndarray) -> Cells:
    """Make the image of a polygon under ``z -> matrix @ z + shift``."""
    normals = shape.normals @ np.linalg.inv(matrix)
    return cell_from_halfspaces(normals, shape.offsets + normals @ shift)


@given(shapes(), centers, factors(), near_centers)
def test_maps_of_cell_and_gaussian_together(
    shape: Shape, center: np.ndarray, matrix: np.ndarray, shift: np.ndarray
) -> None:
    before = integrate(make_cell(shape), center)
    image = transform(shape, matrix, shift)
    after = integrate(image, matrix @ center + shift, matrix)
    inverse = np.linalg.inv(matrix)
    back = Integral(
        after.log_mass, inverse @ (after.mean - shift), inverse @ after.covariance @ inverse.T
    )
    distance = 4.0 * (np.linalg.norm(center) + np.linalg.norm(shape.point) + np.linalg.norm(shift))
    assert_close(back, before, 4.0 * distance, shape.width / 4.0, 2.0 * ACCURACY)


@pytest.mark.parametrize("distance", [0.0, 7.0, 40.0])
@pytest.mark.parametrize("angle", [1e-11, 3e-10, 1e-8, 1e-6])
def test_edges_that_are_nearly_parallel(angle: float, distance: float) -> None:
    """Rounding moves their vertex by 1e-16 / angle, but not the boundary."""
    vertex = np.array([0.6, -0.2])
    normals = np.array([unit(0.4), unit(0.4 + angle), unit(2.5), unit(4.6)])
    offsets = normals @ vertex - np.array([0.0, 0.0, 1.0, 0.8])
    cell = cell_from_halfspaces(normals, offsets)
    center = vertex + np.array([0.3, 0.4]) - distance * normals[0]
    assert_close(integrate(cell, center), reference_integral(cell, center), distance, 0.5)


@given(shapes(), centers)
def test_reflection(shape: Shape, center: np.ndarray) -> None:
    mirror = np.diag([1.0, -1.0])
    plain = integrate(make_cell(shape), center)
    mirrored = integrate(transform(shape, mirror, np.zeros(2)), mirror @ center)
    back = Integral(
        mirrored.log_mass, mirror @ mirrored.mean, mirror @ mirrored.covariance @ mirror
    )
    distance = np.linalg.norm(center) + np.linalg.norm(shape.point)
    assert_close(back, plain, distance, shape.width, 2.0 * ACCURACY)


@given(shapes(), centers, factors(), angles)
def test_any_factor_of_the_covariance_will_do(
    shape: Shape, center: np.ndarray, factor: np.ndarray, angle: float
) -> None:
    cell = make_cell(shape)
    one = integrate(cell, center, factor)
    other = integrate(cell, center, factor @ rotation(angle))
    distance = 4.0 * (np.linalg.norm(center) + np.linalg.norm(shape.point))
    assert_close(other, one, distance, shape.width / 4.0, 2.0 * ACCURACY)


# Rectangles are products of intervals, for which there is a closed form.

EDGE_NORMALS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])


def rectangle(lower: np.ndarray, upper: np.ndarray) -> Cells:
    """Make a rectangle, whose ends may be infinite."""
    offsets = np.array([lower[0], -upper[0], lower[1], -upper[1]])
    finite = np.isfinite(offsets)
    return cell_from_halfspaces(EDGE_NORMALS[finite], offsets[finite])


def product_of_intervals(lower: np.ndarray, upper: np.ndarray) -> Integral:
    log_mass, mean, covariance = 0.0, np.zeros(2), np.zeros((2, 2))
    for axis in range(2):
        interval = masses.interval(lower[axis], upper[axis])
        log_mass += interval.log_mass()
        mean[axis] = interval.mean()[0]
        covariance[axis, axis] = interval.covariance()[0, 0]
    return Integral(log_mass, mean, covariance)


def assert_equals_product(lower: np.ndarray, upper: np.ndarray, accuracy: float = ACCURACY) -> None:
    actual = integrate(rectangle(lower, upper))
    expected = product_of_intervals(lower, upper)
    assert actual.log_mass == pytest.approx(expected.log_mass, abs=accuracy, rel=8 * EPSILON)
    deviations = np.sqrt(np.diagonal(expected.covariance))
    nearest = np.clip(0.0, lower, upper)
    assert np.all(
        np.abs(actual.mean - expected.mean)
        <= accuracy * deviations.max() + 4 * EPSILON * np.abs(nearest).max()
    )
    # Sides of a sliver differ by many orders of magnitude: compare with the longer one.
    np.testing.assert_allclose(
        actual.covariance, expected.covariance, rtol=0.0, atol=10 * accuracy * deviations.max() ** 2
    )


sides = st.one_of(st.just(np.inf), st.floats(-9.0, 1.0).map(lambda e: 10.0**e))
starts = st.one_of(
    st.just(-np.inf), st.floats(-5.0, 40.0), st.floats(0.0, 3.0).map(lambda e: 10.0**e)
)


@given(st.tuples(starts, starts), st.tuples(sides, sides))
def test_rectangles_are_products_of_intervals(
    start: tuple[float, float], side: tuple[float, float]
) -> None:
    lower = np.array(start)
    # An interval without beginning ends somewhere around zero.
    finite_start = np.where(np.isfinite(lower), lower, -1.0)
    width = np.maximum(np.array(side), 1e-9 * (1.0 + np.abs(finite_start)))
    # Chords are not parallel to the sides: what rounding of their ends changes, once per deviation.
    distance = np.linalg.norm(finite_start) + 10.0
    unavoidable = EPSILON * distance / min(1.0, width.min())
    assert_equals_product(lower, finite_start + width, ACCURACY + unavoidable)


@pytest.mark.parametrize("length", [1e-3, 1.0, np.inf])
@pytest.mark.parametrize("start", [0.0, 0.5, 6.0, 13.0, 1e3])
def test_slivers_across_or_along_the_ray_keep_relative_accuracy(
    start: float, length: float
) -> None:
    # The sliver begins at the foot of the perpendicular, and its end is exact: no rounding error is
    # unavoidable.
    width = 2.0**-30 if start < 100.0 else 2.0**-26
    for side in ([width, length], [length, width]):
        lower = np.array([start, 0.0])
        assert_equals_product(lower, lower + np.array(side))
        assert_equals_product(lower[::-1], (lower + np.array(side))[::-1])


# Ends of chords at nine deviations are rounded to 1e-15, which is 1e-6 of a sliver of width 1e-9;
# the errors of many chords average out.
OBLIQUE_SLIVER_ACCURACY = 2e-8


@pytest.mark.parametrize(("angle", "slope"), [(0.3, 0.0), (1.2, 1e-6), (4.0, 0.1)])
def test_oblique_slivers(angle: float, slope: float) -> None:
    cell = cell_from_halfspaces(
        [unit(angle), -unit(angle + slope), unit(angle + 1.0)], [-1e-9, -2e-9, -0.5]
    )
    actual, expected = integrate(cell), reference_integral(cell, np.zeros(2))
    assert actual.log_mass == pytest.approx(expected.log_mass, abs=OBLIQUE_SLIVER_ACCURACY)
    spread = np.trace(expected.covariance)
    np.testing.assert_allclose(
        actual.mean, expected.mean, atol=OBLIQUE_SLIVER_ACCURACY * math.sqrt(spread)
    )
    np.testing.assert_allclose(
        actual.covariance, expected.covariance, atol=OBLIQUE_SLIVER_ACCURACY * spread
    )


@pytest.mark.parametrize("angle", [0.0, 0.7])
@pytest.mark.parametrize("opening", [1e-3, 0.5, 2.5, 3.1])
@pytest.mark.parametrize("distance", [20.0, 1e3])
def test_wedges_at_many_deviations(distance: float, opening: float, angle: float) -> None:
    tip = distance * unit(0.4)
    normals = np.array([unit(angle), unit(angle + math.pi - opening)])
    cell = cell_from_halfspaces(normals, normals @ tip)
    # All of the mass is within a few times 1 / distance of the tip.
    width = opening / distance
    assert_close(integrate(cell), reference_integral(cell, np.zeros(2)), distance, width)


# Unbounded cells with closed forms.


def test_whole_plane_is_the_gaussian_itself() -> None:
    factor = np.array([[2.0, 0.3], [0.1, 0.5]])
    result = integrate(Polygons.whole_space(2), [3.0, -1.0], factor)
    assert result.log_mass == pytest.approx(0.0, abs=4 * EPSILON)
    np.testing.assert_allclose(result.mean, [3.0, -1.0], rtol=1e-14)
    np.testing.assert_allclose(result.covariance, factor @ factor.T, rtol=1e-14)


@pytest.mark.parametrize("angle", [0.0, 0.7, 3.5])
@pytest.mark.parametrize("width", [1e-6, 0.5, 30.0, np.inf])
@pytest.mark.parametrize("start", [-40.0, -0.5, 0.0, 3.0, 9.1, 12.1, 500.0])
def test_half_planes_and_strips_are_intervals(start: float, width: float, angle: float) -> None:
    normal = unit(angle)
    normals = [normal] if width == np.inf else [normal, -normal]
    cell = cell_from_halfspaces(normals, [start, -start - width][: len(normals)])
    across, along = normal, unit(angle + math.pi / 2)
    interval = masses.interval(start, start + width)
    expected = Integral(
        interval.log_mass(),
        interval.mean()[0] * across,
        interval.covariance()[0, 0] * np.outer(across, across) + np.outer(along, along),
    )
    assert_close(integrate(cell), expected, abs(start), width)


@pytest.mark.parametrize("n_wedges", [3, 4, 7])
@pytest.mark.parametrize("tip", [np.zeros(2), np.array([0.7, -0.35]), np.array([1e3, 3.0])])
def test_wedges_around_the_center_have_their_angle_as_mass(tip: np.ndarray, n_wedges: int) -> None:
    directions = np.sort(np.random.default_rng(n_wedges).uniform(0.0, 0.4, n_wedges) / n_wedges)
    directions = 2.0 * math.pi * (directions + np.arange(n_wedges) / n_wedges)
    openings = np.diff(np.append(directions, directions[0] + 2.0 * math.pi))
    parts = []
    for begin, opening in zip(directions, openings, strict=True):
        assert opening < math.pi
        normals = np.array([unit(begin + math.pi / 2), unit(begin + opening - math.pi / 2)])
        part = integrate(cell_from_halfspaces(normals, normals @ tip), tip)
        assert math.exp(part.log_mass) == pytest.approx(opening / (2.0 * math.pi), rel=ACCURACY)
        parts.append(part)
    whole = combine(parts)
    shift = 16.0 * EPSILON * np.linalg.norm(tip)
    np.testing.assert_allclose(whole.mean, tip, rtol=0.0, atol=ACCURACY + shift)
    np.testing.assert_allclose(whole.covariance, np.eye(2), rtol=0.0, atol=ACCURACY)


@pytest.mark.parametrize("direction", [0.1, 2.0, 4.5])
@pytest.mark.parametrize("opening", [0.3, 1.5, 2.8])
@pytest.mark.parametrize("distance", [0.0, 1e-16, 1e-12, 1e-9, 1e-6, 1e-4, 1e-2])
def test_centers_close_to_a_vertex(distance: float, opening: float, direction: float) -> None:
    tip = np.array([0.7, 0.35])
    normals = np.array([unit(0.4), unit(0.4 + math.pi - opening)])
    cell = cell_from_halfspaces(normals, normals @ tip)
    center = tip + distance * unit(direction)
    assert_close(integrate(cell, center), reference_integral(cell, center), 1.0, 1.0)


@pytest.mark.parametrize("share", [0.0, 1e-9, 0.3, 1.0])
@pytest.mark.parametrize("depth", [-1e-9, 0.0, 1e-16, 1e-9])
def test_centers_close_to_an_edge(depth: float, share: float) -> None:
    corners = np.array([[0.2, -0.3], [1.9, 0.4], [0.5, 1.6]])
    edges = np.roll(corners, -1, axis=0) - corners
    normals = np.stack([-edges[:, 1], edges[:, 0]], axis=1)
    normals /= np.linalg.norm(normals, axis=1)[:, None]
    cell = cell_from_halfspaces(normals, (normals * corners).sum(axis=1))
    center = corners[0] + share * edges[0] + depth * normals[0]
    assert_close(integrate(cell, center), reference_integral(cell, center), 2.0, 0.5)


# Where the formula changes: every formula must agree with the one that is good everywhere.


def by_chords(cell: Cells, center: np.ndarray) -> Integral:
    edges = cell.whiten(np.eye(2)[None]).edges
    mean, covariance = np.empty(2), np.empty((2, 2))
    nearest = nearest_point(edges, center)
    log_mass = sliced_polygon(edges, center, nearest, -np.inf, mean, covariance)
    return Integral(float(log_mass), mean, covariance)


# Directions of the normals, and offsets; centers move away along the first normal.
FAMILIES = {
    "triangle": ([0.5, 2.5, 4.6], [0.0, -1.0, -0.8]),
    "thin triangle": ([0.0, 3.1, 4.7], [0.0, -0.03, -2.0]),
    "pentagon": ([0.0, 1.2, 2.5, 3.8, 5.0], [0.0, -2.0, -2.0, -1.5, -2.0]),
    "half-plane": ([0.3], [0.0]),
    "strip": ([0.3, 0.3 + math.pi], [0.0, -0.4]),
    "wedge": ([-0.9, 1.1], [0.0, -0.2]),
    "blunt wedge": ([-0.1, 0.2], [0.0, -0.2]),
}


def family_at(family: str, distance: float) -> tuple[Cells, np.ndarray]:
    """Make a cell of a family, and a center at a distance from its first edge's line."""
    directions, offsets = FAMILIES[family]
    normals = np.array([unit(angle) for angle in directions])
    return cell_from_halfspaces(normals, offsets), -distance * normals[0]


def chooses_chords(family: str, distance: float) -> bool:
    cell, center = family_at(family, distance)
    return integrate(cell, center).log_mass == by_chords(cell, center).log_mass


def find_switch(family: str) -> float:
    """Bisect for the distance beyond which the mass comes from chords."""
    # Close by, both formulas may agree to the last digit.
    low = next(d for d in np.linspace(0.0, 4.0, 33) if not chooses_chords(family, d))
    high = 20.0
    assert chooses_chords(family, high)
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if chooses_chords(family, middle) else (middle, high)
    return low


@pytest.mark.parametrize("family", FAMILIES)
def test_formulas_agree_at_all_distances(family: str) -> None:
    for distance in np.linspace(-3.0, 15.0, 73):
        cell, center = family_at(family, distance)
        chosen, chords = integrate(cell, center), by_chords(cell, center)
        assert_close(chosen, chords, abs(distance), 0.03, 2.0 * ACCURACY)


@pytest.mark.parametrize("family", FAMILIES)
def test_both_sides_of_the_switch_equal_the_reference(family: str) -> None:
    switch = find_switch(family)
    for distance in (switch - 2e-9, switch + 2e-9):
        cell, center = family_at(family, distance)
        assert_close(integrate(cell, center), reference_integral(cell, center), distance, 0.03)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("distance", [2.0, 8.999999, 9.000001, 40.0])
def test_formulas_equal_the_reference(family: str, distance: float) -> None:
    cell, center = family_at(family, distance)
    assert_close(integrate(cell, center), reference_integral(cell, center), distance, 0.03)


@given(shapes(), near_centers, st.floats(-35.0, -1.0))
def test_masses_stay_within_the_tolerance(
    shape: Shape, center: np.ndarray, log_tolerance: float
) -> None:
    cell = make_cell(shape)
    exact = integrate(cell, center)
    loose = integrate(cell, center, None, log_tolerance)
    tolerance = math.exp(log_tolerance)
    difference = math.exp(loose.log_mass) - math.exp(exact.log_mass)
    assert abs(difference) <= tolerance + 2.0 * ACCURACY * math.exp(exact.log_mass)


@given(shapes(), near_centers, st.floats(-35.0, -3.0))
def test_unnormalized_moments_stay_near_the_tolerance(
    shape: Shape, center: np.ndarray, log_tolerance: float
) -> None:
    """Errors of moments count in proportion to the mass; distances are at most about ten."""
    cell = make_cell(shape)
    exact = integrate(cell, center)
    loose = integrate(cell, center, None, log_tolerance)
    mass, loose_mass = math.exp(exact.log_mass), math.exp(loose.log_mass)
    allowed = 100.0 * math.exp(log_tolerance) + 1e3 * ACCURACY * mass
    first = loose_mass * (loose.mean - center) - mass * (exact.mean - center)
    assert np.abs(first).max() <= allowed
    second = loose_mass * second_moment(loose, center) - mass * second_moment(exact, center)
    assert np.abs(second).max() <= 10.0 * allowed


def second_moment(integral: Integral, center: np.ndarray) -> np.ndarray:
    shift = integral.mean - center
    return integral.covariance + np.outer(shift, shift)


# Geometry.


@given(shapes(), angles, st.floats(-2.0, 2.0))
def test_pieces_lie_on_their_side(shape: Shape, angle: float, offset: float) -> None:
    normal = unit(angle)
    offset += float(normal @ shape.point)
    right, left = cut(make_cell(shape), normal, offset)
    for piece, sign in ((right, 1.0), (left, -1.0)):
        if piece is not None:
            inside = piece.interior_points()[0]
            assert sign * (normal @ inside - offset) > 0.0
            assert np.all(shape.normals @ inside > shape.offsets - 1e-12)


@given(shapes())
def test_edges_lie_on_the_boundary_counter_clockwise(shape: Shape) -> None:
    cell = make_cell(shape)
    facets = cell.facets()
    for nx, ny, offset, begin, end in cell.edges:
        assert begin < end
        assert math.hypot(nx, ny) == pytest.approx(1.0, abs=1e-14)
        low, high = np.clip([begin, end], -10.0, 10.0)
        direction = np.array([ny, -nx])
        for t in (low, high):
            point = offset * np.array([nx, ny]) + t * direction
            if begin <= t <= end:
                assert np.all(facets.normals @ point >= facets.offsets - 1e-9)
    inside = cell.interior_points()[0]
    assert np.all(facets.normals @ inside > facets.offsets)


def test_corners_of_bounded_polygons_only() -> None:
    triangle = cell_from_halfspaces([[1, 0], [0, 1], [-1, -1]], [0.0, 0.0, -math.sqrt(0.5)])
    quadrant = cell_from_halfspaces([[1, 0], [0, 1]], [0.0, 0.0])
    corners = triangle.corners()
    assert corners.start.tolist() == [0, 3]
    found = sorted(np.round(corners.points, 12).tolist())
    size = round(math.sqrt(0.5), 12)
    assert found == [[0.0, 0.0], [0.0, size], [size, 0.0]]
    assert quadrant.corners().start.tolist() == [0, 0]
    assert Polygons.whole_space(2).corners().start.tolist() == [0, 0]


def test_split_reports_parents_and_sides() -> None:
    upper, lower = cut(Polygons.whole_space(2), [0.0, 1.0], 0.0)
    both = cell_from_halfspaces([[0.0, 1.0]], [0.0]).split(np.array([[1.0, 0.0]]), np.zeros(1))
    assert both.parents.tolist() == [0, 0]
    assert sorted(both.positive.tolist()) == [False, True]
    assert upper is not None
    assert lower is not None
    quarters = both.cells.split(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([1.0, -2.0]))
    assert quarters.parents.tolist() == [0, 1]
    assert quarters.positive.tolist() == [True, False]


@pytest.mark.parametrize("offset", [0.0, 1e-14])
def test_lines_along_an_edge_or_through_a_vertex_do_not_cut(offset: float) -> None:
    square = rectangle(np.zeros(2), np.ones(2))
    assert cut(square, [1.0, 0.0], offset)[1] is None
    assert cut(square, [-1.0, 0.0], offset)[0] is None
    assert cut(square, [1.0, 1.0], offset)[1] is None
    assert cut(square, [-1.0, -1.0], offset)[0] is None


def test_a_diagonal_cuts_a_square_into_triangles() -> None:
    square = rectangle(np.zeros(2), np.ones(2))
    right, left = cut(square, [1.0, -1.0], 0.0)
    assert right is not None
    assert left is not None
    assert len(right.edges) == len(left.edges) == 3


def test_take_selects_cells() -> None:
    square = rectangle(np.zeros(2), np.ones(2))
    pieces = square.split(np.array([[1.0, 0.0]]), np.array([-0.25])).cells
    swapped = pieces.take(np.array([1, 0, 1]))
    assert len(swapped) == 3
    np.testing.assert_array_equal(
        swapped.interior_points(), pieces.interior_points()[np.array([1, 0, 1])]
    )


def test_interior_points_of_unbounded_cells_far_out() -> None:
    for distance in (1.0, 1e8, 1e17):
        wedge = cell_from_halfspaces([[1.0, 0.2], [0.3, 1.0]], [distance, distance])
        facets = wedge.facets()
        assert np.all(facets.normals @ wedge.interior_points()[0] > facets.offsets)


def test_whole_space_refuses_other_dimensions() -> None:
    with pytest.raises(ValueError, match="two latent dimensions, got 3"):
        Polygons.whole_space(3)
