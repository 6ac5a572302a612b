"""Polytopes: splitting in any dimension, and integrals against the kinds that are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import special_ortho_group

import skdgn._partition.enumeration
from skdgn._geometry.integrals import CellIntegrals, integrate_gaussian
from skdgn._geometry.interface import THINNEST_PIECE
from skdgn._geometry.intervals import Intervals
from skdgn._geometry.polygons.cells import Polygons
from skdgn._geometry.polytopes.cells import Polytopes
from skdgn._geometry.polytopes.quadratic_program import nearest_point
from skdgn._network import Network
from skdgn._partition.enumeration import Partition, build_partition
from tests.geometry.helpers import cut, integrate
from tests.networks import (
    DEGENERATE,
    NEGATIVE_SLOPE,
    preactivations,
    random_network,
    regions_of_patterns,
)
from tests.reference import patterns as reference
from tests.reference import simplices

# Standard errors that the actual error of an integral may amount to, and how many of them may.
TIMES_ERROR = 4.0
# Errors below this need not be known.
SMALL_ERROR = 5e-4


def polytope_partition(network: Network) -> Partition:
    """Partition latent space into polytopes, whatever kind is made for its dimension."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skdgn._partition.enumeration, "whole_space", Polytopes.whole_space)
        return build_partition(network)


def polytope(normals: Any, offsets: Any) -> Polytopes:
    """Make the cell where ``normals @ z >= offsets``."""
    normals = np.asarray(normals, dtype=float)
    cell = Polytopes.whole_space(normals.shape[1])
    for normal, offset in zip(normals, np.asarray(offsets, dtype=float), strict=True):
        inside, _ = cut(cell, normal, float(offset))
        assert inside is not None
        cell = inside
    return cell


def integrate_all(
    cells: Polytopes, center: Any = None, log_tolerance: float = -np.inf
) -> CellIntegrals:
    """Integrate N(center, I) over every cell."""
    n_dimensions = cells.normals.shape[1]
    center = np.zeros(n_dimensions) if center is None else np.asarray(center, dtype=float)
    return integrate_gaussian(cells, center, np.eye(n_dimensions), log_tolerance)


def rotation(n_dimensions: int, seed: int = 0) -> np.ndarray:
    if n_dimensions == 1:
        return np.eye(1)
    return special_ortho_group.rvs(n_dimensions, random_state=seed)


def latent_points(n_components: int, n_points: int = 2000) -> np.ndarray:
    """Points near the origin and far out."""
    rng = np.random.default_rng(n_components)
    scales = np.array([0.3, 1.0, 3.0, 30.0, 1e3])
    return rng.normal(size=(n_points, n_components)) * rng.choice(scales, size=(n_points, 1))


def check_cells(network: Network, partition: Partition, points: np.ndarray) -> None:
    """Each point's pattern is there, no pattern is twice, interior points are inside."""
    assert len(np.unique(partition.patterns, axis=0)) == len(partition)
    values, errors = preactivations(network, points)
    clear = np.abs(values) > errors
    for positive, known in zip(values > 0, clear, strict=True):
        assert np.any(np.all((partition.patterns == positive) | ~known, axis=1))
    facets, inside = partition.cells.facets(), partition.cells.interior_points()
    owner = np.repeat(np.arange(len(partition)), np.diff(facets.start))
    assert np.all(np.einsum("fs,fs->f", facets.normals, inside[owner]) > facets.offsets)
    np.testing.assert_allclose(np.linalg.norm(facets.normals, axis=1), 1.0, rtol=1e-14)
    values, errors = preactivations(network, inside)
    clear = np.abs(values) > errors
    assert np.array_equal((values > 0) & clear, partition.patterns & clear)


def check_masses(partition: Partition) -> None:
    """Prior masses sum to one, as precisely as they say."""
    integrals = integrate_all(partition.cells)
    masses = np.exp(integrals.log_masses)
    error = np.sqrt(np.sum((masses * integrals.errors) ** 2))
    assert masses.sum() == pytest.approx(1.0, abs=TIMES_ERROR * error + 1e-9)


# Splitting


@pytest.mark.parametrize(
    ("n_components", "widths", "activation"),
    [(3, (7, 5), "relu"), (3, (5, 4, 3), "abs"), (4, (6, 5), "relu"), (4, (8,), "leaky_relu")],
)
def test_random_networks(n_components: int, widths: tuple[int, ...], activation: str) -> None:
    network = random_network(n_components, widths, activation=activation)
    partition = polytope_partition(network)
    points = latent_points(n_components)
    assert np.all(regions_of_patterns(partition, network.patterns(points)) >= 0)
    check_cells(network, partition, points[:200])
    check_masses(partition)


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize(("n_components", "activation"), [(3, "leaky_relu"), (4, "relu")])
def test_degenerate_networks(n_components: int, activation: str, name: str) -> None:
    network = DEGENERATE[name](n_components, activation)
    partition = polytope_partition(network)
    check_cells(network, partition, latent_points(n_components, 300))
    check_masses(partition)


@pytest.mark.parametrize(
    ("n_components", "widths"), [(3, (4,)), (3, (3, 2)), (4, (5,)), (4, (3, 2)), (5, (2, 2))]
)
def test_patterns_equal_those_of_linear_programming_and_of_a_walk(
    n_components: int, widths: tuple[int, ...]
) -> None:
    network = random_network(n_components, widths, activation="leaky_relu", seed=5)
    arguments = (network.coefs, network.intercepts, "leaky_relu", NEGATIVE_SLOPE)
    found = {tuple(row) for row in polytope_partition(network).patterns.tolist()}
    assert found == reference.all_patterns(*arguments)
    assert found == reference.walk(*arguments, start=np.full(n_components, 0.123))


@pytest.mark.parametrize(("n_components", "width", "n_regions"), [(4, 11, 562), (6, 8, 247)])
def test_hyperplanes_in_general_position(n_components: int, width: int, n_regions: int) -> None:
    # Zaslavsky: the sum of binomial(width, k), k <= n_components.
    assert len(polytope_partition(random_network(n_components, (width,)))) == n_regions


@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("name", ["random", "concurrent_elsewhere", "boundaries_across_layers"])
def test_cells_and_facets_equal_those_of_the_exact_kinds(n_components: int, name: str) -> None:
    network = (
        random_network(n_components, (6, 4), activation="abs")
        if name == "random"
        else DEGENERATE[name](n_components, "leaky_relu")
    )
    exact, found = build_partition(network), polytope_partition(network)
    order = regions_of_patterns(exact, found.patterns)
    assert np.array_equal(np.sort(order), np.arange(len(exact)))
    n_facets = np.diff(found.cells.facets().start)
    assert np.array_equal(n_facets, np.diff(exact.cells.facets().start)[order])


def test_whole_space_and_lines() -> None:
    space = Polytopes.whole_space(5)
    assert len(space) == 1
    np.testing.assert_array_equal(space.interior_points(), np.zeros((1, 5)))
    assert len(space.facets().offsets) == 0
    # Hyperplanes that depend on two coordinates only: all cells contain lines.
    normals = np.zeros((3, 5))
    normals[:, :2] = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]
    cells = space
    for normal in normals:
        gradients = np.broadcast_to(normal, (len(cells), 5))
        cells = cells.split(gradients, np.full(len(cells), -0.5)).cells
    assert len(cells) == 7
    assert np.exp(integrate_all(cells).log_masses).sum() == pytest.approx(1.0, abs=2e-3)


def test_constant_functions_cut_nothing() -> None:
    _, pieces = None, Polytopes.whole_space(4).split(np.zeros((1, 4)), np.array([0.5]))
    assert pieces.positive.tolist() == [True]
    pieces = Polytopes.whole_space(4).split(np.zeros((1, 4)), np.array([-0.5]))
    assert pieces.positive.tolist() == [False]
    assert pieces.parents.tolist() == [0]


@pytest.mark.parametrize("distance", [0.0, 1.0, 1e6])
def test_thin_pieces_stay_with_their_neighbor(distance: float) -> None:
    normal = rotation(4)[0]
    half, _ = cut(Polytopes.whole_space(4), normal, distance)
    scale = 1.0 + distance
    kept, rest = cut(half, normal, distance + 100.0 * THINNEST_PIECE * scale)
    assert kept is not None
    assert rest is not None
    kept, rest = cut(half, normal, distance + 0.1 * THINNEST_PIECE * scale)
    assert kept is not None
    assert rest is None
    # So it is for a tiny corner.
    corner = polytope(np.eye(4), np.full(4, distance))
    for size, crossed in [(1e4 * THINNEST_PIECE, True), (THINNEST_PIECE, False)]:
        beyond, within = cut(corner, np.ones(4), 4.0 * distance + size * scale)
        assert beyond is not None
        assert (within is not None) == crossed


@pytest.mark.parametrize("angle", [0.0, 1e-14, 1e-10])
def test_the_same_hyperplane_cuts_once(angle: float) -> None:
    normal, other = rotation(4)[:2]
    upper, lower = cut(Polytopes.whole_space(4), normal, 0.7)
    again = normal + angle * other
    for piece in (upper, lower):
        parts = cut(piece, 3.0 * again, 2.1)
        # At an angle that is not rounding, there is something between them, far out.
        assert (None in parts) == (angle < THINNEST_PIECE)


def test_redundant_facets_are_dropped() -> None:
    box = polytope(np.concatenate([np.eye(4), -np.eye(4)]), np.full(8, -1.0))
    assert len(box.facets().offsets) == 8
    # The corner at (1, 1, 1, 1), beyond all facets but four.
    corner, rest = cut(box, np.ones(4), 3.0)
    assert len(corner.facets().offsets) == 5
    assert len(rest.facets().offsets) == 9
    twice = polytope(np.concatenate([np.eye(4), np.eye(4)]), np.arange(8.0))
    np.testing.assert_array_equal(np.sort(twice.facets().offsets), [4.0, 5.0, 6.0, 7.0])


def test_take_corners_and_dimensions() -> None:
    cells = polytope_partition(random_network(4, (5,))).cells
    indices = np.array([7, 0, 7])
    taken = cells.take(indices)
    assert len(taken) == 3
    for r, original in enumerate(indices):
        part, whole = slice(*taken.start[r : r + 2]), slice(*cells.start[original : original + 2])
        np.testing.assert_array_equal(taken.normals[part], cells.normals[whole])
        np.testing.assert_array_equal(taken.offsets[part], cells.offsets[whole])
    corners = cells.corners()
    assert corners.points.shape == (0, 4)
    np.testing.assert_array_equal(corners.start, np.zeros(len(cells) + 1))
    with pytest.raises(ValueError, match="n_components must be between 1 and 33, got 34"):
        Polytopes.whole_space(34)


@pytest.mark.parametrize("seed", range(20))
def test_nearest_point_meets_the_conditions_of_an_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_dimensions = 1 + seed % 6
    rows = rng.normal(size=(12, n_dimensions))
    rows[6:9] = rows[:3]  # parallel halfspaces, too
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    bounds = rows @ rng.normal(size=n_dimensions) * 10.0 - rng.exponential(size=12)
    point, multipliers = np.empty(n_dimensions), np.empty(12)
    distance = nearest_point(rows, bounds, np.inf, point, multipliers)
    gaps = rows @ point - bounds
    assert distance == pytest.approx(np.linalg.norm(point), rel=1e-14)
    assert np.all(gaps > -1e-12)
    assert np.all(multipliers >= 0.0)
    np.testing.assert_allclose(multipliers * gaps, 0.0, atol=1e-10)
    np.testing.assert_allclose(multipliers @ rows, point, atol=1e-11)
    # Not as near, or not there at all.
    assert nearest_point(rows, bounds, 0.9 * distance - 0.1, point, multipliers) == np.inf
    rows[0], rows[1], bounds[0], bounds[1] = -rows[1], rows[1], 1.0, 1.0
    assert nearest_point(rows, bounds, np.inf, point, multipliers) == np.inf


# Integrals


def interval_integral(lower: float, upper: float) -> tuple[float, float, float]:
    result = integrate(Intervals(np.array([lower]), np.array([upper])), n_dimensions=1)
    return result.log_mass, result.mean[0], result.covariance[0, 0]


BOXES = {
    "cube": [(-1.0, 1.5)] * 4,
    "orthant": [(0.0, np.inf)] * 5,
    "strip": [(-0.3, 0.2), (-np.inf, np.inf), (-np.inf, 1.0), (-np.inf, np.inf)],
    "halfspace": [(-np.inf, 0.5)] + [(-np.inf, np.inf)] * 4,
    "interval": [(0.3, 2.0)],
    "10 deviations away": [(10.0, 11.0)] * 4,
    "30 deviations away": [(30.0, np.inf), (-31.0, -30.0), (-1.0, 1.0), (30.0, 30.01), (0.0, 1.0)],
    "1000 deviations away": [(-1.0, 1.0), (1e3, np.inf), (-1.0, 2.0), (-1e3, -900.0)],
    "small": [(0.3, 0.3 + 1e-6)] * 4,
    "slab": [(-1.0, 1.0), (0.3, 0.3 + 1e-5), (-1.0, np.inf), (-np.inf, np.inf)],
}


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("turned", [False, True])
def test_boxes_are_exact(name: str, turned: bool) -> None:
    intervals = BOXES[name]
    n_dimensions = len(intervals)
    axes = rotation(n_dimensions, seed=3) if turned else np.eye(n_dimensions)
    ends = np.array(intervals)
    halfspaces = [(axes[s], ends[s, 0]) for s in np.flatnonzero(np.isfinite(ends[:, 0]))]
    halfspaces += [(-axes[s], -ends[s, 1]) for s in np.flatnonzero(np.isfinite(ends[:, 1]))]
    result = integrate_all(polytope(*zip(*halfspaces, strict=True)))
    expected = np.array([interval_integral(*interval) for interval in intervals])
    # Rounding of the facets' distances, relative to the width of what is integrated.
    deviations = np.sqrt(expected[:, 2])
    rounding = 1e-12 + 1e-14 * np.sum((1.0 + np.abs(expected[:, 1])) / deviations)
    assert result.log_masses[0] == pytest.approx(expected[:, 0].sum(), abs=10.0 * rounding)
    assert result.errors[0] < 1e-12
    mean = (axes @ result.means[0] - expected[:, 1]) / deviations
    np.testing.assert_allclose(mean, 0.0, atol=10.0 * rounding)
    # A matrix has no digits left for variances much smaller than others.
    scale = np.outer(deviations, deviations)
    rounding += 1e-14 * deviations.max() ** 2 / deviations.min() ** 2
    covariance = axes @ result.covariances[0] @ axes.T / scale
    np.testing.assert_allclose(covariance, np.eye(n_dimensions), atol=100.0 * rounding)


def random_polygon(rng: np.random.Generator, distance: float) -> tuple[np.ndarray, np.ndarray]:
    """Halfplanes around a point at some distance from the origin, bounded or not."""
    n_edges = rng.integers(2, 6)
    normals = rng.normal(size=(n_edges, 2))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    direction = rng.normal(size=2)
    point = distance * direction / np.linalg.norm(direction)
    return normals, normals @ point - rng.uniform(0.1, 1.5, n_edges)


def product_of_polygons(
    n_dimensions: int, seed: int, distance: float
) -> tuple[Polytopes, float, np.ndarray, np.ndarray]:
    """A turned product of polygons; its log mass, mean and covariance, exactly."""
    rng = np.random.default_rng([seed, n_dimensions])
    axes = rotation(n_dimensions, seed)
    normals, offsets, log_mass = [], [], 0.0
    mean, covariance = np.zeros(n_dimensions), np.eye(n_dimensions)
    for first in range(0, n_dimensions - 1, 2):
        plane = slice(first, first + 2)
        edges = random_polygon(rng, distance)
        polygon = Polygons.whole_space(2)
        for normal, offset in zip(*edges, strict=True):
            polygon, _ = cut(polygon, normal, offset)
        exact = integrate(polygon)
        log_mass += exact.log_mass
        mean[plane], covariance[plane, plane] = exact.mean, exact.covariance
        normals.append(edges[0] @ axes[plane])
        offsets.append(edges[1])
    cell = polytope(np.concatenate(normals), np.concatenate(offsets))
    return cell, log_mass, axes.T @ mean, axes.T @ covariance @ axes


@pytest.mark.parametrize("distance", [0.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("n_dimensions", [2, 4, 5, 6])
def test_products_of_polygons(n_dimensions: int, distance: float) -> None:
    ratios, mean_errors, covariance_errors = [], [], []
    for seed in range(12):
        cell, log_mass, mean, covariance = product_of_polygons(n_dimensions, seed, distance)
        result = integrate_all(cell)
        assert result.errors[0] < 0.05
        ratios.append(
            abs(np.expm1(result.log_masses[0] - log_mass)) / max(result.errors[0], SMALL_ERROR)
        )
        whiten = np.linalg.inv(np.linalg.cholesky(covariance))
        mean_errors.append(whiten @ (result.means[0] - mean))
        covariance_errors.append(whiten @ (result.covariances[0] - covariance) @ whiten.T)
        assert np.linalg.eigvalsh(result.covariances[0])[0] > 0.0
    assert np.median(ratios) < 2.0
    assert np.sum(np.array(ratios) > TIMES_ERROR) <= 1
    # In units of the truncated Gaussian's deviations.
    assert np.sqrt(np.mean(np.square(mean_errors))) < 0.03
    assert np.sqrt(np.mean(np.square(covariance_errors))) < 0.06


@pytest.mark.parametrize("n_components", [2, 3])
@pytest.mark.parametrize("distance", [0.0, 2.0])
def test_cells_of_networks_against_the_exact_kinds(n_components: int, distance: float) -> None:
    network = random_network(n_components, (6, 4), activation="leaky_relu", seed=1)
    exact, found = build_partition(network), polytope_partition(network)
    center = np.full(n_components, distance)
    expected = integrate_gaussian(exact.cells, center, np.eye(n_components))
    order = regions_of_patterns(exact, found.patterns)
    result = integrate_all(found.cells, center)
    difference = np.abs(result.log_masses - expected.log_masses[order])
    matters = expected.log_masses[order] > -100.0
    error = np.maximum(result.errors, SMALL_ERROR)
    assert np.mean(difference[matters] > TIMES_ERROR * error[matters]) < 0.03
    assert np.sqrt(np.mean(difference[matters] ** 2)) < 1e-2
    matters = expected.log_masses[order] > -10.0
    np.testing.assert_allclose(result.means[matters], expected.means[order][matters], atol=0.03)
    np.testing.assert_allclose(
        result.covariances[matters], expected.covariances[order][matters], atol=0.05
    )


@pytest.mark.parametrize(("n_dimensions", "n_facets"), [(3, 5), (3, 8), (4, 3)])
def test_random_cells_against_simplices(n_dimensions: int, n_facets: int) -> None:
    rng = np.random.default_rng(n_facets)
    normals = rng.normal(size=(n_facets, n_dimensions))
    cell = polytope(normals, -rng.uniform(0.1, 1.0, n_facets))
    expected = simplices.integrate(
        cell.normals, cell.offsets, np.zeros(n_dimensions), np.eye(n_dimensions)
    )
    result = integrate_all(cell)
    mass = np.exp(result.log_masses[0])
    error = TIMES_ERROR * mass * max(result.errors[0], SMALL_ERROR) + 4.0 * expected.error
    assert mass == pytest.approx(expected.mass, abs=error)
    np.testing.assert_allclose(mass * result.means[0], expected.first, atol=0.02 * mass)
    second = result.covariances[0] + np.outer(result.means[0], result.means[0])
    np.testing.assert_allclose(mass * second, expected.second, atol=0.05 * mass)


def test_gaussians_other_than_the_standard_one() -> None:
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(4, 4)) + 2.0 * np.eye(4)
    center = rng.normal(size=4)
    # A box in whitened coordinates: y >= 0.2 and y[0] <= 1.
    inverse = np.linalg.inv(factor)
    normals = np.concatenate([inverse, -inverse[:1]])
    cell = polytope(normals, [0.2, 0.2, 0.2, 0.2, -1.0])
    result = integrate(cell, center, factor)
    shift = inverse @ center
    parts = [
        interval_integral(0.2 - s, (1.0 if i == 0 else np.inf) - s) for i, s in enumerate(shift)
    ]
    expected = np.array(parts)
    assert result.log_mass == pytest.approx(expected[:, 0].sum(), abs=1e-10)
    np.testing.assert_allclose(result.mean, factor @ (shift + expected[:, 1]), rtol=1e-9)
    np.testing.assert_allclose(
        result.covariance, factor @ np.diag(expected[:, 2]) @ factor.T, rtol=1e-8
    )


def test_the_pieces_of_a_cut_cell_add_up() -> None:
    rng = np.random.default_rng(4)
    cell = polytope(rng.normal(size=(7, 5)), -rng.uniform(0.1, 1.0, 7))
    whole, parts = (
        integrate_all(cell),
        [integrate_all(p) for p in cut(cell, rng.normal(size=5), 0.1)],
    )
    masses = [np.exp(part.log_masses[0]) for part in (whole, *parts)]
    errors = [mass * part.errors[0] for mass, part in zip(masses, (whole, *parts), strict=True)]
    assert masses[0] == pytest.approx(
        masses[1] + masses[2], abs=TIMES_ERROR * np.linalg.norm(errors)
    )


def test_results_are_the_same_every_time() -> None:
    cells = polytope_partition(random_network(4, (5, 3))).cells
    first, second = integrate_all(cells), integrate_all(cells)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_tolerance_saves_effort_but_is_kept() -> None:
    cells = polytope_partition(random_network(4, (6, 4))).cells
    exact = integrate_all(cells)
    tolerance = 1e-4
    rough = integrate_all(cells, log_tolerance=np.log(tolerance))
    difference = np.abs(np.exp(rough.log_masses) - np.exp(exact.log_masses))
    allowed = np.maximum(tolerance, np.exp(exact.log_masses) * exact.errors)
    assert np.all(difference < 8.0 * allowed)
    assert np.mean(difference < 2.0 * allowed) > 0.95
    # Cells without a share worth mentioning are skipped, by a bound on their mass.
    skipped = np.isneginf(rough.log_masses)
    assert np.any(skipped)
    assert np.all(exact.log_masses[skipped] < np.log(0.01 * tolerance))
    assert np.all(np.isfinite(rough.means))
    assert np.all(np.isfinite(rough.covariances))


def test_far_cells_of_a_network_are_finite() -> None:
    cells = polytope_partition(random_network(5, (6, 3), seed=2)).cells
    for distance in (20.0, 1e3):
        result = integrate_all(cells, center=np.full(5, distance))
        assert np.all(np.isfinite(result.log_masses))
        assert np.all(result.log_masses <= 1e-9)
        assert np.median(result.errors) < 0.02
        assert np.all(np.isfinite(result.covariances))
