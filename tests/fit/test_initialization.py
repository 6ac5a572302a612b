"""Starting networks."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.datasets import make_s_curve

from skdgn._fit.starts import least_squares as _least_squares
from skdgn._fit.starts.coordinates import (
    METHODS,
)
from skdgn._fit.starts.initialization import (
    MAX_SAMPLES,
    starting_methods,
    starting_network,
)
from skdgn._network import Activation, Architecture
from tests.curves import (
    ACTIVATIONS,
    LEAKY_RELU,
    NOISE,
    RELU,
    Floats,
    circle,
    spiral,
    standardize,
)


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
        standardize(rows),
        Architecture.alike(n_components, hidden, activation),
        method,
        np.random.default_rng(seed),
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
                rows,
                Architecture.alike(n_components, hidden, activation),
                method,
                np.random.default_rng(1),
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
        starting_network(
            rows, Architecture.alike(1, (6, 6), RELU), method, np.random.default_rng(7)
        )
        for _ in range(2)
    )
    for first, second in zip(one.network.coefs, other.network.coefs, strict=True):
        np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(one.coordinates, other.coordinates)
    np.testing.assert_array_equal(one.residual_variances, other.residual_variances)


def test_rows_are_left_alone() -> None:
    rows = standardize(circle(0, 100))
    copy = rows.copy()
    for method, hidden in itertools.product(METHODS, [(), (4,)]):
        starting_network(
            rows, Architecture.alike(1, hidden, RELU), method, np.random.default_rng(0)
        )
    np.testing.assert_array_equal(rows, copy)


def test_many_rows_are_sampled() -> None:
    rows = standardize(circle(0, MAX_SAMPLES + 500))
    start = starting_network(
        rows, Architecture.alike(1, (8,), RELU), "pca", np.random.default_rng(0)
    )
    assert len(np.unique(start.sample)) == MAX_SAMPLES
    np.testing.assert_allclose(
        np.mean((rows[start.sample] - start.network.forward(start.coordinates)) ** 2, axis=0),
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


def test_no_unit_is_dead() -> None:
    for seed in range(5):
        rows = standardize(circle(seed, 400))
        start = starting_network(
            rows, Architecture.alike(1, (6, 6), RELU), "tree", np.random.default_rng(seed)
        )
        assert start.network.patterns(start.coordinates).any(axis=0).all()


@pytest.mark.parametrize("hidden", [(8,), (5, 7), (4, 4, 4)])
def test_weights_are_balanced(hidden: tuple[int, ...]) -> None:
    rows = standardize(circle(0, 300))
    network = starting_network(
        rows, Architecture.alike(1, hidden, LEAKY_RELU), "tree", np.random.default_rng(0)
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
    start = starting_network(
        rows, Architecture.alike(2, (), RELU), "tree", np.random.default_rng(0)
    )
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
    start = starting_network(rows, Architecture.alike(3, (), RELU), "pca", np.random.default_rng(0))
    assert np.all(start.network.coefs[0][:, 2] == 0.0)
    assert np.all(start.residual_variances > 0.0)


def test_starting_methods() -> None:
    assert starting_methods(Architecture.alike(1, (8,), RELU))[0] == "tree"
    for n_components in (1, 2, 5):
        assert set(starting_methods(Architecture.alike(n_components, (8,), RELU))) <= set(METHODS)
    assert "tree" not in starting_methods(Architecture.alike(2, (8,), RELU))
    # Without a hidden layer all methods give the same start.
    assert len(starting_methods(Architecture.alike(1, (), RELU))) == 1
