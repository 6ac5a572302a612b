"""Missing values: densities, posteriors and imputations are those of what was observed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import kstest, multivariate_normal, norm

from skdgn._network import Activation, Network
from skdgn._noise import COVARIANCE_TYPES, Noise
from skdgn._partition.enumeration import build_partition
from skdgn._posterior.listed.visits import Visitor
from tests.missing_values import model_of, noise_of, with_missing
from tests.networks import random_network
from tests.portions import portions
from tests.reference import quadrature

D = 4


# No hidden layer: the textbook.


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
@pytest.mark.parametrize("n_components", [1, 2])
def test_no_hidden_layer_is_the_conditional_gaussian(n_components: int, kind: str) -> None:
    network = random_network(n_components, (), n_features=D)
    model = model_of(network, noise_of(kind))
    slopes, offset = network.coefs[0], network.intercepts[0]
    total = slopes @ slopes.T + quadrature.as_matrix(noise_of(kind), D)
    rows = with_missing(model.sample(40, random_state=0)[0], 0.5)
    posterior, imputed, scores = (
        model.posterior(rows),
        model.impute(rows),
        model.score_samples(rows),
    )
    given = model.conditional_score_samples(rows, given=[0, 2])
    for n, row in enumerate(rows):
        o, m = ~np.isnan(row), np.isnan(row)
        gain = np.linalg.solve(total[np.ix_(o, o)], np.c_[total[np.ix_(o, m)], slopes[o]]).T
        deviation = row[o] - offset[o]
        expected = row.copy()
        expected[m] = offset[m] + gain[: m.sum()] @ deviation
        np.testing.assert_allclose(imputed[n], expected, atol=1e-10)
        np.testing.assert_allclose(posterior.mean[n], gain[m.sum() :] @ deviation, atol=1e-10)
        np.testing.assert_allclose(
            posterior.covariance[n],
            np.eye(n_components) - gain[m.sum() :] @ slopes[o],
            atol=1e-10,
        )
        b = o & np.array([True, False, True, False])
        marginal, condition = (
            multivariate_normal(offset[s], total[np.ix_(s, s)]).logpdf(row[s]) if s.any() else 0.0
            for s in (o, b)
        )
        assert scores[n] == pytest.approx(marginal, abs=1e-10)
        assert given[n] == pytest.approx(marginal - condition, abs=1e-10)


# Hidden layers: brute force.


@pytest.fixture(
    scope="module",
    params=[(1, "diag"), (1, "full"), (1, "factor"), (2, "spherical"), (2, "full"), (2, "factor")],
)
def brute_force(request: pytest.FixtureRequest) -> tuple:
    n_components, kind = request.param
    network = random_network(n_components, (4,), n_features=3, activation="leaky_relu", seed=5)
    covariance = noise_of(kind, 3)
    return network, covariance, model_of(network, covariance), quadrature.make_grid(network)


HOLES = [(0,), (1, 2), (0, 1, 2), (2,), (0, 2)]


def test_mean_and_density_equal_quadrature(brute_force: tuple) -> None:
    network, covariance, model, grid = brute_force
    rows = model.sample(len(HOLES), random_state=1)[0]
    for row, holes in zip(rows, HOLES, strict=True):
        row[list(holes)] = np.nan
    scores, imputed, responsibilities = (
        model.score_samples(rows),
        model.impute(rows),
        model.predict_proba(rows),
    )
    np.testing.assert_allclose(responsibilities.sum(axis=1), 1.0, atol=1e-12)
    for n, row in enumerate(rows):
        reference = quadrature.condition(grid, network, covariance, row)
        assert scores[n] == pytest.approx(reference.log_density, abs=1e-8)
        np.testing.assert_allclose(
            imputed[n][np.isnan(row)], quadrature.mean(reference), atol=1e-8, rtol=0
        )
        weights = np.exp(reference.log_posterior)
        np.testing.assert_allclose(
            model.transform(rows[n : n + 1])[0], weights @ grid.points, atol=1e-8
        )


def test_draws_follow_the_conditional_distribution(brute_force: tuple) -> None:
    network, covariance, model, grid = brute_force
    row = model.sample(1, random_state=4)[0][0]
    row[1:] = np.nan
    n_draws = 4000
    draws = model.impute(row[None], method="sample", n_draws=n_draws, random_state=0)[:, 0]
    np.testing.assert_array_equal(draws[:, 0], row[0])
    reference = quadrature.condition(grid, network, covariance, row)
    expected_covariance = quadrature.covariance(reference)
    errors = np.sqrt(np.diagonal(expected_covariance) / n_draws)
    assert np.all(np.abs(draws[:, 1:].mean(axis=0) - quadrature.mean(reference)) < 4.0 * errors)
    scale = np.sqrt(np.outer(*[np.diagonal(expected_covariance)] * 2))
    spread = (np.cov(draws[:, 1:].T) - expected_covariance) / scale
    # The standard error of a correlation or variance is sqrt(2 / n) at most for a Gaussian, and
    # not much more for these mixtures.
    assert np.all(np.abs(spread) < 5.0 * np.sqrt(2.0 / n_draws))
    for feature in range(2):
        values = draws[:, 1 + feature]
        test = kstest(values, lambda x, f=feature: quadrature.cumulative(reference, f, x))
        assert test.pvalue > 1e-3
    # Independent: neither a chain nor a repetition.
    assert len(np.unique(draws[:, 1])) == n_draws
    neighbors = np.corrcoef(draws[:-1, 1], draws[1:, 1])[0, 1]
    assert abs(neighbors) < 4.0 / np.sqrt(n_draws)


def test_draws_have_the_shape_asked_for() -> None:
    model = model_of(random_network(1, (3,)), noise_of("full", 3))
    rows = with_missing(model.sample(6, random_state=0)[0], 0.5)
    rows[0] = np.nan
    rows[1] = 1.0
    kept = ~np.isnan(rows)
    single = model.impute(rows, method="sample", random_state=3)
    several = model.impute(rows, method="sample", n_draws=2, random_state=3)
    assert single.shape == (6, 3)
    assert several.shape == (2, 6, 3)
    for table in (single, *several):
        assert not np.isnan(table).any()
        np.testing.assert_array_equal(table[kept], rows[kept])
    np.testing.assert_array_equal(
        several, model.impute(rows, method="sample", n_draws=2, random_state=3)
    )
    assert not np.array_equal(several[0], several[1])
    frames = model.impute(pd.DataFrame(rows), method="sample", n_draws=2, random_state=3)
    for frame, table in zip(frames, several, strict=True):
        np.testing.assert_array_equal(frame.to_numpy(), table)


@pytest.mark.parametrize("n_features", [2, 3])
def test_density_is_the_integral_over_the_holes(n_features: int) -> None:
    network = random_network(1, (4,), n_features=n_features, seed=2)
    model = model_of(network, noise_of("full", n_features))
    row = model.sample(1, random_state=0)[0][0]
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(-14.0, 14.0, 41)
    half, middle = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    points = (middle[:, None] + half[:, None] * nodes).ravel()
    weights = (half[:, None] * weights).ravel()
    for n_holes in range(1, n_features):
        grid = np.stack(np.meshgrid(*[points] * n_holes), axis=-1).reshape(-1, n_holes)
        volume = np.prod(np.stack(np.meshgrid(*[weights] * n_holes)), axis=0).ravel()
        filled = np.tile(row, (len(grid), 1))
        filled[:, :n_holes] = row[:n_holes] + grid
        holed = np.concatenate([np.full(n_holes, np.nan), row[n_holes:]])
        integral = volume @ np.exp(model.score_samples(filled))
        assert model.score_samples([holed])[0] == pytest.approx(np.log(integral), abs=1e-9)


def test_conditional_density_integrates_to_one() -> None:
    network = random_network(1, (4,), n_features=2, seed=2)
    model = model_of(network, noise_of("diag", 2))

    def density(x: float) -> float:
        return float(np.exp(model.conditional_score_samples([[x, 0.3]], given=[1])[0]))

    assert quad(density, -20.0, 20.0, limit=200)[0] == pytest.approx(1.0, abs=1e-7)


# Both ways to visit, and rows beside each other.


@pytest.mark.parametrize("n_components", [1, 2, 3, 4])
def test_complete_rows_are_the_same_either_way(n_components: int) -> None:
    network = random_network(n_components, (5,), n_features=D, seed=1)
    noise = Noise.from_covariance(noise_of("full"), D)
    visitor = Visitor.prepare(build_partition(network), noise)
    rows = network.forward(np.random.default_rng(0).normal(size=(20, n_components)))
    rows[0] *= 30.0
    fast, slow = visitor.visit(rows), visitor.visit(rows, prepared=False)
    # Four dimensions are integrated by points, to a known error.
    errors = np.hypot(slow.log_density_error, fast.log_density_error)
    difference = np.abs(slow.log_density - fast.log_density)
    assert np.all(difference <= 4.0 * errors + 1e-10 * (1.0 + np.abs(fast.log_density)))
    if n_components < 4:
        assert not errors.any()
        means = [
            np.add.reduceat(v.responsibilities[:, None] * v.means, v.start[:-1])
            for v in (fast, slow)
        ]
        np.testing.assert_allclose(means[1], means[0], atol=1e-9)
    factors, centers = visitor.condition(rows, fast)
    conditionals = visitor.conditionals
    np.testing.assert_allclose(factors, conditionals.factors[fast.regions], atol=1e-12)
    owner = np.repeat(np.arange(len(rows)), np.diff(fast.start))
    residuals = noise.whiten(rows)[owner] - conditionals.offsets[fast.regions]
    expected = np.einsum("vsd,vd->vs", conditionals.projections[fast.regions], residuals)
    np.testing.assert_allclose(centers, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_rows_do_not_depend_on_their_neighbors(kind: str) -> None:
    model = model_of(random_network(2, (5,), n_features=D, seed=3), noise_of(kind))
    rows = with_missing(model.sample(30, random_state=0)[0], 0.4)
    # (Complete rows are whitened together by LAPACK, which rounds as it likes.)
    rows[np.arange(30), np.arange(30) % D] = np.nan
    rows[[3, 17]] = np.nan
    together = model.posterior(rows)
    imputed = model.impute(rows)
    for n in range(len(rows)):
        alone = model.posterior(rows[n : n + 1])
        np.testing.assert_array_equal(alone.mean[0], together.mean[n])
        np.testing.assert_array_equal(alone.responsibilities[0], together.responsibilities[n])
        np.testing.assert_array_equal(model.impute(rows[n : n + 1])[0], imputed[n])


@pytest.mark.parametrize("n_components", [1, 2])
def test_only_regions_that_matter_are_visited_and_none_is_missed(n_components: int) -> None:
    network = random_network(n_components, (8, 8), n_features=12, seed=1)
    covariance = 1e-3 * noise_of("full", 12)
    noise = Noise.from_covariance(covariance, 12)
    visitor = Visitor.prepare(build_partition(network), noise)
    model = model_of(network, covariance)
    rows = with_missing(model.sample(50, random_state=0)[0], 0.3)
    visits = visitor.visit(rows)
    n_visits = len(visits.regions) / len(rows)
    assert n_visits < 0.3 * len(visitor.partition)
    # Boxes that contain everything dismiss nothing.
    visitor.incomplete.boxes.lower[:] = -np.inf
    visitor.incomplete.boxes.upper[:] = np.inf
    np.testing.assert_allclose(visitor.visit(rows).log_density, visits.log_density, rtol=1e-13)


DISTANCES = (5.0, 20.0, 50.0, 1e3, 1e4, 1e6)
# Where logs have no digits left for differences of shares.
LARGEST_DISTANCES = (1e10, 1e15)


@pytest.mark.no_cover
@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("kind", ["spherical", "diag", "full"])
@pytest.mark.parametrize("first", portions(9, 3))
def test_far_away_no_region_is_lost(n_components: int, kind: str, first: int) -> None:
    """Samples with missing values, against the network without these outputs: 10^4 in all."""
    n_usual_rows = {1: 38, 2: 32, 3: 2}[n_components]  # integrals over polyhedra take longer
    for seed in range(first, first + 3):
        rng = np.random.default_rng([n_components, seed])
        coefs = [rng.normal(size=(5, n_components)), rng.normal(size=(4, 5))]
        intercepts = [rng.normal(size=5), rng.normal(size=4)]
        covariance = noise_of(kind, 4)
        relu = Activation.from_name("relu", 0.0)
        visitor = Visitor.prepare(
            build_partition(Network.from_arrays(coefs, intercepts, relu)),
            Noise.from_covariance(covariance, 4),
        )
        features = np.sort(rng.permutation(4)[: 1 + seed % 3])
        smaller = Visitor.prepare(
            build_partition(
                Network.from_arrays(
                    [coefs[0], coefs[1][features]], [intercepts[0], intercepts[1][features]], relu
                )
            ),
            visitor.noise.restrict(features),
        )
        for distance in (*DISTANCES, *LARGEST_DISTANCES):
            n_rows = n_usual_rows if distance in DISTANCES else 2
            directions = rng.normal(size=(n_rows, features.size))
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            observed = distance * smaller.noise.color(directions)
            rows = np.full((n_rows, 4), np.nan)
            rows[:, features] = observed
            exact = smaller.visit(observed).log_density
            np.testing.assert_allclose(visitor.visit(rows).log_density, exact, rtol=1e-8)


def test_nothing_observed_is_the_prior() -> None:
    model = model_of(random_network(2, (5,), n_features=3, seed=3), noise_of("full", 3))
    rows = np.full((2, 3), np.nan)
    np.testing.assert_array_equal(model.score_samples(rows), 0.0)
    posterior = model.posterior(rows)
    np.testing.assert_allclose(posterior.mean, 0.0, atol=1e-12)
    np.testing.assert_allclose(posterior.covariance[0], np.eye(2), atol=1e-12)
    np.testing.assert_allclose(posterior.responsibilities[1], model.weights_, atol=1e-12)
    grid = quadrature.make_grid(random_network(2, (5,), n_features=3, seed=3))
    expected = np.exp(grid.log_weights) @ model.inverse_transform(grid.points)
    np.testing.assert_allclose(model.impute(rows)[0], expected, atol=1e-8)


# What the posterior offers beyond its moments.


def test_evidence_bound_of_the_exact_posterior_is_the_evidence() -> None:
    model = model_of(random_network(2, (), n_features=D), noise_of("full"))
    rows = with_missing(model.sample(10, random_state=0)[0], 0.5)
    rows[0] = np.nan
    posterior = model.posterior(rows)
    bound = model.elbo(rows, posterior.mean, posterior.covariance)
    np.testing.assert_allclose(bound, model.score_samples(rows), atol=1e-9)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_density_of_the_posterior_is_bayes_rule(kind: str) -> None:
    network = random_network(1, (4,), n_features=D, seed=2)
    model = model_of(network, noise_of(kind))
    rows = with_missing(model.sample(8, random_state=0)[0], 0.5)
    rows[0] = np.nan
    latent = np.linspace(-2.0, 2.0, 5)[:, None]
    log_density = model.posterior(rows).log_density(latent)
    noise = quadrature.as_matrix(noise_of(kind), D)
    scores = model.score_samples(rows)
    for n, row in enumerate(rows):
        o = ~np.isnan(row)
        for k, output in enumerate(network.forward(latent)):
            likelihood = (
                multivariate_normal(output[o], noise[np.ix_(o, o)]).logpdf(row[o]) if o.any() else 0
            )
            prior = norm.logpdf(latent[k, 0])
            assert log_density[n, k] == pytest.approx(prior + likelihood - scores[n], abs=1e-9)
