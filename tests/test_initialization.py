from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from scipy.special import ndtri
from sklearn.datasets import make_s_curve

from skdgn._fit import least_squares as _least_squares
from skdgn._fit.coordinates import (
    METHODS,
    _neighborhood_graph,
    _spanning_tree,
    find_coordinates,
    gaussianize,
    principal_axes,
)
from skdgn._fit.initialization import (
    MAX_ROWS,
    residual_variances,
    starting_methods,
    starting_network,
)
from skdgn._fit.least_squares import _Pairs, _smooth, fit_to_coordinates
from skdgn._network.network import Activation

Floats = NDArray[np.float64]

RELU = Activation.from_name("relu", 0.0)
LEAKY_RELU = Activation.from_name("leaky_relu", 0.1)
ABS = Activation.from_name("abs", 0.0)
ACTIVATIONS = {"relu": RELU, "leaky_relu": LEAKY_RELU, "abs": ABS}

# Deviation of the noise around the test curves.
NOISE = 0.05


def circle(seed: int, n_rows: int = 1000) -> Floats:
    generator = np.random.default_rng(seed)
    angle = generator.uniform(0.0, 2.0 * np.pi, n_rows)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return points + NOISE * generator.standard_normal(points.shape)


def spiral(seed: int, n_rows: int = 1000) -> Floats:
    generator = np.random.default_rng(seed)
    t = generator.uniform(0.0, 1.0, n_rows)
    points = 2.0 * t[:, None] * np.stack([np.cos(3 * np.pi * t), np.sin(3 * np.pi * t)], axis=1)
    return points + NOISE * generator.standard_normal(points.shape)


def standardize(rows: Floats) -> Floats:
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


def start_residual(
    rows: Floats,
    hidden: tuple[int, ...],
    activation: Activation,
    *,
    method: str = "tree",
    n_components: int = 1,
    seed: int = 0,
) -> float:
    """Root mean squared residual of a start, per feature and in the units of the rows."""
    start = starting_network(
        standardize(rows), n_components, hidden, activation, method, np.random.default_rng(seed)
    )
    return float(np.sqrt(np.mean(start.residual_variances * rows.var(axis=0))))


def degenerate_rows() -> dict[str, Floats]:
    rng = np.random.default_rng(0)
    normal = rng.standard_normal
    return {
        "one row": normal((1, 3)),
        "one number": np.zeros((1, 1)),
        "two rows": normal((2, 3)),
        "three rows": normal((3, 2)),
        "all zero": np.zeros((50, 3)),
        "all one": np.ones((30, 2)),
        "constant column": np.column_stack([normal((50, 2)), np.zeros(50)]),
        "duplicates": np.repeat(normal((5, 2)), 40, axis=0),
        "one feature": normal((100, 1)),
        "more features than rows": normal((20, 100)),
        "two clusters": np.concatenate([0.01 * normal((50, 2)), 5.0 + 0.01 * normal((50, 2))]),
        "binary": rng.integers(0, 2, (200, 4)).astype(float),
        "on a line": np.outer(np.arange(20.0), [1.0, 2.0]),
        "tiny": 1e-200 * normal((30, 2)),
        "outlier": np.concatenate([normal((99, 2)), [[1e6, 1e6]]]),
    }


DEGENERATE = degenerate_rows()


# Coordinates


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


# Networks


@pytest.mark.parametrize("name", sorted(DEGENERATE))
@pytest.mark.parametrize("hidden", [(), (5,), (1, 1), (3, 3)])
def test_degenerate_rows(
    name: str, hidden: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rounds in ("SHALLOW_ROUNDS", "DEEP_ROUNDS"):
        monkeypatch.setattr(_least_squares, rounds, ((2, 3), (1, 4)))  # the same paths, sooner
    rows = DEGENERATE[name]
    cases = itertools.product((1, 3), METHODS)
    for (n_components, method), activation in zip(
        cases, itertools.cycle(ACTIVATIONS.values()), strict=False
    ):
        with np.errstate(all="raise", under="ignore"):
            start = starting_network(
                rows, n_components, hidden, activation, method, np.random.default_rng(1)
            )
        assert start.network.hidden_layer_sizes == hidden
        assert start.network.n_components == n_components
        assert start.network.n_features == rows.shape[1]
        assert start.coordinates.shape == (len(rows), n_components)
        for array in (*start.network.coefs, *start.network.intercepts, start.coordinates):
            assert np.all(np.isfinite(array))
        # Never worse than the mean alone.
        assert np.all(start.residual_variances >= 0.0)
        assert np.all(start.residual_variances <= rows.var(axis=0) * (1.0 + 1e-6) + 1e-12)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_same_generator_same_start(method: str) -> None:
    rows = standardize(circle(0, 150))
    one, other = (
        starting_network(rows, 1, (6, 6), RELU, method, np.random.default_rng(7)) for _ in range(2)
    )
    for first, second in zip(one.network.coefs, other.network.coefs, strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(one.coordinates, other.coordinates)
    np.testing.assert_array_equal(one.residual_variances, other.residual_variances)


def test_rows_are_left_alone() -> None:
    rows = standardize(circle(0, 100))
    copy = rows.copy()
    for method, hidden in itertools.product(METHODS, [(), (4,)]):
        starting_network(rows, 1, hidden, RELU, method, np.random.default_rng(0))
    np.testing.assert_array_equal(rows, copy)


def test_many_rows_are_sampled() -> None:
    rows = standardize(circle(0, MAX_ROWS + 500))
    start = starting_network(rows, 1, (8,), RELU, "pca", np.random.default_rng(0))
    assert len(np.unique(start.sample)) == MAX_ROWS
    np.testing.assert_allclose(
        residual_variances(start.network, start.coordinates, rows[start.sample]),
        start.residual_variances,
    )


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("activation", [RELU, LEAKY_RELU], ids=lambda a: a.name)
def test_narrow_deep_network_fits_the_circle(activation: Activation, seed: int) -> None:
    assert start_residual(circle(seed), (8, 8), activation, seed=seed) < 0.06


@pytest.mark.parametrize(("hidden", "limit"), [((32,), 0.05), ((16, 16), 0.05), ((3, 3), 0.1)])
@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=lambda a: a.name)
def test_circle(activation: Activation, hidden: tuple[int, ...], limit: float) -> None:
    assert start_residual(circle(0), hidden, activation) < limit


@pytest.mark.parametrize("method", ["tree", "isomap"])
def test_spiral(method: str) -> None:
    assert start_residual(spiral(0), (16, 16), LEAKY_RELU, method=method) < 0.06


def test_s_curve() -> None:
    rows = make_s_curve(1000, noise=NOISE, random_state=0)[0]
    residual = start_residual(rows, (32,), RELU, method="isomap", n_components=2)
    assert residual < 0.07


def test_many_features() -> None:
    rng = np.random.default_rng(0)
    rows = circle(0) @ rng.standard_normal((2, 64)) + NOISE * rng.standard_normal((1000, 64))
    assert start_residual(rows, (8, 16), LEAKY_RELU) < 2.0 * NOISE


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=lambda a: a.name)
def test_fit_recovers_what_a_network_can_represent(activation: Activation) -> None:
    z = np.random.default_rng(0).standard_normal((500, 1))
    rows = np.column_stack([np.abs(z), np.abs(z - 1.0) - z])
    network = fit_to_coordinates(z, rows, (6,), activation, np.random.default_rng(0))
    # Up to neighbors averaged across a kink, and the ridge.
    assert np.all(residual_variances(network, z, rows) < 1e-3 * rows.var(axis=0))


def test_no_unit_is_dead() -> None:
    for seed in range(5):
        rows = standardize(circle(seed, 400))
        start = starting_network(rows, 1, (6, 6), RELU, "tree", np.random.default_rng(seed))
        assert start.network.patterns(start.coordinates).any(axis=0).all()


@pytest.mark.parametrize("hidden", [(8,), (5, 7), (4, 4, 4)])
def test_weights_are_balanced(hidden: tuple[int, ...]) -> None:
    rows = standardize(circle(0, 300))
    network = starting_network(
        rows, 1, hidden, LEAKY_RELU, "tree", np.random.default_rng(0)
    ).network
    for layer in range(len(hidden)):
        before = np.hypot(np.linalg.norm(network.coefs[layer], axis=1), network.intercepts[layer])
        behind = np.linalg.norm(network.coefs[layer + 1], axis=0)
        np.testing.assert_allclose(before, behind, rtol=0.05)


def test_wide_networks_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_least_squares, "WORK", 0.0)
    assert start_residual(circle(0), (64,), RELU) < 0.06


# No hidden layer


def test_without_hidden_layer_it_is_probabilistic_pca() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((500, 2)) @ rng.standard_normal((2, 5))
    rows = standardize(rows + 0.3 * rng.standard_normal((500, 5)))
    start = starting_network(rows, 2, (), RELU, "tree", np.random.default_rng(0))
    loadings = start.network.coefs[0]
    covariance = np.cov(rows.T, bias=True)
    values = np.linalg.eigvalsh(covariance)[::-1]
    noise = values[2:].mean()
    np.testing.assert_allclose(
        np.linalg.eigvalsh(loadings @ loadings.T)[::-1][:2], values[:2] - noise, rtol=1e-10
    )
    np.testing.assert_allclose(start.residual_variances.mean(), noise, rtol=1e-10)
    np.testing.assert_allclose(
        start.residual_variances + np.sum(loadings**2, axis=1), np.diag(covariance), rtol=1e-10
    )


def test_without_hidden_layer_and_feature_to_spare() -> None:
    rows = standardize(np.random.default_rng(0).standard_normal((100, 2)))
    start = starting_network(rows, 3, (), RELU, "pca", np.random.default_rng(0))
    assert np.all(start.network.coefs[0][:, 2] == 0.0)
    assert np.all(start.residual_variances > 0.0)


def test_starting_methods() -> None:
    assert starting_methods(1, (8,))[0] == "tree"
    for n_components in (1, 2, 5):
        assert set(starting_methods(n_components, (8,))) <= set(METHODS)
    assert "tree" not in starting_methods(2, (8,))
    # Without a hidden layer all methods give the same start.
    assert len(starting_methods(1, ())) == 1


def test_hopeless_search_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    n_steps = []
    improve = _least_squares._improve
    monkeypatch.setattr(
        _least_squares,
        "_improve",
        lambda fit, pairs, steps: n_steps.append(steps) or improve(fit, pairs, steps),
    )
    rows = standardize(circle(0, 300))
    arguments = (rows, 1, (8, 8), RELU, "pca")
    full = starting_network(*arguments, np.random.default_rng(0))
    n_full = sum(n_steps)
    # Another start that explains almost all: principal scores of a circle never will.
    early = starting_network(*arguments, np.random.default_rng(0), 0.01)
    assert sum(n_steps) - n_full < 0.6 * n_full
    # The same as without a rival while there is hope.
    hopeful = starting_network(
        *arguments, np.random.default_rng(0), float(full.residual_variances.mean())
    )
    assert early.network.hidden_layer_sizes == full.network.hidden_layer_sizes
    np.testing.assert_array_equal(hopeful.network.coefs[0], full.network.coefs[0])


def test_smoothing_keeps_what_is_linear() -> None:
    generator = np.random.default_rng(0)
    for n_components, n_pairs in ((1, 40), (2, 60), (3, 5), (2, 1)):
        latent = generator.standard_normal((n_pairs, n_components))
        weights = generator.standard_normal((n_components, 3))
        smooth = _smooth(_Pairs(latent, latent @ weights + 1.0))
        np.testing.assert_allclose(smooth.targets, smooth.latent @ weights + 1.0, atol=1e-12)


def test_smoothing_takes_out_noise() -> None:
    generator = np.random.default_rng(0)
    latent = np.sort(generator.standard_normal((200, 1)), axis=0)
    noise = generator.standard_normal((200, 1))
    smooth = _smooth(_Pairs(latent, noise))
    # Weights 1/2, 1/4, 1/4, twice: about 0.3 of the variance is left.
    assert smooth.targets.var() < 0.5 * noise.var()
