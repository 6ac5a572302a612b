"""Polyhedra: flags, plane sections, and everything they can be compared with."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from skdgn._geometry.integrals import integrate_gaussian
from skdgn._geometry.kinds import whole_space
from skdgn._geometry.polyhedra.flags import (
    flag_polyhedron,
    nearest_in_polyhedron,
    polyhedron_moments,
)
from skdgn._geometry.polyhedra.sections import sliced_polyhedron
from skdgn._geometry.quadrature import FULL_ACCURACY
from skdgn._partition.enumeration import build_partition
from tests.geometry.helpers import cell_from_halfspaces, combine, cut, integrate
from tests.networks import random_network
from tests.portions import usually
from tests.reference import masses, simplices

# Flags are sums of terms of order one: this is what rounding leaves, with room for twenty terms.
FLAG_ERROR = 2e-14
# Sections are accepted when two quadrature rules agree to 1e-11.
SECTION_ERROR = 1e-10


def box(lower, upper):
    """Halfspaces of a box."""
    normals = np.concatenate([np.eye(3), -np.eye(3)])
    return normals, np.concatenate([lower, -np.asarray(upper)])


def random_cell(seed, n_halfspaces, distance=0.0):
    """Halfspaces around a point at some distance from the origin, bounded or not."""
    rng = np.random.default_rng(seed)
    normals = rng.normal(size=(n_halfspaces, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    direction = rng.normal(size=3)
    point = distance * direction / np.linalg.norm(direction)
    return normals, normals @ point - rng.uniform(0.1, 1.5, n_halfspaces)


def by_flags(cell):
    whitened = cell.whiten(np.eye(3)[None])
    first, second, nearest = np.empty(3), np.empty((3, 3)), np.empty(3)
    rho = nearest_in_polyhedron(whitened, 0, np.zeros(3), nearest)
    mass, _ = flag_polyhedron(whitened, 0, np.zeros(3), rho, FULL_ACCURACY, first, second)
    scale = np.exp(-0.5 * rho**2) / (2.0 * np.pi) ** 1.5
    return scale * mass, scale * first, scale * second


def by_sections(cell):
    whitened = cell.whiten(np.eye(3)[None])
    mean, covariance, nearest = np.empty(3), np.empty((3, 3)), np.empty(3)
    rho = nearest_in_polyhedron(whitened, 0, np.zeros(3), nearest)
    log_mass = sliced_polyhedron(whitened, 0, np.zeros(3), nearest, rho, -np.inf, mean, covariance)
    mass = np.exp(log_mass)
    return mass, mass * mean, mass * (covariance + np.outer(mean, mean))


@pytest.mark.parametrize("seed", range(6))
def test_flags_sections_and_simplices_agree(seed):
    normals, offsets = random_cell(seed, 3 + seed, distance=0.4 * seed)
    cell = cell_from_halfspaces(normals, offsets, 3)
    flags, sections = by_flags(cell), by_sections(cell)
    reference = simplices.integrate(normals, offsets, np.zeros(3), np.eye(3))
    for one, two, three in zip(flags, sections, reference[:3], strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=SECTION_ERROR)
        # The paper's route promises 1e-10 in three dimensions.
        np.testing.assert_allclose(one, three, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ([-1.0, 0.2, -0.5], [0.3, 1.7, 2.0]),
        ([-np.inf, -np.inf, -np.inf], [0.3, np.inf, 1.0]),
        ([2.0, -1.0, -np.inf], [3.0, np.inf, np.inf]),
        ([5.0, 7.0, -6.0], [5.5, np.inf, -5.0]),
        ([20.0, -0.5, 3.0], [20.5, 0.5, np.inf]),
        ([100.0, 50.0, 0.0], [np.inf, np.inf, 1e-9]),
        ([0.0, 0.0, 1e3], [1.0, 1e-9, np.inf]),
    ],
)
def test_boxes_are_products_of_intervals(lower, upper):
    normals, offsets = box(lower, upper)
    finite = np.isfinite(offsets)
    cell = cell_from_halfspaces(normals[finite], offsets[finite], 3)
    # Turning the box makes every edge a general one.
    turned = Rotation.from_euler("xyz", [0.3, -1.1, 2.0]).as_matrix()
    turned_cell = cell_from_halfspaces(normals[finite] @ turned.T, offsets[finite], 3)
    intervals = [
        integrate(_interval(lower[axis], upper[axis]), center=np.zeros(1), n_dimensions=1)
        for axis in range(3)
    ]
    log_mass = sum(interval.log_mass for interval in intervals)
    mean = np.array([interval.mean[0] for interval in intervals])
    variances = np.array([interval.covariance[0, 0] for interval in intervals])
    for got, rotation in (
        (integrate(cell, n_dimensions=3), np.eye(3)),
        (integrate(turned_cell, n_dimensions=3), turned),
    ):
        # Turning rounds each offset; the log mass is as steep as the box is far away or narrow.
        widths = np.subtract(upper, lower)
        rounding = 1e-15 * np.abs(mean).max() * (np.abs(mean).max() + 1.0 / min(1.0, widths.min()))
        assert abs(got.log_mass - log_mass) < SECTION_ERROR + 4.0 * rounding
        np.testing.assert_allclose(rotation.T @ got.mean, mean, rtol=1e-8, atol=1e-8)
        covariance = rotation.T @ got.covariance @ rotation
        # Relative to the size of each direction: slivers have variances of 1e-19.
        scale = np.sqrt(np.outer(variances, variances))
        floor = 1e-15 * np.abs(mean).max() ** 2 * 1e-2
        assert np.all(np.abs(covariance - np.diag(variances)) <= 1e-6 * scale + floor)


def _interval(lower, upper):
    cell = whole_space(1)
    if np.isfinite(lower):
        cell = cut(cell, [1.0], lower)[0]
    if np.isfinite(upper):
        cell = cut(cell, [-1.0], -upper)[0]
    return cell


@pytest.mark.no_cover
@pytest.mark.parametrize(("distance", "n_halfspaces"), usually([(30.0, 6), (6.0, 3)], 1))
def test_tail_keeps_relative_accuracy(distance, n_halfspaces):
    normals, offsets = random_cell(11 * n_halfspaces, n_halfspaces, distance)
    got = integrate(cell_from_halfspaces(normals, offsets, 3), n_dimensions=3)
    reference = masses.polyhedron(normals, offsets, tolerance=1e-8)
    log_mass = float(reference.log_mass())
    assert log_mass < -3.0
    assert abs(got.log_mass - log_mass) < 1e-7
    np.testing.assert_allclose(got.mean, np.array(reference.mean(), dtype=float), atol=1e-6)


@given(
    seed=st.integers(0, 10_000),
    n_halfspaces=st.integers(0, 7),
    distance=st.floats(0.0, 4.0),
    angle=st.floats(0.0, 3.1),
    shift=st.floats(-0.5, 0.5),
)
def test_pieces_of_a_cut_cell_add_up(seed, n_halfspaces, distance, angle, shift):
    normals, offsets = random_cell(seed, n_halfspaces, distance)
    cell = cell_from_halfspaces(normals, offsets, 3)
    normal = np.array([np.cos(angle), np.sin(angle), 0.3])
    point = cell.interior_points()[0]
    parts = [part for part in cut(cell, normal, float(normal @ point) + shift) if part is not None]
    whole = integrate(cell, n_dimensions=3)
    sum_of_parts = combine([integrate(part, n_dimensions=3) for part in parts])
    assert abs(whole.log_mass - sum_of_parts.log_mass) < 1e-9
    np.testing.assert_allclose(whole.mean, sum_of_parts.mean, atol=1e-8)
    np.testing.assert_allclose(whole.covariance, sum_of_parts.covariance, atol=1e-7)


@given(seed=st.integers(0, 10_000), n_halfspaces=st.integers(1, 7), scale=st.floats(0.2, 4.0))
def test_moving_cell_and_gaussian_together(seed, n_halfspaces, scale):
    rng = np.random.default_rng(seed)
    normals, offsets = random_cell(seed, n_halfspaces, 1.0)
    plain = integrate(cell_from_halfspaces(normals, offsets, 3), n_dimensions=3)
    rotation = Rotation.random(random_state=seed).as_matrix()
    shift = rng.normal(size=3)
    moved = cell_from_halfspaces(
        normals @ rotation.T, scale * offsets + normals @ rotation.T @ shift, 3
    )
    got = integrate(moved, center=shift, factor=scale * np.eye(3))
    assert abs(got.log_mass - plain.log_mass) < 1e-9
    np.testing.assert_allclose(got.mean, shift + scale * rotation @ plain.mean, atol=1e-7)
    np.testing.assert_allclose(
        got.covariance, scale**2 * rotation @ plain.covariance @ rotation.T, atol=1e-6
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_partition_has_the_moments_of_the_prior(seed):
    network = random_network(3, (6, 4), activation="leaky_relu", seed=seed)
    partition = build_partition(network)
    integrals = integrate_gaussian(partition.cells, np.zeros(3), np.eye(3), np.log(1e-14))
    weights = np.exp(integrals.log_masses)
    second = integrals.covariances + integrals.means[:, :, None] * integrals.means[:, None, :]
    assert abs(weights.sum() - 1.0) < 1e-12
    np.testing.assert_allclose(weights @ integrals.means, 0.0, atol=1e-12)
    np.testing.assert_allclose(np.einsum("r,rst->st", weights, second), np.eye(3), atol=1e-12)


def test_take_keeps_the_chosen_cells():
    partition = build_partition(random_network(3, (5,), seed=1))
    chosen = np.array([4, 0, 4])
    weights = integrate_gaussian(partition.cells, np.zeros(3), np.eye(3)).log_masses
    taken = integrate_gaussian(partition.cells.take(chosen), np.zeros(3), np.eye(3)).log_masses
    np.testing.assert_array_equal(taken, weights[chosen])


def test_other_dimensions_are_refused():
    with pytest.raises(ValueError, match="three latent dimensions, got 2"):
        type(whole_space(3)).whole_space(2)


@pytest.mark.parametrize("distance", [0.0, 1.0, 5.0, 12.0])
def test_prisms_without_ends_are_polygons_however_they_are_turned(distance):
    rng = np.random.default_rng(0)
    for _ in range(40):
        # Lines around a point, two of them nearly parallel.
        angles = rng.uniform(0.0, 2.0 * np.pi, size=3)
        angles[2] = angles[0] + np.pi + 0.02 * rng.normal()
        normals = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        offsets = normals @ [distance, 0.0] - rng.uniform(0.01, 0.5, size=3)
        polygon = cell_from_halfspaces(normals, offsets, 2)
        expected = integrate_gaussian(polygon, np.zeros(2), np.eye(2)).log_masses[0]
        turn = Rotation.random(random_state=rng).as_matrix()
        prism = cell_from_halfspaces(normals @ turn[:2], offsets, 3)
        for _ in range(5):
            factor = Rotation.random(random_state=rng).as_matrix()
            whitened = prism.whiten(factor[None])
            mean, covariance = np.empty(3), np.empty((3, 3))
            found = polyhedron_moments(whitened, 0, np.zeros(3), -np.inf, mean, covariance)
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("distance", [1e-4, 1e-7, 1e-10, 1e-13, 0.0])
def test_a_center_next_to_an_edge_sees_the_angle_between_its_planes(distance: float) -> None:
    """How far it is from each of the planes is then rounding, but the masses are not."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, other, _ = np.linalg.qr(rng.normal(size=(3, 3)))[0].T
        angle, point = rng.uniform(0.2, 2.9), rng.normal(size=3)
        second = math.cos(angle) * first + math.sin(angle) * other
        center = point + distance * rng.normal(size=3) / np.sqrt(3.0)
        masses = {}
        for signs in itertools.product((1.0, -1.0), repeat=2):
            cell = whole_space(3)
            for sign, normal in zip(signs, (first, second), strict=True):
                pieces = cell.split(sign * normal[None], np.array([-sign * normal @ point]))
                cell = pieces.cells.take(np.flatnonzero(pieces.positive))
            integral = integrate_gaussian(cell, center, np.eye(3), math.log(1e-14))
            masses[signs] = math.exp(integral.log_masses[0])
            wide = math.pi - angle if signs[0] == signs[1] else angle
            assert masses[signs] == pytest.approx(wide / (2.0 * math.pi), abs=distance + 1e-11)
        assert sum(masses.values()) == pytest.approx(1.0, abs=1e-11)


def test_a_plane_that_touches_a_cell_in_one_point_changes_nothing() -> None:
    """Its facet is that point, and seen from some centers so is the foot of its perpendicular."""
    pyramid = np.array([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    masses = []
    for normals in (pyramid, np.concatenate([[[1.0, 0.0, 0.0]], pyramid])):
        cell = whole_space(3)
        for normal in normals / np.linalg.norm(normals, axis=1, keepdims=True):
            pieces = cell.split(normal[None], np.zeros(1))
            cell = pieces.cells.take(np.flatnonzero(pieces.positive))
        centers = np.array([[-0.75, 0.0, 0.0], [-0.75, 1e-3, 1e-3], [-3.0, 0.0, 0.0]])
        integrals = [integrate_gaussian(cell, center, np.eye(3)) for center in centers]
        masses.append([integral.log_masses[0] for integral in integrals])
    np.testing.assert_allclose(masses[1], masses[0], rtol=1e-11)
