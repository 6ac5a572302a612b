"""Bounds of log densities with four latent dimensions and more contain what is known exactly."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal, special_ortho_group
from sklearn.exceptions import ConvergenceWarning

from skdgn import DGNEnsemble, DGNMixture, PiecewiseAffineDGN
from skdgn._network import Network
from skdgn._noise import Noise
from skdgn._posterior import Model
from skdgn._posterior.bounds import density_bounds
from skdgn._posterior.bounds.density_bounds import BoundSearch
from skdgn._posterior.explored.likelihoods import Likelihood
from skdgn._runtime import Workers
from skdgn.layers import Dense, MaxOut, ReLU
from tests.networks import random_network

N_FEATURES = 4  # of each of the networks side by side


@pytest.fixture(autouse=True)
def _few_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density_bounds, "MOST_BOXES", 2000)


def side_by_side(
    sizes: tuple[int, ...], activation: str = "relu", hidden: tuple[int, ...] = (4,), seed: int = 0
) -> tuple[Network, list[Network]]:
    """Networks with few latent dimensions each, as one that takes coordinates of a rotated z."""
    parts = [
        random_network(size, hidden, n_features=N_FEATURES, activation=activation, seed=seed + n)
        for n, size in enumerate(sizes)
    ]
    coefs = [block_diag(*layers) for layers in zip(*(own.coefs for own in parts), strict=True)]
    coefs[0] = coefs[0] @ special_ortho_group.rvs(sum(sizes), random_state=seed)
    intercepts = [np.concatenate(own) for own in zip(*(p.intercepts for p in parts), strict=True)]
    return Network.from_arrays(coefs, intercepts, parts[0].activations[0]), parts


def exact_log_density(parts: list[Network], covariances: list, rows: np.ndarray) -> np.ndarray:
    total = np.zeros(len(rows))
    for n, (part, covariance) in enumerate(zip(parts, covariances, strict=True)):
        own = np.ascontiguousarray(rows[:, n * N_FEATURES : (n + 1) * N_FEATURES])
        noise = Noise.from_covariance(covariance, N_FEATURES)
        total += Model.build(part, noise).log_density(own, Workers())
    return total


def draw_rows(network: Network, deviation: float, n_rows: int = 3) -> np.ndarray:
    """Some from the model, the last 10 deviations away, one with missing values."""
    rng = np.random.default_rng(0)
    rows = network.forward(rng.normal(size=(n_rows, network.n_components)))
    noise = rng.normal(size=rows.shape)
    noise[-1] *= 10.0 / np.linalg.norm(noise[-1])
    rows += deviation * noise
    rows[1, [0, 1, 5]] = np.nan
    return rows


def check(lower: np.ndarray, exact: np.ndarray, upper: np.ndarray, widest: float) -> None:
    assert np.all(lower <= exact)
    assert np.all(exact <= upper)
    assert np.all(upper - lower < widest)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "abs"])
@pytest.mark.parametrize(("sizes", "deviation"), [((2, 2), 0.3), ((2, 2), 0.03), ((2, 3), 0.3)])
def test_bounds_contain_the_exact_log_density(
    sizes: tuple[int, ...], deviation: float, activation: str
) -> None:
    network, parts = side_by_side(sizes, activation)
    rows = draw_rows(network, deviation)
    model = Model.build(network, Noise.from_covariance(deviation**2, network.n_features))
    lower, upper = model.log_density_bounds(rows, Workers())
    exact = exact_log_density(parts, [deviation**2] * 2, rows)
    check(lower, exact, upper, 60.0)


@pytest.mark.parametrize("kind", ["diag", "full", "factor"])
def test_bounds_hold_for_every_kind_of_noise(kind: str) -> None:
    network, parts = side_by_side((2, 2))
    rows = draw_rows(network, 0.3)
    rng = np.random.default_rng(1)
    if kind == "diag":
        own = [rng.uniform(0.05, 0.2, N_FEATURES) for _ in parts]
        noise = Noise.from_covariance(np.concatenate(own), network.n_features)
        exact = exact_log_density(parts, own, rows)
    else:
        loadings = [0.3 * rng.normal(size=(N_FEATURES, 1)) for _ in parts]
        own = [load @ load.T + 0.1 * np.eye(N_FEATURES) for load in loadings]
        exact = exact_log_density(parts, own, rows)
        covariance = block_diag(*own)
        if kind == "factor":
            covariance = (block_diag(*loadings), np.full(network.n_features, 0.1))
        noise = Noise.from_covariance(covariance, network.n_features)
    lower, upper = Model.build(network, noise).log_density_bounds(rows, Workers())
    check(lower, exact, upper, 5.0)


def test_bounds_hold_with_two_hidden_layers() -> None:
    network, parts = side_by_side((2, 2), hidden=(3, 3))
    rows = draw_rows(network, 0.3)
    model = Model.build(network, Noise.from_covariance(0.09, network.n_features))
    lower, upper = model.log_density_bounds(rows, Workers())
    check(lower, exact_log_density(parts, [0.09] * 2, rows), upper, 20.0)


def test_more_work_narrows_bounds() -> None:
    network, parts = side_by_side((2, 3))
    noise = Noise.from_covariance(0.1, network.n_features)
    (row,) = draw_rows(network, 0.3)[:1]
    exact = exact_log_density(parts, [0.1] * 2, row[None])
    widths = []
    for most_boxes in (0, 500, 4000):
        # Bounds hold wherever the search begins.
        search = BoundSearch(Likelihood(network, noise), most_boxes)
        lower, upper = search.bound(row, float(exact[0]), np.full(5, 0.3), 0.2 * np.eye(5))
        assert lower <= exact[0] <= upper
        widths.append(upper - lower)
    assert widths[0] > 2.0 * widths[1] > 4.0 * widths[2]


def test_what_does_not_bend_is_known_to_rounding() -> None:
    rng = np.random.default_rng(0)
    coef, intercept = rng.normal(size=(6, 4)), rng.normal(size=6)
    rows = rng.normal(size=(3, 6))
    covariance = coef @ coef.T + 0.1 * np.eye(6)
    exact = multivariate_normal.logpdf(rows, intercept, covariance)
    model = PiecewiseAffineDGN.from_network([coef], [intercept], 0.1, activation="relu")
    for bound in model.log_density_bounds(rows):
        np.testing.assert_allclose(bound, exact, rtol=1e-12)
    # Boxes along the axes of the posterior do the same.
    network = Network.dense([coef], [intercept])
    search = BoundSearch(Likelihood(network, Noise.from_covariance(0.1, 6)), 100)
    posterior = np.linalg.inv(np.eye(4) + 10.0 * coef.T @ coef)
    mean = posterior @ coef.T @ (rows[0] - intercept) * 10.0
    lower, upper = search.bound(rows[0], float(exact[0]), mean, posterior)
    assert lower <= exact[0] <= upper
    assert upper - lower < 1e-9


def test_samples_without_values_and_beyond_all_squares() -> None:
    network, parts = side_by_side((2, 2))
    model = PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, 0.1, activation="relu"
    )
    rows = np.zeros((5, network.n_features))
    rows[0] = np.nan
    rows[1] = 1e160
    rows[2:] += np.array([1e2, 1e4, 1e7])[:, None]
    lower, upper = model.log_density_bounds(rows)
    assert lower[0] == upper[0] == 0.0
    assert lower[1] == upper[1] == model.score_samples(rows)[1] == -np.inf
    exact = exact_log_density(parts, [0.1] * 2, rows[2:])
    check(lower[2:], exact, upper[2:], np.inf)
    assert np.all(upper[2:] < 0.1 * exact)
    assert np.all(lower[2:] > 10.0 * exact)


def test_bounds_agree_with_estimates_and_their_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density_bounds, "MOST_BOXES", 6000)
    model = PiecewiseAffineDGN.from_network(
        *(getattr(random_network(4, (6,), n_features=5), name) for name in ("coefs", "intercepts")),
        0.1,
        activation="relu",
    )
    rows, _ = model.sample(3, random_state=0)
    lower, upper = model.log_density_bounds(rows)
    estimates, errors = model.score_samples(rows), model.posterior(rows).log_density_error
    assert np.all(lower <= estimates + 4.0 * errors)
    assert np.all(estimates - 4.0 * errors <= upper)
    assert np.median(upper - lower) < 2.0


def test_sums_of_densities_add_their_bounds() -> None:
    cases = [side_by_side((2, 2), seed=seed) for seed in (0, 5)]
    members = [
        PiecewiseAffineDGN.from_network(own.coefs, own.intercepts, 0.1, activation="relu")
        for own, _ in cases
    ]
    rows = draw_rows(cases[0][0], 0.3)
    weights = np.array([0.25, 0.75])
    terms = [exact_log_density(parts, [0.1] * 2, rows) for _, parts in cases]
    exact = np.logaddexp.reduce(np.log(weights)[:, None] + terms, axis=0)
    lower, upper = DGNEnsemble.from_estimators(members, weights=weights).log_density_bounds(rows)
    check(lower, exact, upper, 15.0)


def test_mixtures_bound_what_they_estimate() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 5))
    network = PiecewiseAffineDGN(4, hidden_layer_sizes=(3,))
    mixture = DGNMixture(network, 2, max_iter=1, refine=False, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(rows)
    lower, upper = mixture.log_density_bounds(rows[:3])
    # Errors of estimates are a hundredth by default.
    check(lower - 0.05, mixture.score_samples(rows[:3]), upper + 0.05, 5.0)


def test_layers_of_other_kinds_are_enclosed() -> None:
    rng = np.random.default_rng(0)
    layers = [
        Dense(8, rng.normal(size=(8, 4)), rng.normal(size=8)),
        MaxOut(2),
        Dense(5, rng.normal(size=(5, 4)), rng.normal(size=5)),
        ReLU(),
    ]
    model = PiecewiseAffineDGN.from_network(layers=layers, noise_covariance=0.5)
    rows, _ = model.sample(4, random_state=0)
    lower, upper = model.log_density_bounds(rows)
    latent = rng.normal(size=(200_000, 4))
    images = model._fitted_model().network.forward(latent)
    squares = np.square(rows[:, None] - images).sum(axis=2) / 0.5
    log_densities = np.logaddexp.reduce(-0.5 * squares, axis=1) - np.log(len(latent))
    log_densities -= 2.5 * np.log(2.0 * np.pi * 0.5)
    # Errors of the averages over draws are below a hundredth or two.
    check(lower - 0.1, log_densities, upper + 0.1, 12.0)
