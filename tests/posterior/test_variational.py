"""Exact lower bounds and divergences of Gaussians, against quadrature and identities."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats

from skdgn._estimators.network import PiecewiseAffineDGN
from skdgn._network import Network
from tests.networks import random_network

VARIANCE = 0.3
IDENTITY_ERROR = 1e-10
QUADRATURE_ERROR = 1e-8
NODES, WEIGHTS = np.polynomial.legendre.leggauss(60)
# Deviations from the mean beyond which a Gaussian has no mass to speak of.
FARTHEST = 9.0


def make_model(network: Network) -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN.from_network(
        network.coefs,
        network.intercepts,
        VARIANCE,
        activation=[activation.name for activation in network.activations],
    )


def random_gaussians(n: int, n_components: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    factors = 0.7 * rng.normal(size=(n, n_components, n_components))
    covariances = factors @ np.swapaxes(factors, 1, 2) + 0.05 * np.eye(n_components)
    return rng.normal(size=(n, n_components)), covariances


@pytest.fixture(scope="module", params=[1, 2, 3])
def model(request: pytest.FixtureRequest) -> PiecewiseAffineDGN:
    return make_model(random_network(request.param, (5, 3), activation="relu", seed=3))


def log_joint(network: Network, row: np.ndarray, latent: np.ndarray) -> np.ndarray:
    residuals = row - network.forward(latent)
    n_features, n_components = len(row), latent.shape[1]
    return (
        -0.5 * (residuals**2).sum(axis=1) / VARIANCE
        - 0.5 * (latent**2).sum(axis=1)
        - 0.5 * n_features * np.log(2.0 * np.pi * VARIANCE)
        - 0.5 * n_components * np.log(2.0 * np.pi)
    )


def panels(breaks: np.ndarray, lower: float, upper: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss rules between breaks."""
    inside = breaks[(breaks > lower) & (breaks < upper)]
    ends = np.concatenate([[lower], np.sort(inside), [upper]])
    middles, halves = 0.5 * (ends[1:] + ends[:-1]), 0.5 * np.diff(ends)
    nodes = middles[:, None] + halves[:, None] * NODES
    return nodes.ravel(), (halves[:, None] * WEIGHTS).ravel()


def test_lower_bound_against_quadrature_in_one_dimension() -> None:
    # One hidden layer: its kinks are where the units change sign.
    network = random_network(1, (6,), activation="relu", seed=1)
    model = make_model(network)
    rows = model.sample(4, random_state=0)[0]
    means, covariances = random_gaussians(4, 1, seed=2)
    elbo = model.elbo(rows, means, covariances)
    divergences = model.posterior(rows).kl_from(means, covariances)
    kinks = -network.intercepts[0] / network.coefs[0][:, 0]
    for n in range(4):
        deviation = np.sqrt(covariances[n, 0, 0])
        reach = FARTHEST * deviation
        z, weights = panels(kinks, means[n, 0] - reach, means[n, 0] + reach)
        log_q = scipy.stats.norm(means[n, 0], deviation).logpdf(z)
        joint = log_joint(network, rows[n], z[:, None])
        expected = weights @ (np.exp(log_q) * (joint - log_q))
        assert elbo[n] == pytest.approx(expected, abs=QUADRATURE_ERROR)
        reach = np.concatenate([kinks, np.linspace(-8.0, 8.0, 33)])
        z, weights = panels(reach, -12.0, 12.0)
        log_density = np.log(weights @ np.exp(log_joint(network, rows[n], z[:, None])))
        assert divergences[n] == pytest.approx(log_density - expected, abs=QUADRATURE_ERROR)


def test_lower_bound_against_quadrature_in_two_dimensions() -> None:
    network = random_network(2, (3,), activation="leaky_relu", seed=1)
    model = make_model(network)
    rows = model.sample(2, random_state=0)[0]
    means, covariances = random_gaussians(2, 2, seed=2)
    elbo = model.elbo(rows, means, covariances)
    divergences = model.posterior(rows).kl_from(means, covariances)
    normals, values = network.coefs[0], network.intercepts[0]
    # Along the first axis, kinks are where two units change sign at once.
    crossings = np.array(
        [
            np.linalg.solve(normals[list(pair)], -values[list(pair)])[0]
            for pair in itertools.combinations(range(3), 2)
        ]
    )
    for n in range(2):
        q = scipy.stats.multivariate_normal(means[n], covariances[n])
        reach = FARTHEST * np.sqrt(np.diagonal(covariances[n]))
        expected = 0.0
        outer = panels(crossings, means[n, 0] - reach[0], means[n, 0] + reach[0])
        for first, outer_weight in zip(*outer, strict=True):
            kinks = -(values + normals[:, 0] * first) / normals[:, 1]
            second, weights = panels(kinks, means[n, 1] - reach[1], means[n, 1] + reach[1])
            z = np.stack([np.full_like(second, first), second], axis=1)
            log_q = q.logpdf(z)
            terms = np.exp(log_q) * (log_joint(network, rows[n], z) - log_q)
            expected += outer_weight * (weights @ terms)
        assert elbo[n] == pytest.approx(expected, abs=QUADRATURE_ERROR)
        log_density = model.score_samples(rows[n : n + 1])[0]
        assert divergences[n] == pytest.approx(log_density - expected, abs=QUADRATURE_ERROR)


def test_log_density_is_bound_plus_divergence(model: PiecewiseAffineDGN) -> None:
    rows = model.sample(6, random_state=0)[0]
    means, covariances = random_gaussians(6, model.n_components, seed=1)
    posterior = model.posterior(rows)
    divergences = posterior.kl_from(means, covariances)
    assert np.all(divergences > 0.0)
    elbo = model.elbo(rows, means, covariances)
    np.testing.assert_allclose(elbo + divergences, model.score_samples(rows), atol=IDENTITY_ERROR)
    # The moments' Gaussian is closer than these.
    assert np.all(posterior.kl_from(posterior.mean, posterior.covariance) < divergences)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_posterior_of_a_linear_network_is_gaussian(n_components: int) -> None:
    model = make_model(random_network(n_components, (), seed=0))
    rows = np.concatenate([model.sample(3, random_state=0)[0], [[1e6, -1e6, 3e5]]])
    posterior = model.posterior(rows)
    divergences = posterior.kl_from(posterior.mean, posterior.covariance)
    assert np.all(divergences >= 0.0)
    np.testing.assert_allclose(divergences, 0.0, atol=1e-10)
    prior = (
        np.zeros((3, n_components)),
        np.broadcast_to(np.eye(n_components), (3,) + (n_components,) * 2),
    )
    amortization, family = model.variational_gap(rows[:3], *prior)
    np.testing.assert_allclose(family, 0.0, atol=1e-10)
    expected = model.posterior(rows[:3]).kl_from(*prior)
    np.testing.assert_allclose(amortization, expected, atol=1e-10)


def test_gaps_are_those_of_the_best_gaussian(model: PiecewiseAffineDGN) -> None:
    rows = model.sample(2, random_state=1)[0]
    means, covariances = random_gaussians(2, model.n_components, seed=3)
    posterior = model.posterior(rows)
    amortization, family = model.variational_gap(rows, means, covariances)
    divergences = posterior.kl_from(means, covariances)
    np.testing.assert_allclose(amortization + family, divergences, atol=IDENTITY_ERROR)
    assert np.all(amortization >= 0.0)
    assert np.all(family >= 0.0)
    best_means, best_covariances = posterior.best_gaussian("kl", means, covariances)
    np.testing.assert_allclose(posterior.kl_from(best_means, best_covariances), family, atol=1e-9)
    by_moments = posterior.kl_from(*posterior.best_gaussian("moments"))
    assert np.all(family <= by_moments + IDENTITY_ERROR)
    # No Gaussian nearby is better.
    rng = np.random.default_rng(0)
    for _ in range(20):
        shift = 1e-3 * rng.normal(size=best_means.shape)
        stretch = np.eye(model.n_components) + 1e-3 * rng.normal(size=best_covariances.shape)
        nearby = stretch @ best_covariances @ np.swapaxes(stretch, 1, 2)
        assert np.all(posterior.kl_from(best_means + shift, nearby) >= family - IDENTITY_ERROR)


def test_rows_with_holes_are_those_of_the_observed_features() -> None:
    network = random_network(2, (5, 3), activation="relu", seed=3)
    covariance = np.diag([0.1, 0.2, 0.3]) + 0.05
    model = PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, covariance, activation="relu"
    )
    smaller = PiecewiseAffineDGN.from_network(
        [*network.coefs[:-1], network.coefs[-1][[0, 2]]],
        [*network.intercepts[:-1], network.intercepts[-1][[0, 2]]],
        covariance[np.ix_([0, 2], [0, 2])],
        activation="relu",
    )
    rows = model.sample(3, random_state=0)[0]
    rows[:, 1] = np.nan
    gaussians = random_gaussians(3, 2, seed=0)
    observed = rows[:, [0, 2]]
    np.testing.assert_allclose(
        model.elbo(rows, *gaussians), smaller.elbo(observed, *gaussians), rtol=1e-11
    )
    points = np.random.default_rng(0).normal(size=(50, 2))
    np.testing.assert_allclose(
        model.posterior(rows).log_density(points),
        smaller.posterior(observed).log_density(points),
        rtol=1e-9,
        atol=1e-9,
    )


def test_density_of_an_outlier_integrates_to_one() -> None:
    network = random_network(1, (6,), activation="relu", seed=1)
    model = make_model(network)
    posterior = model.posterior([[1e5, -1e5, 3e4]])
    deviation = np.sqrt(posterior.covariance[0, 0, 0])
    kinks = -network.intercepts[0] / network.coefs[0][:, 0]
    reach = 30.0 * deviation
    steps = posterior.mean[0, 0] + np.linspace(-reach, reach, 61)
    z, weights = panels(
        np.concatenate([kinks, steps]), posterior.mean[0, 0] - reach, posterior.mean[0, 0] + reach
    )
    assert weights @ np.exp(posterior.log_density(z[:, None])[0]) == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize(
    ("noise", "mean", "variance"),
    [(1e-3, 0.0, 1e-300), (1e-2, 0.0, 1e-200), (1e-2, 1e300, 1.0), (1e-2, 0.0, 1e300)],
)
def test_the_family_gap_does_not_depend_on_how_bad_a_gaussian_is(
    noise: float, mean: float, variance: float
) -> None:
    # From a vanishing deviation, a step of the search may go beyond the largest number.
    model = PiecewiseAffineDGN.from_network(
        [[[1.0]], [[1.0], [2.0]]], [[0.0], [0.0, 1.0]], noise, activation="abs"
    )
    rows = [[0.1, 1.0]]
    _, expected = model.variational_gap(rows, *model.posterior(rows).best_gaussian())
    assert expected[0] > 1e-3
    amortization, family = model.variational_gap(rows, [[mean]], [[[variance]]])
    np.testing.assert_allclose(family, expected, rtol=1e-6)
    assert amortization[0] > 100.0


def test_gaussians_are_checked(model: PiecewiseAffineDGN) -> None:
    rows = model.sample(2, random_state=0)[0]
    n_components = model.n_components
    means, covariances = random_gaussians(2, n_components, seed=0)
    posterior = model.posterior(rows)
    with pytest.raises(ValueError, match=r"means must have shape .* got shape"):
        posterior.kl_from(means[:1], covariances)
    with pytest.raises(ValueError, match=r"covariances must have shape .* got shape"):
        posterior.kl_from(means, covariances[:1])
    with pytest.raises(ValueError, match=r"covariances must be positive definite, got"):
        posterior.kl_from(means, -covariances)
    with pytest.raises(ValueError, match=r"means must be finite, got nan"):
        posterior.kl_from(np.full_like(means, np.nan), covariances)
    with pytest.raises(ValueError, match=r'criterion must be "kl" or "moments", got'):
        posterior.best_gaussian("best")
    with pytest.raises(ValueError, match=r"Z must have shape .* got shape"):
        posterior.log_density(np.zeros(n_components))
    with pytest.raises(ValueError, match=r"Z must be finite, got inf"):
        posterior.log_density(np.full((1, n_components), np.inf))
