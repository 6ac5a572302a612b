"""Noise that differs from region to region: everything exact, and equal noise is shared noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import scipy.stats
from scipy.special import logsumexp

from skdgn import PiecewiseAffineDGN
from skdgn._network import Network
from skdgn._noise import COVARIANCE_TYPES
from tests.networks import make_network, random_network
from tests.reference import quadrature
from tests.regional_models import D, covariances_of, model_of

QUADRATURE_ERROR = 1e-8
EQUAL_ERROR = 1e-10
HOLES = [(), (0,), (1, 2), (0, 1, 2), (2,), (), (0, 2), ()]


def rows_with_holes(model: PiecewiseAffineDGN) -> np.ndarray:
    rows = model.sample(len(HOLES), random_state=1)[0]
    rows[-1] += 0.5
    for row, holes in zip(rows, HOLES, strict=True):
        row[list(holes)] = np.nan
    return rows


class Truth(NamedTuple):
    """Brute force over latent space for one row."""

    log_density: float
    log_posterior: np.ndarray  # (k,) of the grid's points
    means: np.ndarray  # (k, missing) given the point
    covariances: np.ndarray  # (R, missing, missing) given the region


class Case(NamedTuple):
    network: Network
    model: PiecewiseAffineDGN
    rows: np.ndarray
    grid: quadrature.Grid
    regions: np.ndarray  # (k,) of the grid's points
    matrices: np.ndarray  # (R, D, D)

    def log_likelihood(self, row: np.ndarray) -> np.ndarray:
        """Log p(x | z) at the grid's points."""
        o = ~np.isnan(row)
        logs = np.zeros(len(self.regions))
        outputs = self.network.forward(self.grid.points)
        for r, matrix in enumerate(self.matrices):
            here = self.regions == r
            if o.any():
                noise = scipy.stats.multivariate_normal(cov=matrix[np.ix_(o, o)])
                logs[here] = noise.logpdf(row[o] - outputs[here][:, o])
        return logs

    def integrate(self, row: np.ndarray) -> Truth:
        o, m = np.flatnonzero(~np.isnan(row)), np.flatnonzero(np.isnan(row))
        log_joint = self.grid.log_weights + self.log_likelihood(row)
        log_density = float(logsumexp(log_joint))
        outputs = self.network.forward(self.grid.points)
        means = outputs[:, m].copy()
        covariances = self.matrices[:, m[:, None], m].copy()
        for r, matrix in enumerate(self.matrices):
            here = self.regions == r
            gain = matrix[np.ix_(m, o)] @ np.linalg.inv(matrix[np.ix_(o, o)])
            means[here] += (row[o] - outputs[here][:, o]) @ gain.T
            covariances[r] -= gain @ matrix[np.ix_(o, m)]
        return Truth(log_density, log_joint - log_density, means, covariances)


@pytest.fixture(
    scope="module", params=[(1, "spherical"), (1, "diag"), (1, "full"), (2, "diag"), (2, "full")]
)
def case(request: pytest.FixtureRequest) -> Case:
    n_components, kind = request.param
    network = random_network(n_components, (4,), n_features=D, activation="leaky_relu", seed=5)
    shared = model_of(network, 0.2, "shared")
    covariances = covariances_of(kind, shared.n_regions_)
    model = model_of(network, covariances)
    grid = quadrature.make_grid(network)
    known = {p.tobytes(): r for r, p in enumerate(shared.partition_.patterns)}
    regions = np.array([known[p.tobytes()] for p in network.patterns(grid.points)])
    matrices = np.stack([quadrature.as_matrix(covariance, D) for covariance in covariances])
    return Case(network, model, rows_with_holes(model), grid, regions, matrices)


# Against brute force.


def test_density_posterior_and_imputation_equal_quadrature(case: Case) -> None:
    scores, imputed = case.model.score_samples(case.rows), case.model.impute(case.rows)
    posterior = case.model.posterior(case.rows)
    for n, row in enumerate(case.rows):
        truth = case.integrate(row)
        weights = np.exp(truth.log_posterior)
        assert scores[n] == pytest.approx(truth.log_density, abs=QUADRATURE_ERROR)
        missing = np.isnan(row)
        np.testing.assert_allclose(
            imputed[n][missing], weights @ truth.means, atol=QUADRATURE_ERROR, rtol=0
        )
        np.testing.assert_array_equal(imputed[n][~missing], row[~missing])
        mean = weights @ case.grid.points
        deviations = case.grid.points - mean
        covariance = (weights[:, None] * deviations).T @ deviations
        np.testing.assert_allclose(posterior.mean[n], mean, atol=QUADRATURE_ERROR)
        np.testing.assert_allclose(posterior.covariance[n], covariance, atol=QUADRATURE_ERROR)
        shares = np.bincount(case.regions, weights, minlength=len(case.matrices))
        np.testing.assert_allclose(posterior.responsibilities[n], shares, atol=QUADRATURE_ERROR)


def test_log_density_of_the_posterior_is_that_of_bayes(case: Case) -> None:
    chosen = np.linspace(0, len(case.regions) - 1, 50).astype(int)
    log_densities = case.model.posterior(case.rows).log_density(case.grid.points[chosen])
    log_prior = scipy.stats.norm.logpdf(case.grid.points[chosen]).sum(axis=1)
    for n, row in enumerate(case.rows):
        expected = log_prior + case.log_likelihood(row)[chosen] - case.integrate(row).log_density
        np.testing.assert_allclose(log_densities[n], expected, atol=QUADRATURE_ERROR)


def test_no_point_of_the_grid_is_higher_than_the_mode(case: Case) -> None:
    posterior = case.model.posterior(case.rows)
    modes = posterior.mode()
    heights = np.diagonal(posterior.log_density(modes))
    on_grid = posterior.log_density(case.grid.points).max(axis=1)
    # A mode may lie on a boundary, where the density jumps: both sides are looked at.
    nudges = 1e-9 * np.random.default_rng(0).normal(size=(20, modes.shape[1]))
    beside = np.array(
        [posterior.log_density(mode + nudges)[n].max() for n, mode in enumerate(modes)]
    )
    assert np.all(np.maximum(heights, beside) >= on_grid - 1e-6)


def test_bounds_of_gaussians_equal_quadrature(case: Case) -> None:
    n_components = case.network.n_components
    rng = np.random.default_rng(2)
    means = 0.5 * rng.normal(size=(len(case.rows), n_components))
    covariances = np.tile(0.3 * np.eye(n_components), (len(case.rows), 1, 1))
    elbo = case.model.elbo(case.rows, means, covariances)
    divergence = case.model.posterior(case.rows).kl_from(means, covariances)
    log_prior = scipy.stats.norm.logpdf(case.grid.points).sum(axis=1)
    for n, row in enumerate(case.rows):
        log_q = scipy.stats.multivariate_normal(means[n], covariances[n]).logpdf(case.grid.points)
        weights = np.exp(case.grid.log_weights - log_prior + log_q)
        expected = weights @ (case.log_likelihood(row) + log_prior - log_q)
        assert elbo[n] == pytest.approx(expected, abs=1e-7)
    np.testing.assert_allclose(elbo + divergence, case.model.score_samples(case.rows), atol=1e-9)
    amortisation, family = case.model.variational_gap(case.rows[:2], means[:2], covariances[:2])
    np.testing.assert_allclose(amortisation + family, divergence[:2], atol=1e-9)
    assert np.all(amortisation > 0.0)


def test_draws_follow_the_conditional_distribution(case: Case) -> None:
    row = case.rows[2]  # one feature observed
    n_draws = 4000
    draws = case.model.impute(row[None], method="sample", n_draws=n_draws, random_state=0)[:, 0]
    truth = case.integrate(row)
    weights = np.exp(truth.log_posterior)
    mean = weights @ truth.means
    shares = np.bincount(case.regions, weights, minlength=len(case.matrices))
    deviations = truth.means - mean
    covariance = np.einsum("r,rij->ij", shares, truth.covariances)
    covariance += (weights[:, None] * deviations).T @ deviations
    missing = draws[:, np.isnan(row)]
    errors = np.sqrt(np.diagonal(covariance) / n_draws)
    assert np.all(np.abs(missing.mean(axis=0) - mean) < 4.0 * errors)
    scale = np.sqrt(np.outer(*[np.diagonal(covariance)] * 2))
    # Standard errors of second moments of mixtures with unequal covariances: kurtosis below 9.
    assert np.all(np.abs(np.cov(missing.T) - covariance) / scale < 4.0 * np.sqrt(8.0 / n_draws))


def test_rows_drawn_have_the_noise_of_their_region() -> None:
    network = random_network(1, (3,), n_features=2, seed=3)
    n_regions = model_of(network, 1.0, "shared").n_regions_
    covariances = covariances_of("full", n_regions, 2)
    model = model_of(network, covariances)._fitted_model()
    # The same draws again, latent points first.
    n_rows = 20_000
    rows, regions = model.draw(n_rows, np.random.RandomState(0))
    latent = np.random.RandomState(0).standard_normal((n_rows, 1))
    residuals = rows - network.forward(latent)
    for r, covariance in enumerate(covariances):
        here = residuals[regions == r]
        if len(here) > 500:
            spread = np.cov(here.T) / np.sqrt(np.outer(*[np.diagonal(covariance)] * 2))
            expected = covariance / np.sqrt(np.outer(*[np.diagonal(covariance)] * 2))
            assert np.all(np.abs(spread - expected) < 5.0 * np.sqrt(2.0 / len(here)))


def test_far_outliers_keep_their_digits() -> None:
    # One kink, at zero: far out, the model is a linear one, with the noise of that side.
    network = make_network([[[1.0]], [[2.0], [1.0]]], [[0.0], [0.0, 0.0]], "leaky_relu")
    covariances = covariances_of("full", 2, 2)
    model = model_of(network, covariances)
    maps = model.partition_.maps
    for region, sign in enumerate((-1.0, 1.0)):
        image = maps.slopes[region] @ [sign * 1e3] + maps.offsets[region]
        covariance = covariances[region] + maps.slopes[region] @ maps.slopes[region].T
        expected = scipy.stats.multivariate_normal(maps.offsets[region], covariance).logpdf(image)
        assert model.score_samples(image[None])[0] == pytest.approx(expected, rel=1e-12)


# Equal covariances.


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
@pytest.mark.parametrize("n_components", [1, 2])
def test_equal_covariances_are_shared_noise(n_components: int, kind: str) -> None:
    network = random_network(n_components, (4,), n_features=D, activation="leaky_relu", seed=5)
    covariance = covariances_of(kind, 1)[0]
    shared = model_of(network, covariance, "shared")
    regional = model_of(network, np.stack([covariance] * shared.n_regions_))
    rows = rows_with_holes(shared)
    rows[0] += 40.0
    means = np.zeros((len(rows), n_components))
    covariances = np.tile(0.2 * np.eye(n_components), (len(rows), 1, 1))
    one, other = shared.posterior(rows), regional.posterior(rows)
    points = np.random.default_rng(0).normal(size=(5, n_components))
    for expected, found in (
        (shared.score_samples(rows), regional.score_samples(rows)),
        (shared.impute(rows), regional.impute(rows)),
        (one.mean, other.mean),
        (one.covariance, other.covariance),
        (one.responsibilities, other.responsibilities),
        (one.mode(), other.mode()),
        (one.mode(zero_noise=True), other.mode(zero_noise=True)),
        (one.log_density(points), other.log_density(points)),
        (one.kl_from(means, covariances), other.kl_from(means, covariances)),
        (shared.elbo(rows, means, covariances), regional.elbo(rows, means, covariances)),
        (shared.sample(20, random_state=0)[0], regional.sample(20, random_state=0)[0]),
        (
            shared.impute(rows, method="sample", random_state=0),
            regional.impute(rows, method="sample", random_state=0),
        ),
    ):
        np.testing.assert_allclose(found, expected, rtol=EQUAL_ERROR, atol=EQUAL_ERROR)
    np.testing.assert_allclose(regional.pooled_noise_covariance_, covariance, rtol=EQUAL_ERROR)
