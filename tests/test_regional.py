"""Noise that differs from region to region: everything exact, and equal noise is shared noise."""

from __future__ import annotations

import math
import pickle
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import scipy.stats
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from skdgn import PiecewiseAffineDGN
from skdgn._batches import Workers
from skdgn._em import Problem, State, inherit
from skdgn._maximization import gradient, linearize, maximize_regional_noise
from skdgn._model import Model
from skdgn._network import Network
from skdgn._noise import COVARIANCE_TYPES, Noise
from skdgn._priors import WeightPrior
from skdgn._regional_noise import RegionalNoise
from skdgn._shrinkage import NoisePrior
from skdgn.datasets import make_noisy_circle
from tests.networks import make_network, random_network, replace_layer
from tests.reference import quadrature

D = 3
QUADRATURE_ERROR = 1e-8
EQUAL_ERROR = 1e-10
HOLES = [(), (0,), (1, 2), (0, 1, 2), (2,), (), (0, 2), ()]


def covariances_of(kind: str, n_regions: int, n_features: int = D, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    # (smaller ones would be too much for the quadrature)
    variances = rng.uniform(0.25, 1.0, (n_regions, n_features))
    if kind == "spherical":
        return variances[:, 0]
    if kind == "diag":
        return variances
    mixing = rng.normal(size=(n_regions, n_features, n_features))
    return variances[:, :, None] * np.eye(n_features) + 0.2 * mixing @ np.swapaxes(mixing, 1, 2)


def model_of(network: Network, covariance: object, noise: str = "regional") -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN.from_network(
        network.coefs,
        network.intercepts,
        covariance,
        activation=network.activation.name,
        noise=noise,
    )


def fit_quietly(model: PiecewiseAffineDGN, rows: np.ndarray) -> PiecewiseAffineDGN:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few iterations are enough here
        return model.fit(rows)


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


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_a_prior_beyond_all_rows_fits_shared_noise(kind: str) -> None:
    rows = make_noisy_circle(150, random_state=0)
    parameters = {
        "hidden_layer_sizes": (5,), "covariance_type": kind, "init_params": "pca", "max_iter": 5,
        "random_state": 0,
    }  # fmt: skip
    shared = fit_quietly(PiecewiseAffineDGN(**parameters), rows)
    regional = fit_quietly(
        PiecewiseAffineDGN(**parameters, noise="regional", noise_prior_weight=1e12), rows
    )
    # The two systems of the M-step are damped alike, but solved differently.
    assert regional.lower_bound_ == pytest.approx(shared.lower_bound_, abs=0.02)
    np.testing.assert_allclose(
        regional.noise_covariance_,
        np.broadcast_to(regional.pooled_noise_covariance_, regional.noise_covariance_.shape)
        if kind != "spherical"
        else np.full(regional.n_regions_, regional.pooled_noise_covariance_),
        rtol=1e-6,
    )
    assert regional.n_parameters_ == pytest.approx(shared.n_parameters_, abs=1e-6)


# EM.


def make_state(kind: str, holes: bool, n_components: int = 1) -> tuple[Problem, State]:
    network = random_network(n_components, (3,), n_features=D, activation="leaky_relu", seed=4)
    model = model_of(network, 0.3, "shared")
    rows = model.sample(40, random_state=0)[0] + 0.2
    rng = np.random.default_rng(1)
    if holes:
        rows[rng.random(rows.shape) < 0.3] = np.nan
    problem = Problem(
        rows,
        rng.uniform(0.5, 2.0, len(rows)),
        kind,
        1e-6,
        WeightPrior(None, 1.0, np.ones(D)),
        1000,
        Workers(),
        NoisePrior.of(2.0, kind, D),
    )
    covariances = covariances_of(kind, model.n_regions_)
    noise = RegionalNoise.from_covariances(covariances, model.n_regions_, D)
    return problem, problem.evaluate(network, noise)


def objective(problem: Problem, network: Network, noise: RegionalNoise) -> float:
    state = problem.evaluate(network, noise)
    return state.statistics.log_likelihood + state.log_prior


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_gradient_of_the_output_layer_is_exact(kind: str, holes: bool) -> None:
    problem, state = make_state(kind, holes)
    found = gradient(
        linearize(state.statistics, state.network, state.noise, state.partition.patterns), 1
    )
    step = 1e-5
    weights = np.column_stack([state.network.coefs[1], state.network.intercepts[1]])
    for d, i in np.ndindex(weights.shape):
        values = []
        for sign in (1.0, -1.0):
            moved = weights.copy()
            moved[d, i] += sign * step
            network = replace_layer(state.network, 1, moved[:, :-1], moved[:, -1])
            values.append(objective(problem, network, state.noise))
        assert found[d, i] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-5)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_noise_update_is_where_the_gradient_vanishes(kind: str, holes: bool) -> None:
    # At a fixed point of the update, no covariance can be moved to the objective's advantage.
    problem, state = make_state(kind, holes)
    for _ in range(300):
        noise = maximize_regional_noise(
            state.statistics,
            state.network,
            state.partition.patterns,
            state.noise,
            problem.noise_prior,
            1e-6,
        )
        before, state = state, problem.evaluate(state.network, noise)
        assert state.lower_bound >= before.lower_bound - 1e-12
        if state.lower_bound - before.lower_bound < 1e-13:
            break
    noise, step = state.noise, 1e-4
    best = objective(problem, state.network, noise)
    rng = np.random.default_rng(3)
    for _ in range(4):
        factors = 1.0 + step * rng.normal(size=noise.covariance.shape)
        if kind == "full":
            factors = 0.5 * (factors + np.swapaxes(factors, 1, 2))
        moved = RegionalNoise.from_covariances(
            noise.covariance * factors, len(noise), D, noise.pooled
        )
        # Second order: what is lost is of the order of the square of the step.
        assert best + 1e-6 >= objective(problem, state.network, moved) >= best - 1e-4
    for factor in (1.0 + step, 1.0 - step):
        pooled = Noise.from_covariance(noise.pooled.covariance * factor, D)
        moved = RegionalNoise.from_covariances(noise.covariance, len(noise), D, pooled)
        assert best + 1e-6 >= objective(problem, state.network, moved) >= best - 1e-4


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_log_prior_is_that_of_an_inverse_wishart_relative_to_its_mode(kind: str) -> None:
    matrices = np.stack([quadrature.as_matrix(c, D) for c in covariances_of(kind, 4)])
    noise = RegionalNoise.from_covariances(covariances_of(kind, 4), 4, D)
    center = quadrature.as_matrix(noise.pooled.covariance, D)
    weight = 7.0
    # The mode of an inverse-Wishart is its scale over its degrees of freedom plus D + 1.
    degrees = weight - D - 1
    wishart = scipy.stats.invwishart(degrees, weight * center)
    expected = sum(wishart.logpdf(m) - wishart.logpdf(center) for m in matrices)
    assert NoisePrior(weight).log_density(noise) == pytest.approx(expected, rel=1e-9)


def test_lower_bound_is_likelihood_plus_prior() -> None:
    rows = make_noisy_circle(100, random_state=1)
    model = fit_quietly(
        PiecewiseAffineDGN(
            hidden_layer_sizes=(4,),
            covariance_type="full",
            noise="regional",
            max_iter=6,
            noise_prior_weight=4.0,
            random_state=0,
        ),
        rows,
    )
    weight = 4.0 * 1.5  # rows to have a number for each of the three entries
    center = model.pooled_noise_covariance_
    loss = sum(
        np.trace(np.linalg.solve(c, center)) - np.linalg.slogdet(np.linalg.solve(c, center))[1] - 2
        for c in model.noise_covariance_
    )
    expected = model.score(rows) - 0.5 * weight * loss / len(rows)
    assert model.lower_bound_ == pytest.approx(expected, rel=1e-9)
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)
    counts = model.predict_proba(rows).sum(axis=0)
    own = (counts / (counts + weight)).sum()
    n_covariances = own + min(1.0, model.n_regions_ - own)
    n_weights = 4 + 4 + 8 + 2 - 4
    assert model.n_parameters_ == pytest.approx(n_weights + 3 * n_covariances, rel=1e-9)


def test_new_regions_inherit_from_where_they_were_cut() -> None:
    noise = Noise.from_covariance(1.0, 1)
    # Kinks at 0 and 3; then the second has moved to -2, past the first.
    before = make_network([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, -3.0], [0.0]])
    after = replace_layer(before, 0, intercept=np.array([0.0, 2.0]))
    models = [Model.build(network, noise) for network in (before, after)]
    left, _, right = np.argsort(models[0].partition.cells.lower)
    first, new, last = np.argsort(models[1].partition.cells.lower)
    origins = inherit(models[1].partition, models[0])
    # The outer cells have kept their patterns; the new one was cut from the left.
    assert origins[first] == left
    assert origins[new] == left
    assert origins[last] == right


# The estimator.


@pytest.fixture(scope="module")
def fitted() -> PiecewiseAffineDGN:
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(4,), noise="regional", max_iter=5, init_params="pca", random_state=0
    )
    return fit_quietly(model, make_noisy_circle(120, random_state=0))


def test_density_integrates_to_one(fitted: PiecewiseAffineDGN) -> None:
    ticks = np.linspace(-4.0, 4.0, 801)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    volume = np.exp(fitted.score_samples(grid)).sum() * (ticks[1] - ticks[0]) ** 2
    assert volume == pytest.approx(1.0, abs=1e-4)


def test_fitted_shapes_and_pickles(fitted: PiecewiseAffineDGN) -> None:
    assert fitted.noise_covariance_.shape == (fitted.n_regions_, 2)
    assert fitted.pooled_noise_covariance_.shape == (2,)
    rows = make_noisy_circle(30, random_state=1)
    rows[:5, 0] = np.nan
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.score_samples(rows), fitted.score_samples(rows))
    same = PiecewiseAffineDGN.from_network(
        fitted.coefs_,
        fitted.intercepts_,
        fitted.noise_covariance_,
        activation="leaky_relu",
        noise="regional",
    )
    np.testing.assert_allclose(same.score_samples(rows), fitted.score_samples(rows), atol=1e-12)
    # Covariances that were given count in full.
    assert same.n_parameters_ == 4 + 4 + 8 + 2 - 4 + 2 * same.n_regions_
    assert fitted.n_parameters_ < same.n_parameters_


def test_warm_start_goes_on_where_the_last_fit_ended(fitted: PiecewiseAffineDGN) -> None:
    rows = make_noisy_circle(120, random_state=0)
    again = pickle.loads(pickle.dumps(fitted)).set_params(warm_start=True, max_iter=2)
    end = fitted.lower_bound_
    fit_quietly(again, rows)
    assert again.lower_bounds_[0] >= end - 1e-9
    again.set_params(noise="shared")
    with pytest.raises(ValueError, match="needs the noise of the last fit, regional, got shared"):
        again.fit(rows)
    again.set_params(warm_start=False)
    fit_quietly(again, rows)
    assert not hasattr(again, "pooled_noise_covariance_")
    assert again.noise_covariance_.shape == (2,)


def test_grid_search_chooses_the_noise() -> None:
    # Noise that grows along a line, ten times from one end to the other.
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(300, 1))
    rows = np.hstack([latent, latent]) * 2.0
    rows += rng.normal(size=rows.shape) * np.where(latent > 0.0, 0.5, 0.05)
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(2,), init_params="pca", max_iter=30, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = GridSearchCV(model, {"noise": ["shared", "regional"]}, cv=3).fit(rows)
        shared, regional = (
            model.set_params(noise=noise).fit(rows).bic(rows) for noise in ("shared", "regional")
        )
    assert search.best_params_ == {"noise": "regional"}
    assert regional < shared


@pytest.mark.parametrize(
    ("covariance", "noise", "message"),
    [
        (np.ones(3), "regional", r"of 5 regions must have shape \(5,\), .* got shape \(3,\)"),
        (np.ones((5, 2)), "regional", r"got shape \(5, 2\)"),
        (-np.ones(5), "regional", "must be positive, got a variance of -1.0"),
        (np.full((5, 3), np.nan), "regional", "must be finite, got nan"),
        ("much", "regional", "must be an array of numbers, got 'much'"),
        (1.0, "local", 'noise must be "shared" or "regional", got \'local\''),
    ],
)
def test_bad_covariances_are_refused(covariance: object, noise: str, message: str) -> None:
    network = random_network(1, (4,), n_features=D, seed=5)
    with pytest.raises(ValueError, match=message):
        model_of(network, covariance, noise)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"noise": "local"}, "The 'noise' parameter .* Got 'local'"),
        ({"noise_prior_weight": 0.0}, "The 'noise_prior_weight' parameter .* Got 0.0"),
        ({"noise_prior_weight": math.nan}, "The 'noise_prior_weight' parameter .* Got nan"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PiecewiseAffineDGN(**parameters).fit(np.zeros((3, 2)))
