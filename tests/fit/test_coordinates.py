"""Latent coordinates found on the data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from scipy.special import ndtri
from sklearn.datasets import make_s_curve

from skdgn._fit.starts.coordinates import (
    METHODS,
    _neighborhood_graph,
    _spanning_tree,
    find_coordinates,
    gaussianize,
    principal_axes,
)
from tests.curves import (
    NOISE,
    circle,
    standardize,
)


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_coordinates_look_standard_normal(method: str, n_components: int) -> None:
    rows = standardize(make_s_curve(300, noise=NOISE, random_state=0)[0])
    z = find_coordinates(rows, n_components, method, np.random.default_rng(0))
    assert z.shape == (300, n_components)
    quantiles = ndtri((np.arange(300) + 0.5) / 300)
    np.testing.assert_array_equal(np.sort(z, axis=0), np.repeat(quantiles[:, None], z.shape[1], 1))
    # Ranks of uncorrelated scores may correlate a little.
    correlations = np.corrcoef(z.T).reshape(n_components, n_components)
    assert np.all(np.abs(correlations - np.eye(n_components)) < 0.3)


def test_gaussianize_keeps_the_order_of_one_column() -> None:
    scores = np.random.default_rng(0).standard_normal((50, 1)) ** 3
    z = gaussianize(scores, np.random.default_rng(1))
    np.testing.assert_array_equal(np.argsort(z[:, 0]), np.argsort(scores[:, 0]))


def test_gaussianize_breaks_ties_by_chance() -> None:
    scores = np.zeros((40, 1))
    first, second = (gaussianize(scores, np.random.default_rng(seed)) for seed in (0, 1))
    assert np.all(np.sort(first, axis=0) == np.sort(second, axis=0))
    assert not np.array_equal(first, second)


def test_tree_orders_a_line_and_a_closed_curve() -> None:
    rng = np.random.default_rng(0)
    line = rng.standard_normal((200, 1))
    z = find_coordinates(line, 1, "tree", rng)[:, 0]
    assert np.isclose(
        abs(np.corrcoef(np.argsort(np.argsort(line[:, 0])), z)[0, 1]), 0.98, atol=0.02
    )
    order = np.argsort(z)
    assert np.all(np.diff(line[order, 0]) > 0) or np.all(np.diff(line[order, 0]) < 0)

    angle = np.sort(rng.uniform(0.0, 2.0 * np.pi, 200))
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    order = np.argsort(find_coordinates(ring, 1, "tree", rng)[:, 0])
    steps = np.diff(order) % 200
    assert np.all(steps == 1) or np.all(steps == 199)  # once around, one way


def test_tree_gives_each_cluster_a_stretch_of_its_own() -> None:
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [10.0, 0.0], [5.0, 8.0]])
    labels = np.repeat(np.arange(3), 40)
    rows = centers[labels] + 0.1 * rng.standard_normal((120, 2))
    order = np.argsort(find_coordinates(rows, 1, "tree", rng)[:, 0])
    assert np.count_nonzero(np.diff(labels[order])) <= 4


def test_isomap_unrolls_the_s_curve() -> None:
    points, t = make_s_curve(600, noise=0.0, random_state=0)
    z = find_coordinates(standardize(points), 2, "isomap", np.random.default_rng(0))
    assert abs(np.corrcoef(z[:, 0], t)[0, 1]) > 0.95
    assert abs(np.corrcoef(z[:, 1], points[:, 1])[0, 1]) > 0.9


def test_pca_scores_are_the_principal_ones() -> None:
    rows = np.random.default_rng(0).standard_normal((60, 4)) * [3.0, 2.0, 1.0, 0.5]
    axes, variances = principal_axes(rows, 2)
    _, singular, right = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(variances, singular[:2] ** 2 / 60, rtol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(axes.T * right[:2], axis=1)), 1.0, rtol=1e-12)


def test_tree_asked_for_two_dimensions_is_isomap() -> None:
    rows = standardize(circle(0, 100))
    tree, isomap = (
        find_coordinates(rows, 2, method, np.random.default_rng(3)) for method in ("tree", "isomap")
    )
    np.testing.assert_array_equal(tree, isomap)


@pytest.mark.parametrize("n_features", [1, 2, 7])
def test_spanning_tree_is_minimal(n_features: int) -> None:
    rows = np.random.default_rng(n_features).standard_normal((80, n_features))
    distances = cdist(rows, rows)
    parents, children = _spanning_tree(distances)
    assert sorted(children) == list(range(1, 80))
    reference = minimum_spanning_tree(distances).sum()
    assert np.isclose(distances[parents, children].sum(), reference, rtol=1e-12)


def test_neighborhood_graph_has_the_distances_once() -> None:
    rows = np.concatenate([circle(0, 40), circle(1, 40) + 100.0])
    distances = cdist(rows, rows)
    graph = _neighborhood_graph(distances).tocoo()
    np.testing.assert_array_equal(graph.data, distances[graph.row, graph.col])


def test_independent_directions_are_found() -> None:
    rng = np.random.default_rng(0)
    sources = rng.uniform(size=(600, 4))
    rows = standardize(sources @ rng.normal(size=(4, 6)))
    z = find_coordinates(rows, 4, "independent", np.random.default_rng(1))
    agreement = np.abs(np.corrcoef(z.T, sources.T)[:4, 4:])
    assert np.all(agreement.max(axis=0) > 0.9)


def test_a_sheet_and_what_it_leaves_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    points, along = make_s_curve(500, random_state=0)
    others = 0.3 * rng.normal(size=(500, 2))
    rows = np.column_stack([standardize(points), others])
    z = find_coordinates(rows, 4, "sheet", np.random.default_rng(1))
    agreement = np.abs(np.corrcoef(z.T, np.column_stack([along, others]).T)[:4, 4:])
    assert agreement[:2, 0].max() > 0.9
    assert np.all(agreement[2:, 1:].max(axis=0) > 0.6)
