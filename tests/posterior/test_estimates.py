"""More than three latent dimensions: densities are estimates, and their errors are told."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import special_ortho_group

from skdgn import PiecewiseAffineDGN
from skdgn._network import Network
from skdgn._noise.gaussian import Noise
from skdgn._posterior.listed.conditionals import condition
from skdgn._posterior.listed.frames import choose_frame
from tests.networks import random_network
from tests.reference import simplices

# Standard errors that an error may amount to.  The estimate of a standard error has an error, too:
# eight shifts tell it to a quarter.
TIMES_ERROR = 5.0
# Errors below this need not be known.
SMALL_ERROR = 2e-4
# A sample's error is that asked for by integration_tol, 0.01, or half as large again.
LARGEST_ERROR = 0.015
# Moments come from the same points, in units of the posterior's deviation.
MOMENT_ERROR = 0.02

NOISE = 0.3


def model_of(coefs: list, intercepts: list, noise: float = NOISE) -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN.from_network(
        coefs, intercepts, noise, activation="leaky_relu", negative_slope=0.1
    )


def block_diagonal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.block([[a, np.zeros((len(a), b.shape[1]))], [np.zeros((len(b), a.shape[1])), b]])


def side_by_side(one: Network, two: Network, turn: np.ndarray) -> PiecewiseAffineDGN:
    """Two networks as one, that take different coordinates of ``turn @ z``."""
    coefs = [block_diagonal(a, b) for a, b in zip(one.coefs, two.coefs, strict=True)]
    coefs[0] = coefs[0] @ turn
    pairs = zip(one.intercepts, two.intercepts, strict=True)
    return model_of(coefs, [np.concatenate(pair) for pair in pairs])


@pytest.mark.parametrize("n_components", [4, 5])
def test_networks_side_by_side_have_the_product_of_their_densities(n_components: int) -> None:
    networks = [
        random_network(s, (4, 2), n_features=3, activation="leaky_relu", seed=seed)
        for seed, s in enumerate((2, n_components - 2))
    ]
    turn = special_ortho_group.rvs(n_components, random_state=0)
    model = side_by_side(*networks, turn)
    rows, _ = model.sample(24, random_state=0)
    rows[-6:] += 3.0 * np.sign(rows[-6:])  # outliers, too
    parts = [model_of(network.coefs, network.intercepts) for network in networks]
    posteriors = [
        part.posterior(x) for part, x in zip(parts, np.split(rows, 2, axis=1), strict=True)
    ]
    expected = sum(
        p.score_samples(x) for p, x in zip(parts, np.split(rows, 2, axis=1), strict=True)
    )

    posterior = model.posterior(rows)
    errors = posterior.log_density_error
    assert errors.max() < LARGEST_ERROR
    differences = np.abs(model.score_samples(rows) - expected)
    assert np.all(differences < TIMES_ERROR * np.maximum(errors, SMALL_ERROR))
    means = np.concatenate([part.mean for part in posteriors], axis=1)
    covariances = np.array(
        [block_diagonal(a, b) for a, b in zip(*(p.covariance for p in posteriors), strict=True)]
    )
    whiten = np.linalg.inv(np.linalg.cholesky(covariances))
    mean_errors = np.einsum("nst,nt->ns", whiten, posterior.mean @ turn.T - means)
    assert np.sqrt(np.mean(mean_errors**2)) < MOMENT_ERROR
    turned = turn @ posterior.covariance @ turn.T
    covariance_errors = whiten @ (turned - covariances) @ np.swapaxes(whiten, 1, 2)
    assert np.sqrt(np.mean(covariance_errors**2)) < 2.0 * MOMENT_ERROR


@pytest.mark.parametrize("n_components", [4, 5])
def test_densities_equal_those_of_monte_carlo(n_components: int) -> None:
    network = random_network(
        n_components, (5, 3), n_features=2, activation="leaky_relu", seed=n_components
    )
    model = model_of(network.coefs, network.intercepts, noise=1.0)
    rows, _ = model.sample(10, random_state=1)
    latent = np.random.default_rng(2).standard_normal((400_000, n_components))
    images = network.forward(latent)
    log_density = model.score_samples(rows)
    errors = model.posterior(rows).log_density_error
    for row, value, error in zip(rows, log_density, errors, strict=True):
        draws = np.exp(-0.5 * ((row - images) ** 2).sum(axis=1)) / (2.0 * np.pi)
        # Relative to the mean, hence the error of its log.
        monte_carlo_error = draws.std() / draws.mean() / np.sqrt(len(draws))
        assert monte_carlo_error < LARGEST_ERROR
        allowed = TIMES_ERROR * np.hypot(error, monte_carlo_error)
        assert value == pytest.approx(np.log(draws.mean()), abs=allowed)


def test_densities_equal_those_of_the_papers_route() -> None:
    network = random_network(4, (3,), n_features=3, activation="leaky_relu", seed=3)
    model = model_of(network.coefs, network.intercepts)
    rows, _ = model.sample(2, random_state=0)
    noise = Noise.from_covariance(NOISE, 3)
    conditionals = condition(model.partition_, choose_frame(model.partition_.maps, noise))
    slopes = noise.whiten_maps(model.partition_.maps.slopes)
    facets = model.partition_.cells.facets()
    members = [slice(*pair) for pair in itertools.pairwise(facets.start)]
    posterior = model.posterior(rows)
    for n, row in enumerate(noise.whiten(rows)):
        density, paper_error = 0.0, 0.0
        for r, own in enumerate(members):
            factor = conditionals.factors[r]
            mean = factor @ (conditionals.projections[r] @ (row - conditionals.offsets[r]))
            residual = row - conditionals.offsets[r] - slopes[r] @ mean
            evidence = np.exp(
                conditionals.log_constants[r] - 0.5 * (residual @ residual + mean @ mean)
            )
            integral = simplices.integrate(
                facets.normals[own], facets.offsets[own], mean, factor @ factor.T
            )
            density += evidence * integral.mass
            paper_error += evidence * integral.error
        error = max(posterior.log_density_error[n], SMALL_ERROR)
        allowed = TIMES_ERROR * error + 4.0 * paper_error / density
        assert model.score_samples(rows[n : n + 1])[0] == pytest.approx(
            np.log(density), abs=allowed
        )


def test_prior_masses_sum_to_one_as_precisely_as_they_say() -> None:
    network = random_network(4, (5, 3), activation="leaky_relu", seed=1)
    model = model_of(network.coefs, network.intercepts)
    assert model.weights_.sum() == pytest.approx(1.0)
    points = np.random.default_rng(0).normal(size=(200_000, 4))
    shares = np.bincount(
        model.partition_.locate(network.patterns(points)), minlength=model.n_regions_
    ) / len(points)
    assert np.all(np.abs(shares - model.weights_) < TIMES_ERROR * model.weights_error_ + 1e-4)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_nothing_is_estimated_up_to_three_dimensions(n_components: int) -> None:
    network = random_network(n_components, (4, 2), n_features=3, activation="leaky_relu", seed=1)
    model = model_of(network.coefs, network.intercepts)
    rows, _ = model.sample(5, random_state=0)
    np.testing.assert_array_equal(model.posterior(rows).log_density_error, np.zeros(5))
    np.testing.assert_array_equal(model.weights_error_, np.zeros(model.n_regions_))


def test_rows_far_out_have_finite_densities() -> None:
    network = random_network(4, (5, 3), n_features=3, activation="leaky_relu", seed=1)
    model = model_of(network.coefs, network.intercepts)
    rows, _ = model.sample(3, random_state=0)
    posterior = model.posterior(rows * np.array([[1e2], [1e4], [1e6]]))
    assert np.all(np.isfinite(model.score_samples(rows * 1e4)))
    assert np.all(np.isfinite(posterior.mean))
    assert np.all(np.isfinite(posterior.log_density_error))
