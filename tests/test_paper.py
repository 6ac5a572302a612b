"""Formulas of the paper that are wrong as printed, beside what the package uses.

Balestriero, Paris, Baraniuk, *Analytical Probability Distributions and EM-Learning for Deep
Generative Networks*, 2020.  Notation as there: A, b maps of a region, e0, e1, E2 moments of the
posterior over it.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from skdgn import PiecewiseAffineDGN
from skdgn._fit.em.loop import Problem, State
from skdgn._fit.m_step.maximization import gradient, linearize, maximize_noise
from skdgn._fit.m_step.weight_priors import WeightPrior
from skdgn._network import Network
from skdgn._noise.gaussian import Noise
from skdgn._runtime.workers import Workers
from tests.networks import random_network, with_weights
from tests.reference.simplices import integrate

NOISE = np.array([[0.5, 0.1, 0.0], [0.1, 0.3, -0.1], [0.0, -0.1, 0.4]])


@pytest.fixture(scope="module")
def state() -> State:
    """An E-step for a network 1-4-3-3."""
    rows = 1.5 * np.random.default_rng(3).normal(size=(30, 3))
    prior = WeightPrior(None, 1.0, np.ones(3))
    problem = Problem(rows, np.ones(30), "full", 0, np.full(3, 1e-6), prior, 1000, Workers())
    network = random_network(1, (4, 3), activation="leaky_relu", seed=5)
    return problem.evaluate(network, Noise.from_covariance(NOISE, 3))


def downstream_of(network: Network, patterns: np.ndarray, layer: int) -> np.ndarray:
    """The paper's A^(l + 1 -> L) Q^l: from a hidden layer's pre-activations to the output."""
    sides = network.split_patterns(patterns)[1::2]
    matrices = network.coefs[-1] * network.activations[0].slopes(sides[-1])[:, None, :]
    for hidden in reversed(range(layer, len(network.hidden_layer_sizes) - 1)):
        slopes = network.activations[0].slopes(sides[hidden])
        matrices = matrices @ network.coefs[hidden + 1] * slopes[:, None, :]
    return matrices


def steepness(state: State, network: Network, layer: int) -> np.ndarray:
    """Gradient, by a layer's [W v], of the expected log-likelihood: zero at its maximum."""
    moved = linearize(state.statistics, network, state.noise, state.partition.patterns)
    return gradient(moved, layer).reshape(len(network.intercepts[layer]), -1)


def test_a_region_is_not_where_the_paper_says(state):
    network = state.network
    latent = np.linspace(-3.0, 3.0, 50)[:, None]
    patterns = network.patterns(latent)
    signs = np.where(patterns, 1.0, -1.0)
    layers = network.maps(patterns)[1:4:2]
    # (what leads into the first layer is the same for all points, and there once)
    slopes = np.concatenate(
        [np.broadcast_to(m.slopes, (50, *m.slopes.shape[1:])) for m in layers], axis=1
    )[:, :, 0]
    offsets = np.concatenate(
        [np.broadcast_to(m.offsets, (50, m.offsets.shape[1])) for m in layers], axis=1
    )
    assert np.all(signs * (slopes * latent + offsets) > 0.0)
    as_printed = slopes * latent < -signs * offsets  # Corollary 1
    assert not np.any(as_printed.all(axis=1))


@pytest.mark.parametrize("layer", [0, 1])
def test_the_bias_update_needs_the_weights_of_the_regions(state, layer):
    network, patterns, statistics = state.network, state.partition.patterns, state.statistics
    behind = downstream_of(network, patterns, layer)
    maps = network.maps(patterns)[-1]
    without = maps.offsets - behind @ network.intercepts[layer]
    residuals = (
        statistics.data
        - statistics.weights[:, None] * without
        - np.einsum("rds,rs->rd", maps.slopes, statistics.first)
    )
    precision = np.linalg.inv(NOISE)
    target = np.einsum("rdu,de,re->u", behind, precision, residuals)
    squares = np.einsum("rdu,de,rev->ruv", behind, precision, behind)

    def steepness_at(matrix):
        intercepts = list(network.intercepts)
        intercepts[layer] = np.linalg.solve(matrix, target)
        moved = with_weights(network, intercepts=intercepts)
        return np.abs(steepness(state, moved, layer)[:, -1]).max()

    before = np.abs(steepness(state, network, layer)[:, -1]).max()
    # Section 4.2 and the appendix's summary: every region counts once for every row.
    assert steepness_at(squares.sum(axis=0) * statistics.total_weight) > 0.1 * before
    # The appendix's derivation, and the package: by its share e0.
    assert steepness_at(np.einsum("ruv,r->uv", squares, statistics.weights)) < 1e-9 * before


@pytest.mark.parametrize("layer", [0, 1])
def test_the_weight_update_of_the_derivation_is_right(state, layer):
    network, patterns, statistics = state.network, state.partition.patterns, state.statistics
    behind = downstream_of(network, patterns, layer)
    maps = network.maps(patterns)
    maps, ahead = maps[-1], maps[2 * layer]
    precision = np.linalg.inv(NOISE)
    # The features before the layer, their sums over the rows (z hat) and those with x.
    features = np.concatenate([ahead.slopes, ahead.offsets[:, :, None]], axis=2)
    latent = np.zeros((len(patterns), 2, 2))
    latent[:, :1, :1], latent[:, 1, 1] = statistics.second, statistics.weights
    latent[:, :1, 1] = latent[:, 1, :1] = statistics.first
    second = features @ latent @ np.swapaxes(features, 1, 2)
    first = features @ latent[:, :, 1:]
    with_x = np.concatenate([statistics.cross, statistics.data[:, :, None]], axis=2)
    with_x = with_x @ np.swapaxes(features, 1, 2)
    # What the layer's own weights do not reach: biases of it and of all layers behind.
    bare = maps.offsets - np.einsum("rdu,uv,rv->rd", behind, network.coefs[layer], ahead.offsets)
    target = with_x - bare[:, :, None] * np.swapaxes(first, 1, 2)
    target = np.einsum("rdu,de,rev->uv", behind, precision, target)
    squares = np.einsum("rdu,de,rev->ruv", behind, precision, behind)
    matrix = sum(np.kron(*pair) for pair in zip(squares, second, strict=True))

    coefs = list(network.coefs)
    coefs[layer] = np.linalg.lstsq(matrix, target.ravel())[0].reshape(coefs[layer].shape)
    moved = with_weights(network, coefs)
    before = np.abs(steepness(state, network, layer)[:, :-1]).max()
    assert np.abs(steepness(state, moved, layer)[:, :-1]).max() < 1e-9 * before


def test_the_noise_update_is_not_symmetric_as_printed(state):
    patterns, statistics = state.partition.patterns, state.statistics
    maps = state.network.maps(patterns)[-1]
    images = np.einsum("rds,rs->rd", maps.slopes, statistics.first)  # A e1
    offsets = statistics.weights[:, None] * maps.offsets  # b e0
    with_x = np.einsum("rds,res->de", statistics.cross, maps.slopes)
    with_x += statistics.data.T @ maps.offsets  # sum of x g'
    printed = (
        statistics.squares
        + maps.offsets.T @ (offsets + 2.0 * images)
        - 2.0 * with_x
        + np.einsum("rds,rst,ret->de", maps.slopes, statistics.second, maps.slopes)
    ) / statistics.total_weight
    assert np.abs(printed - printed.T).max() > 0.1
    floors = np.full(3, 1e-12)
    ours = maximize_noise(statistics, state.network, patterns, state.noise, floors).covariance
    np.testing.assert_allclose(0.5 * (printed + printed.T), ours, rtol=1e-10)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_the_sign_in_the_second_moment(sign):
    lower = np.array([0.3, -0.5])
    covariance = np.array([[1.0, 0.6], [0.6, 2.0]])
    variances = np.diag(covariance)
    # F and G of the appendix, G with zeros on its diagonal.
    conditional = variances[::-1] - covariance[0, 1] ** 2 / variances
    centers = covariance[0, 1] / variances * lower
    tails = norm.sf(lower[::-1], centers, np.sqrt(conditional))
    ridge = norm.pdf(lower, scale=np.sqrt(variances)) * tails
    corner = multivariate_normal([0.0, 0.0], covariance).pdf(lower)
    corners = corner * np.array([[0.0, 1.0], [1.0, 0.0]])
    fraction = (lower * ridge + sign * (covariance * corners).sum(axis=1)) / variances
    exact = integrate(np.eye(2), lower, np.zeros(2), covariance)
    second = exact.mass * covariance + covariance @ (corners + np.diag(fraction)) @ covariance
    np.testing.assert_allclose(covariance @ ridge, exact.first, rtol=1e-10)
    is_right = np.allclose(second, exact.second, rtol=1e-10)
    assert is_right == (sign < 0.0)  # the lemma has a minus, its proof a plus


def line_with_a_bend() -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN.from_network(
        [[[1.0]], [[1.0], [2.0]]], [[-0.5], [0.3, -0.2]], 0.2, activation="leaky_relu"
    )


def test_a_network_is_not_the_mixture_of_its_regions():
    model = line_with_a_bend()
    row = np.array([0.4, 0.9])
    maps = model.partition_.maps
    mixture = sum(
        weight * multivariate_normal(offset, 0.2 * np.eye(2) + slope @ slope.T).pdf(row)
        for weight, slope, offset in zip(model.weights_, maps.slopes, maps.offsets, strict=True)
    )

    def joint(z: float) -> float:
        image = model.inverse_transform([[z]])[0]
        return float(norm.pdf(z) * norm.pdf(row, image, np.sqrt(0.2)).prod())

    density = quad(joint, -12.0, 12.0, points=[0.5], epsabs=0.0, epsrel=1e-10)[0]
    assert model.score_samples([row])[0] == pytest.approx(np.log(density), abs=1e-9)
    assert abs(np.log(mixture) - np.log(density)) > 0.1  # Proposition 1, taken by its words


def test_the_share_of_a_region_needs_its_conditional_mean():
    model = line_with_a_bend()
    row = np.array([[0.4, 0.9]])
    maps = model.partition_.maps
    variances = 1.0 / (1.0 + (maps.slopes[:, :, 0] ** 2).sum(axis=1) / 0.2)
    means = variances * ((row - maps.offsets) * maps.slopes[:, :, 0]).sum(axis=1) / 0.2
    evidence = np.array(
        [
            multivariate_normal(offset, 0.2 * np.eye(2) + slope @ slope.T).pdf(row[0])
            for slope, offset in zip(maps.slopes, maps.offsets, strict=True)
        ]
    )

    def shares(centers: np.ndarray) -> np.ndarray:
        below = norm.cdf(0.5, centers, np.sqrt(variances))
        is_below = model.partition_.cells.interior_points()[:, 0] < 0.5
        return evidence * np.where(is_below, below, 1.0 - below)

    ours = model.predict_proba(row)[0]
    exact = shares(means) / shares(means).sum()
    np.testing.assert_allclose(ours, exact, rtol=1e-12)
    as_printed = shares(np.zeros(2)) / shares(means).sum()  # Theorem 2: e0 of the region itself
    assert np.abs(as_printed - exact).max() > 0.1


def test_the_prior_vanishes_beside_vanishing_noise():
    model = line_with_a_bend()
    row = np.array([[1.4, 0.1]])
    latent = np.linspace(-2.0, 2.0, 400_001)
    squares = ((row - model.inverse_transform(latent[:, None])) ** 2).sum(axis=1)
    nearest = latent[np.argmin(squares)]
    penalized = latent[np.argmin(squares + latent**2)]  # z* as the paper defines it
    quiet = PiecewiseAffineDGN.from_network(
        model.coefs_, model.intercepts_, 1e-10, activation="leaky_relu"
    )
    assert quiet.posterior(row).mode()[0, 0] == pytest.approx(nearest, abs=1e-5)
    assert model.posterior(row).mode(zero_noise=True)[0, 0] == pytest.approx(nearest, abs=1e-5)
    assert abs(penalized - nearest) > 0.05
