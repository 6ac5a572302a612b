"""The paper's route, corrected, against closed forms, mpmath references and itself."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import cdd
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from tests.reference import masses, patterns
from tests.reference.generators import (
    find_by_cddlib,
    find_dual_basis,
    find_exactly,
    find_generators,
    triangulate,
)
from tests.reference.orthants import orthant_probability
from tests.reference.simplices import integrate

# Sums of tens of probabilities, each good to a rounding error.
CLOSED_FORM = 2e-15
POLYGON = 1e-14
POLYHEDRON = 1e-12


def assert_equal(got, expected, accuracy):
    for a, b in zip(got[:3], expected[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=0.0, atol=accuracy)


def integrate_standard(normals, offsets):
    dimension = np.shape(normals)[1]
    return integrate(normals, offsets, np.zeros(dimension), np.eye(dimension))


def box(lower, upper):
    """Return the halfspaces of a box, which may have infinite sides."""
    axes = np.eye(len(lower))
    normals = np.vstack([axes, -axes])
    offsets = np.append(lower, np.negative(upper))
    return normals[np.isfinite(offsets)], offsets[np.isfinite(offsets)]


def box_moments(lower, upper):
    """Multiply the moments of intervals."""
    sides = [masses.interval(a, b) for a, b in zip(lower, upper, strict=True)]
    S = len(sides)

    def product(powers):
        return float(
            mp.fprod(
                [m.mass, m.first[0], m.second[0][0]][p] for m, p in zip(sides, powers, strict=True)
            )
        )

    powers = np.eye(S, dtype=int)
    first = np.array([product(p) for p in powers])
    second = np.array([[product(p + q) for p in powers] for q in powers])
    return product([0] * S), first, second


def random_cell(seed, n_halfspaces, dimension, distance=0.0):
    rng = np.random.default_rng(seed)
    normals = rng.normal(size=(n_halfspaces, dimension))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    point = rng.normal(size=dimension)
    point *= distance / np.linalg.norm(point)
    return normals, normals @ point - rng.uniform(0.1, 1.5, size=n_halfspaces)


# ------------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ([-0.5], [1.5]),
        ([0.7], [np.inf]),
        ([-np.inf, -np.inf], [np.inf, np.inf]),  # the plane
        ([-np.inf, 0.3], [np.inf, np.inf]),  # a halfplane
        ([-np.inf, 0.3], [np.inf, 1.1]),  # a strip
        ([-1.2, 0.3], [0.4, np.inf]),  # half a strip
        ([-1.2, 0.3], [0.4, 0.9]),
        ([-np.inf, -0.2, -np.inf], [np.inf, 0.9, np.inf]),
        ([-np.inf, -0.2, -1.1], [np.inf, 0.9, np.inf]),
        ([0.4, -0.2, -1.1], [np.inf, np.inf, np.inf]),
        ([0.4, -0.2, -1.1], [np.inf, 0.9, 1.6]),
        ([0.4, -0.2, -1.1], [1.3, 0.9, 1.6]),
        ([-np.inf, -0.2, -np.inf, -0.3], [np.inf, 0.9, np.inf, np.inf]),
    ],
)
def test_boxes_are_products_of_intervals(lower, upper):
    normals, offsets = box(lower, upper)
    got = integrate(normals, offsets, np.zeros(len(lower)), np.eye(len(lower)))
    assert_equal(got, box_moments(lower, upper), CLOSED_FORM)
    assert got.error < 1e-12


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 6])
def test_whole_space_has_the_moments_of_the_gaussian(dimension):
    rng = np.random.default_rng(dimension)
    mean = rng.normal(size=dimension)
    covariance = np.cov(rng.normal(size=(dimension, 20))).reshape(dimension, dimension)
    got = integrate(np.empty((0, dimension)), np.empty(0), mean, covariance)
    assert_equal(got, (1.0, mean, covariance + np.outer(mean, mean)), CLOSED_FORM)


def test_halfspace_in_five_dimensions():
    normal = np.array([3.0, -1.0, 2.0, 0.5, -4.0])
    length = np.linalg.norm(normal)
    got = integrate(normal[np.newaxis], [1.0], np.zeros(5), np.eye(5))
    side = masses.interval(1.0 / length, np.inf)
    unit = normal / length
    first = float(side.first[0]) * unit
    second = float(side.mass) * np.eye(5)
    second += float(side.second[0][0] - side.mass) * np.outer(unit, unit)
    assert_equal(got, (float(side.mass), first, second), CLOSED_FORM)


@pytest.mark.parametrize("angle", [1e-9, 0.3, math.pi / 2, 2.0, math.pi - 1e-9])
def test_wedge_at_the_mean_has_its_share_of_the_circle(angle):
    normals = np.array([[0.0, 1.0], [math.sin(angle), -math.cos(angle)]])
    assert integrate_standard(normals, [0.0, 0.0]).mass == pytest.approx(
        angle / (2 * math.pi), abs=CLOSED_FORM
    )


@pytest.mark.parametrize("seed", range(3))
def test_cone_at_the_mean_has_its_share_of_the_sphere(seed):
    normals = np.random.default_rng(seed).normal(size=(3, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    cosines = normals @ normals.T
    share = 1 / 8 + np.arcsin(cosines[np.triu_indices(3, 1)]).sum() / (4 * math.pi)
    assert integrate_standard(normals, np.zeros(3)).mass == pytest.approx(share, abs=CLOSED_FORM)


# --------------------------------------------------------------------------------------- references


@pytest.mark.parametrize("n_halfspaces", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(3))
def test_polygons_equal_the_reference(seed, n_halfspaces):
    cell = random_cell(seed, n_halfspaces, 2, distance=0.7 * seed)
    assert_equal(integrate_standard(*cell), masses.polygon(*cell).to_floats(), POLYGON)


@pytest.mark.parametrize(
    ("normals", "offsets"),
    [
        # A sliver of width 1e-9.
        ([[0.8, 0.6], [-0.8, -0.6], [0.6, -0.8]], [0.3, -0.3 - 1e-9, -1.0]),
        # A wedge of 1e-9 with its corner near the mean.
        ([[0.8, 0.6], [-0.8, -0.6 + 1e-9], [0.6, -0.8]], [0.3, -0.3, -1.0]),
        # Nearly parallel edges that meet far out, on the other side or behind the mean.
        ([[1.0, 1e-13], [-1.0, 1e-13]], [-0.5, -0.6]),
        ([[1.0, -1e-15], [2.0, 1e-15]], [-0.5, -1.0]),
        # An edge cut off by 1e-12, and lengths of normals from 1e-9 to 1e9.
        ([[1e9, 0.0], [0.0, 1e-9], [-1.0, -1.0]], [0.0, 0.0, -1.0]),
        ([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, 1e-12]),
    ],
)
def test_thin_and_degenerate_polygons_equal_the_reference(normals, offsets):
    reference = masses.polygon(normals, offsets).to_floats()
    assert_equal(integrate_standard(normals, offsets), reference, POLYGON)


@pytest.mark.parametrize(
    ("normals", "offsets"),
    [
        # A tetrahedron around the mean.
        ([[1.0, 0.2, 0], [-0.3, 1.0, 0], [0, 0.1, 1.0], [-1, -1, -1]], [-0.5, -0.4, -0.6, -1.0]),
        # Four planes meet in one point: a pyramid.
        (
            [[1.0, 0, -1], [-1, 0, -1], [0, 1, -1], [0, -1, -1], [0, 0, 1]],
            [-1.0, -1.0, -1.0, -1.0, 0.2],
        ),
        # Unbounded, but not a cone: half a prism, its floor oblique.
        ([[1.0, 0, 0], [-1, -1, 0], [0, 1, 0], [0.5, -0.3, 1]], [-0.3, -0.9, -0.4, 0.2]),
    ],
)
def test_polyhedra_equal_the_reference(normals, offsets):
    reference = masses.polyhedron(normals, offsets).to_floats()
    assert_equal(integrate_standard(normals, offsets), reference, POLYHEDRON)


def test_four_dimensions_equal_monte_carlo():
    normals, offsets = random_cell(3, 5, 4)
    mean, factor = np.full(4, 0.2), np.tril(np.full((4, 4), 0.2)) + 0.7 * np.eye(4)
    got = integrate(normals, offsets, mean, factor @ factor.T)
    draws = mean + np.random.default_rng(0).normal(size=(400_000, 4)) @ factor.T
    inside = draws[np.all(draws @ normals.T >= offsets, axis=1)]
    sampled = len(inside), inside.sum(axis=0), inside.T @ inside
    assert 0.05 < got.mass < 0.95
    # Five standard deviations of a mean over all draws of numbers of order 1.
    assert_equal(got, [x / len(draws) for x in sampled], 5 / math.sqrt(len(draws)))
    assert 0.0 < got.error < 1e-3


# ----------------------------------------------------------------------------------------- symmetry


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_affine_maps_carry_the_moments_along(dimension):
    rng = np.random.default_rng(dimension)
    normals, offsets = random_cell(dimension, dimension + 2, dimension)
    mean, factor = rng.normal(size=dimension), rng.normal(size=(dimension, dimension))
    inverse = np.linalg.inv(factor)
    got = integrate(normals @ inverse, offsets + normals @ inverse @ mean, mean, factor @ factor.T)
    mass, first, second, _ = integrate_standard(normals, offsets)
    carried = mass * mean + factor @ first
    outer = np.outer(mean, factor @ first)
    carried_second = mass * np.outer(mean, mean) + outer + outer.T + factor @ second @ factor.T
    assert_equal(got, (mass, carried, carried_second), 1e-13)


def test_redundant_repeated_and_rescaled_halfspaces_change_nothing():
    normals, offsets = random_cell(1, 5, 3)
    more = np.vstack([7.0 * normals[::-1], normals, normals[:2] + normals[2:4], np.zeros(3)])
    their_offsets = np.concatenate(
        [7.0 * offsets[::-1], offsets, offsets[:2] + offsets[2:4] - 0.1, [-1.0]]
    )
    assert_equal(
        integrate_standard(more, their_offsets), integrate_standard(normals, offsets), CLOSED_FORM
    )


coordinates = st.floats(-3.0, 3.0, allow_subnormal=False)


@st.composite
def halfspaces(draw, dimension):
    n = draw(st.integers(0, 5))
    rows = st.lists(coordinates, min_size=dimension, max_size=dimension)
    normals = draw(st.lists(rows, min_size=n, max_size=n))
    return np.reshape(normals, (n, dimension)), np.array([draw(coordinates) for _ in range(n)])


@given(cell=halfspaces(2), cut=st.tuples(coordinates, coordinates), offset=coordinates)
def test_pieces_of_a_cut_polygon_add_up(cell, cut, offset):
    assert_pieces_add_up(*cell, np.array(cut), offset)


@settings(max_examples=15)
@given(cell=halfspaces(3), cut=st.tuples(*[coordinates] * 3), offset=coordinates)
def test_pieces_of_a_cut_polyhedron_add_up(cell, cut, offset):
    assert_pieces_add_up(*cell, np.array(cut), offset)


def assert_pieces_add_up(normals, offsets, cut, offset):
    if not np.any(cut):
        return  # no hyperplane
    whole = integrate_standard(normals, offsets)
    pieces = [
        integrate_standard(np.vstack([normals, sign * cut]), np.append(offsets, sign * offset))
        for sign in (1.0, -1.0)
    ]
    assert_equal([a + b for a, b in zip(*pieces, strict=True)], whole, 1e-13)


@pytest.mark.parametrize(
    ("n_dimensions", "hidden", "activation"),
    [(1, (4, 3), "relu"), (2, (4, 3), "leaky_relu"), (3, (3, 1), "abs"), (4, (3,), "relu")],
)
def test_cells_of_a_network_fill_latent_space(n_dimensions, hidden, activation):
    rng = np.random.default_rng(5)
    sizes = [n_dimensions, *hidden, 2]
    coefs = [rng.normal(size=(b, a)) for a, b in itertools.pairwise(sizes)]
    intercepts = [rng.normal(size=b) for b in sizes[1:]]
    found = patterns.all_patterns(coefs, intercepts, activation)
    assert found == patterns.walk(coefs, intercepts, activation)
    parts = [
        integrate_standard(*patterns.cell(coefs[:-1], intercepts[:-1], pattern, activation))
        for pattern in found
    ]
    total = [sum(x) for x in zip(*parts, strict=True)]
    assert_equal(total, (1.0, np.zeros(n_dimensions), np.eye(n_dimensions)), 1e-13)


# ------------------------------------------------------------------------------------ empty and far


@pytest.mark.parametrize(
    ("normals", "offsets"),
    [
        ([[1.0], [-1.0]], [0.0, 0.0]),  # a point
        ([[1.0], [-1.0]], [0.1, 0.1]),  # nothing
        ([[0.3, 0.7], [-0.3, -0.7]], [0.1, -0.1]),  # a line
        ([[0.3, 0.7], [-0.9, -2.1], [1.0, 0.0]], [0.1, 0.2, 0.0]),  # nothing
        ([[0.0, 0.0], [1.0, 0.0]], [1.0, 0.0]),  # 0 >= 1
        ([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], [0.0, 0.0, 0.0]),  # a point
        ([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, 0]], [0.0, 0.0, 0.0, 0.0]),  # half a line
    ],
)
def test_cells_without_interior_have_no_mass(normals, offsets):
    got = integrate(normals, offsets, np.zeros(np.shape(normals)[1]), np.eye(np.shape(normals)[1]))
    assert got.mass == 0.0
    assert not np.any(got.first)
    assert not np.any(got.second)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_far_cells_have_no_mass_to_absolute_accuracy(dimension):
    got = integrate_standard(*random_cell(2, 2 * dimension + 1, dimension, distance=1000.0))
    assert_equal(got, (0.0, 0.0, 0.0), CLOSED_FORM)
    assert got.mass >= 0.0


def test_infinite_offsets_are_refused():
    with pytest.raises(ValueError, match="must be finite"):
        integrate_standard([[1.0, 0.0]], [-np.inf])


def test_zero_halfspace_says_nothing():
    assert integrate([[0.0, 0.0], [1.0, 0.0]], [0.0, 0.0], [0.0, 0.0], np.eye(2)).mass == 0.5


# ---------------------------------------------------------------------------------- building blocks


def test_simplices_of_a_cube_fill_it():
    normals, offsets = box([0, 0, 0], [1, 1, 1])
    rows = [[*map(Fraction, n), Fraction(-c)] for n, c in zip(normals, offsets, strict=True)]
    cone = find_generators([[Fraction(0)] * 3 + [Fraction(1)], *rows])
    assert len(cone.rays) == 8
    assert not cone.lines
    simplices = list(triangulate(frozenset(range(8)), cone.walls))
    corners = np.array([[cone.rays[i] for i in simplex] for simplex in simplices], dtype=float)
    assert np.abs(np.linalg.det(corners)).sum() / 6 == pytest.approx(1.0, abs=1e-14)
    functionals = find_dual_basis([cone.rays[i] for i in simplices[0]])
    values = corners[0] @ np.array(functionals, dtype=float).T
    np.testing.assert_array_equal(values > 0, np.eye(4, dtype=bool))
    np.testing.assert_array_equal(values[~np.eye(4, dtype=bool)], 0.0)


def cone_over(normals, offsets):
    """Return the inequalities of the cone over a cell."""
    S = np.shape(normals)[1]
    rows = [[*n, -c] for n, c in zip(normals, offsets, strict=True)]
    return [[Fraction(x) for x in row] for row in [[0.0] * S + [1.0], *rows]]


def test_generators_of_half_a_strip_are_two_vertices_and_a_ray():
    rows = [[0, 0, 1], [1, 0, 0], [-1, 0, 2], [0, 1, 3]]  # 0 <= x <= 2, y >= -3
    cone = find_exactly([[Fraction(x) for x in row] for row in rows])
    assert set(cone.rays) == {(0, -3, 1), (2, -3, 1), (0, 1, 0)}
    assert len(list(triangulate(frozenset(range(3)), cone.walls))) == 1


@pytest.mark.parametrize("dimension", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(5))
def test_cddlib_finds_the_generators_of_ordinary_cells(seed, dimension):
    inequalities = cone_over(*random_cell(seed, dimension + 3, dimension))
    by_cddlib, exact = find_by_cddlib(inequalities), find_exactly(inequalities)
    assert by_cddlib is not None
    directions = [
        np.array([[x / max(map(abs, ray)) for x in ray] for ray in cone.rays])
        for cone in (by_cddlib, exact)
    ]
    distances = np.abs(directions[0][:, np.newaxis] - directions[1]).max(axis=2)
    partners = distances.argmin(axis=1)
    assert sorted(partners) == list(range(len(exact.rays)))
    assert distances.min(axis=1).max() < 1e-12
    assert [{partners[i] for i in wall} for wall in by_cddlib.walls] == exact.walls


SLIVER = ([[0.8, 0.6], [-0.8, -0.6], [0.6, -0.8], [-0.6, 0.8]], [0.3, -0.3 - 1e-9, -1.0, -1.0])
# Three edges that nearly meet in one point: the third cuts off 1e-9 of the corner.
CORNER = ([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0.0, 0.0, 1e-9])


@pytest.mark.parametrize("cell", [SLIVER, CORNER], ids=["sliver", "corner"])
def test_exact_arithmetic_is_needed_where_cddlib_cannot_tell(cell):
    normals, offsets = np.array(cell[0]), np.array(cell[1])
    found = cdd.copy_generators(
        cdd.polyhedron_from_matrix(
            cdd.matrix_from_array(
                np.column_stack([-offsets, normals]), rep_type=cdd.RepType.INEQUALITY
            )
        )
    )
    exact = find_generators(cone_over(normals, offsets))
    assert find_by_cddlib(cone_over(normals, offsets)) is None
    assert len(exact.rays) == 4
    assert len(found.array) < 4


@pytest.mark.parametrize("angle", [1e-12, 1e-5, 0.5, math.pi - 1e-5, math.pi - 1e-12])
@pytest.mark.parametrize(("h", "k"), [(0.0, 0.0), (0.0, 0.7), (-0.4, 0.4), (0.4, 0.4), (1.0, -2.0)])
def test_bivariate_probabilities_equal_quadrature(angle, h, k):
    cosine, sine = math.cos(angle), math.sin(angle)
    got = orthant_probability(np.array([[1.0, 0.0], [cosine, sine]]), np.array([h, k]))
    # Where the inner probability changes, and how fast.
    place, width = k / cosine, abs(sine / cosine)
    places = [h, *(x for t in (-20, -6, 0, 6, 20) if h < (x := place + t * width) < 14), 14.0]
    with mp.workdps(20):
        expected = mp.quad(lambda x: mp.npdf(x) * mp.ncdf((cosine * x - k) / sine), places)
    assert got.value == pytest.approx(float(expected), abs=1e-15)


@pytest.mark.parametrize("closeness", [1.0, 1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("seed", range(4))
def test_trivariate_probabilities_add_up_when_normals_are_nearly_dependent(seed, closeness):
    rng = np.random.default_rng(seed)
    normals, offsets = rng.normal(size=(3, 3)), rng.normal(size=3)
    basis = [normals[:1], -normals[:1], normals[:2].sum(axis=0), normals[:1] * [[1], [-1], [1]]]
    normals[[2] if seed < 3 else [0, 1, 2]] = basis[seed]
    normals += closeness * rng.normal(size=(3, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    one_side = orthant_probability(normals, offsets)
    signs = np.array([-1.0, 1.0, 1.0])
    other_side = orthant_probability(signs[:, np.newaxis] * normals, signs * offsets)
    both = orthant_probability(normals[1:], offsets[1:])
    assert one_side.value + other_side.value == pytest.approx(both.value, abs=CLOSED_FORM)
    assert max(one_side.error, other_side.error) < 1e-12


def test_quadrivariate_probability_of_independent_coordinates():
    offsets = np.array([-0.5, 0.2, -1.0, 0.1])
    got = orthant_probability(np.eye(4), offsets)
    assert got.value == pytest.approx(special.ndtr(-offsets).prod(), abs=got.error)


# ------------------------------------------------------------------------ the references themselves


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ([1000.0, -1.0], [1001.0, 0.5]),
        ([-0.3, 0.2], [-0.3 + 1e-9, np.inf]),
        ([1000.0, 5.0], [1000.0 + 1e-9, 5.0 + 1e-9]),
        ([30.0, 0.5, -0.2], [31.0, 1.0, 0.3]),
    ],
)
def test_references_keep_relative_accuracy_in_the_tail_and_on_slivers(lower, upper):
    got = masses.cell(*box(lower, upper), tolerance=1e-8 if len(lower) == 3 else 1e-22)
    sides = [masses.interval(a, b) for a, b in zip(lower, upper, strict=True)]
    accuracy = 1e-10 if len(lower) == 3 else 1e-18
    assert abs(got.mass / mp.fprod(m.mass for m in sides) - 1) < accuracy
    np.testing.assert_allclose(got.mean(), [m.mean()[0] for m in sides], rtol=1e-10)
    np.testing.assert_allclose(
        got.covariance(),
        np.diag([m.covariance()[0, 0] for m in sides]),
        rtol=1e-8,
        atol=1e-30 if len(lower) == 2 else 1e-12,
    )


def test_reference_does_not_depend_on_the_direction_of_slices():
    # The same cell in two halves has other nearest points, hence other slices.
    normals, offsets = random_cell(4, 4, 2, distance=8.0)
    cut = np.array([0.3, 0.8])
    nearest = normals.T @ offsets / 4
    halves = [
        masses.polygon(np.vstack([normals, s * cut]), np.append(offsets, s * cut @ nearest))
        for s in (1.0, -1.0)
    ]
    whole = masses.polygon(normals, offsets)
    assert abs((halves[0].mass + halves[1].mass) / whole.mass - 1) < 1e-15
    assert all(0 < half.mass < whole.mass for half in halves)
