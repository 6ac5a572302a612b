"""Vertices and rays of regions, against the regions' own cells and against points in them."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest
from scipy.optimize import nnls

from skdgn._network import Activation, Network
from skdgn._partition.enumeration import Partition, build_partition
from skdgn._partition.vertices import Vertices
from tests.networks import nearly_concurrent, random_network

# cddlib computes in double precision, by a few pivots.
ACCURACY = 1e-10

ARCHITECTURES = [(1, (5, 3)), (2, (6, 4)), (3, (6, 2)), (4, (6,))]


def partition_of(n_components: int, widths: tuple[int, ...]) -> Partition:
    return build_partition(random_network(n_components, widths, activation="abs", seed=1))


def residual(corners: Vertices, point: np.ndarray) -> float:
    """Distance of a point from what vertices and rays span."""
    n_vertices, n_rays = len(corners.vertices), len(corners.rays)
    heights = np.append(np.ones(n_vertices), np.zeros(n_rays))
    generators = np.column_stack([np.concatenate(corners), heights])
    scales = np.linalg.norm(generators, axis=1)
    return float(nnls((generators / scales[:, None]).T, np.append(point, 1.0))[1])


@pytest.mark.parametrize(("n_components", "widths"), ARCHITECTURES)
def test_regions_are_what_their_vertices_and_rays_span(
    n_components: int, widths: tuple[int, ...]
) -> None:
    network = random_network(n_components, widths, activation="abs", seed=1)
    partition = build_partition(network)
    found = [partition.vertices(region) for region in range(len(partition))]
    facets = partition.cells.facets()
    n_unbounded = 0
    for region, corners in enumerate(found):
        own = slice(facets.start[region], facets.start[region + 1])
        normals, offsets = facets.normals[own], facets.offsets[own]
        heights = corners.vertices @ normals.T - offsets
        slopes = corners.rays @ normals.T
        sizes = 1.0 + np.linalg.norm(corners.vertices, axis=1, keepdims=True)
        assert np.all(heights > -ACCURACY * sizes)
        assert np.all(slopes > -ACCURACY)
        # Vertices are where as many facets meet as there are dimensions, rays one less.
        assert np.all((np.abs(heights) < ACCURACY * sizes).sum(axis=1) >= n_components)
        assert np.all((np.abs(slopes) < ACCURACY).sum(axis=1) >= n_components - 1)
        np.testing.assert_allclose(np.linalg.norm(corners.rays, axis=1), 1.0)
        n_unbounded += len(corners.rays) > 0
    assert n_unbounded > 0
    assert n_unbounded < len(partition) or len(widths) == 1
    points = 2.0 * np.random.default_rng(0).normal(size=(200, n_components))
    regions = partition.locate(network.patterns(points))
    assert len(set(regions)) > 3
    for point, region in zip(points, regions, strict=True):
        assert residual(found[region], point) < ACCURACY
        # The vertices of another region do not span it: the test above can fail.
        assert residual(found[region - 1], point) > ACCURACY


@pytest.mark.parametrize(("n_components", "widths"), ARCHITECTURES[1:3])
def test_bounded_regions_have_the_corners_of_their_cells(
    n_components: int, widths: tuple[int, ...]
) -> None:
    partition = partition_of(n_components, widths)
    start, points = partition.cells.corners()
    n_bounded = 0
    for region, (first, last) in enumerate(itertools.pairwise(start)):
        if first < last:
            n_bounded += 1
            vertices, rays = partition.vertices(region)
            assert len(rays) == 0
            distances = np.linalg.norm(vertices[:, None] - points[None, first:last], axis=2)
            sizes = 1.0 + np.linalg.norm(points[first:last], axis=1)
            # Every corner is a vertex, and every vertex a corner: of polyhedra, one for each facet.
            assert set(distances.argmin(axis=0)) == set(range(len(vertices)))
            assert np.all(distances.min(axis=0) < ACCURACY * sizes)
    assert n_bounded > 0


def test_intervals_have_the_ends_of_their_cells() -> None:
    partition = partition_of(1, (5, 3))
    found = [partition.vertices(region) for region in range(len(partition))]
    ends = np.unique(np.round(np.concatenate([corners.vertices for corners in found]), 9))
    assert len(ends) == len(partition) - 1
    assert sorted(ray for corners in found for ray in corners.rays.ravel()) == [-1.0, 1.0]


@pytest.mark.parametrize("n_components", [1, 2, 3, 4])
def test_latent_space_without_boundaries_is_spanned_by_its_axes(n_components: int) -> None:
    vertices, rays = build_partition(random_network(n_components, ())).vertices(0)
    assert vertices.shape == (1, n_components)
    assert {tuple(ray) for ray in rays} == {
        tuple(sign * axis) for axis in np.eye(n_components) for sign in (-1.0, 1.0)
    }


def test_lines_are_two_rays() -> None:
    # Both units look at the first coordinate only: a strip and two halfspaces.
    network = Network.from_arrays(
        [np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), np.ones((2, 2))],
        [np.array([0.0, 1.0]), np.zeros(2)],
        Activation.from_name("relu", 0.0),
    )
    partition = build_partition(network)
    for region in range(3):
        vertices, rays = partition.vertices(region)
        is_strip = len(vertices) == 2
        assert {round(x, 12) for x in vertices[:, 0]} <= {-1.0, 0.0}
        assert len(rays) == (4 if is_strip else 5)
        flat = rays[np.abs(rays[:, 0]) < ACCURACY]
        assert len(flat) == 4
        np.testing.assert_allclose(flat.sum(axis=0), 0.0, atol=ACCURACY)


def test_regions_too_thin_for_cddlib_are_refused_rather_than_wrong() -> None:
    messages = []
    for seed in range(10):
        partition = build_partition(nearly_concurrent(2, 1, seed)[0])
        facets, middles = partition.cells.facets(), partition.cells.interior_points()
        for region, middle in enumerate(middles):
            try:
                corners = partition.vertices(region)
            except RuntimeError as error:
                messages.append(str(error))
                continue
            own = slice(facets.start[region], facets.start[region + 1])
            heights = corners.vertices @ facets.normals[own].T - facets.offsets[own]
            sizes = 1.0 + np.linalg.norm(corners.vertices, axis=1, keepdims=True)
            assert np.all(heights > -10.0 * ACCURACY * sizes)
            assert residual(corners, middle) < 10.0 * ACCURACY * (1.0 + np.linalg.norm(middle))
    assert len(messages) > 0
    assert all("cddlib cannot tell apart" in message for message in messages)


@pytest.mark.parametrize("region", [-1, 6, 1.0, "0", None, True])
def test_regions_that_are_none_are_refused(region: object) -> None:
    partition = build_partition(random_network(1, (5,)))
    with pytest.raises(ValueError, match=r"region must be an integer from 0 to 5.*, got"):
        partition.vertices(region)  # type: ignore[arg-type]  # that is the point


def test_numpy_integers_are_integers() -> None:
    partition = build_partition(random_network(1, (5,)))
    np.testing.assert_array_equal(
        partition.vertices(np.int64(2)).vertices, partition.vertices(2).vertices
    )


def test_without_cddlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cdd", None)  # import finds nothing
    partition = build_partition(random_network(2, (3,)))
    with pytest.raises(ImportError, match=r'pip install "skdgn\[cdd\]"'):
        partition.vertices(0)
