"""Noise of low rank, against matrices, quadrature and scikit-learn's factor analysis."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._fit.em.loop import Problem
from skdgn._fit.m_step.maximization import latent_moments
from skdgn._fit.m_step.weight_priors import WeightPrior
from skdgn._fit.statistics import expect
from skdgn._noise import Dense, OfSamples, Sum
from skdgn._noise.factor import Factor, analyze_factors
from skdgn._noise.gaussian import Noise
from skdgn._noise.pooling import pool_covariances, pool_factors
from skdgn._runtime import Workers
from tests.missing_values import fit_quietly, with_missing
from tests.networks import random_network
from tests.portions import portions
from tests.reference import quadrature


def draw_noise(n_features: int, n_factors: int, seed: int = 0) -> Factor:
    rng = np.random.default_rng(seed)
    loadings = rng.normal(size=(n_features, n_factors))
    return Factor.join(loadings, rng.uniform(0.1, 1.0, n_features))


def make_wide(n_samples: int, n_features: int) -> np.ndarray:
    """Samples with three factors, and noise of each feature beside these."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(n_features, 3))
    noise = rng.uniform(0.3, 1.5, n_features) * rng.normal(size=(n_samples, n_features))
    return rng.normal(size=(n_samples, 3)) @ loadings.T + noise


@pytest.fixture(params=[0, 1, 3, 7])
def noise(request: pytest.FixtureRequest) -> Factor:
    return draw_noise(5, request.param)


def test_products_and_determinants_are_those_of_the_matrix(noise: Factor) -> None:
    matrix, rows = noise.matrix, np.random.default_rng(1).normal(size=(4, 5))
    assert noise.log_determinant == pytest.approx(np.linalg.slogdet(matrix)[1], rel=1e-12)
    np.testing.assert_allclose(noise.multiply(rows.T), matrix @ rows.T, atol=1e-12)
    np.testing.assert_allclose(noise.variances, np.diagonal(matrix), rtol=1e-13)
    np.testing.assert_allclose(noise.whiten(noise.color(rows)), rows, atol=1e-12)
    colored = noise.color(np.eye(5))
    np.testing.assert_allclose(colored.T @ colored, matrix, atol=1e-12)
    expected = np.einsum("nd,de,ne->n", rows, np.linalg.inv(matrix), rows)
    np.testing.assert_allclose((noise.whiten(rows) ** 2).sum(axis=1), expected, rtol=1e-11)
    other = draw_noise(5, 2, seed=2)
    trace = np.trace(np.linalg.solve(matrix, other.matrix))
    assert noise.expected_square(other) == pytest.approx(trace, rel=1e-12)
    values = np.linalg.eigvalsh(matrix / np.outer(noise.deviations, noise.deviations))
    assert values[-1] <= noise.spread * (1.0 + 1e-12)


def test_what_users_pass_is_what_they_see() -> None:
    loadings, variances = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 3.0])
    noise = Noise.from_covariance((loadings.tolist(), variances.tolist()), 3)
    assert noise.parameters == {"covariance_type": "factor", "n_factors": 2}
    shown = noise.shown
    np.testing.assert_array_equal(shown[0], loadings)
    np.testing.assert_array_equal(shown[1], variances)
    # Two features, each with a variance; and a matrix of two rows.
    assert Noise.from_covariance((1.0, 2.0), 2).covariance_type == "diag"
    assert Noise.from_covariance(([1.0, 0.1], [0.1, 1.0]), 2).covariance_type == "full"


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        ((np.ones((2, 1)), np.ones(3)), r"pair of loadings of shape \(3, n_factors\).*\(2, 1\)"),
        ((np.ones((3, 1)), np.ones(2)), r"variances of shape \(3,\), got shapes .*\(2,\)"),
        ((np.ones((3, 1)), [1.0, 0.0, 1.0]), "positive, got a variance of 0.0"),
        ((np.full((3, 1), np.nan), np.ones(3)), "finite, got nan"),
        (([[1.0], [1.0, 2.0]], np.ones(3)), "must be an array of numbers"),
    ],
)
def test_bad_pairs_are_named(covariance, message) -> None:
    with pytest.raises(ValueError, match=f"noise_covariance must be.*{message}|{message}"):
        Noise.from_covariance(covariance, 3)


def test_principal_loadings_are_the_same_noise_with_independent_factors(noise: Factor) -> None:
    loadings = noise.principal_loadings
    np.testing.assert_allclose(loadings @ loadings.T, noise.loadings @ noise.loadings.T, atol=1e-12)
    inner = loadings.T @ (loadings / noise.errors[:, None])
    sizes = np.diagonal(inner)
    np.testing.assert_allclose(inner, np.diag(sizes), atol=1e-10)
    assert np.all(np.diff(sizes) <= 1e-12)
    residuals = np.random.default_rng(0).normal(size=(6, 5))
    expected = residuals @ np.linalg.solve(noise.matrix, loadings)
    np.testing.assert_allclose(noise.principal_factors(residuals), expected, atol=1e-12)


# The M-step


def test_the_m_step_sees_what_a_matrix_of_squares_would_say(noise: Factor) -> None:
    """The textbook's step with a matrix, and factors rescaled to unit variance."""
    rng = np.random.default_rng(3)
    samples, weights = rng.normal(size=(20, 5)), rng.uniform(0.5, 2.0, 20)
    scatter = samples.T @ (weights[:, None] * samples)
    total, k, floors = weights.sum(), noise.n_factors, np.full(5, 0.2)
    gains = noise.loadings.T @ np.linalg.inv(noise.matrix)
    second = total * (np.eye(k) - gains @ noise.loadings) + gains @ scatter @ gains.T
    loadings = scatter @ gains.T @ np.linalg.inv(second)
    variances = np.diagonal(scatter - loadings @ gains @ scatter) / total
    found = noise.maximize(noise.collect(samples, weights), total, floors)
    np.testing.assert_allclose(found.errors, np.maximum(variances, floors), rtol=1e-9)
    expected = loadings @ second @ loadings.T / total
    np.testing.assert_allclose(found.loadings @ found.loadings.T, expected, atol=1e-10)
    objective = [
        -own.log_determinant - own.expected_square(Dense(scatter / total))
        for own in (noise.at_least(floors), found)
    ]
    assert objective[1] >= objective[0]


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_statistics_give_the_gradient_of_the_loadings(share: float) -> None:
    network = random_network(1, (3,), n_features=4, activation="leaky_relu", seed=4)
    noise = draw_noise(4, 2)
    rng = np.random.default_rng(0)
    rows = with_missing(rng.normal(size=(30, 4)), share)
    weights = rng.uniform(0.5, 2.0, 30)
    prior = WeightPrior(None, 1.0, np.ones(4))
    problem = Problem(rows, weights, "factor", 2, np.full(4, 1e-6), prior, 1000, Workers())
    state = problem.evaluate(network, noise)
    output = network.maps(state.partition.patterns)[-1].homogeneous(len(state.partition))[:, :-1]
    statistics = state.statistics
    targets = np.concatenate([statistics.cross, statistics.data[:, :, None]], axis=2)
    remainder = output @ latent_moments(statistics) - 2.0 * targets
    scatter = noise.scatter(statistics.squares, remainder, output)
    # With N^-1 F = B', d/dF of the likelihood is N^-1 (S B' - W F).
    rest = scatter[1:].T - statistics.total_weight * noise.loadings
    expected = np.linalg.solve(noise.matrix, rest)
    step = 1e-5
    for i, j in [(0, 0), (3, 1), (2, 0)]:
        values = []
        for sign in (1.0, -1.0):
            loadings = noise.loadings.copy()
            loadings[i, j] += sign * step
            moved = problem.evaluate(network, Factor.join(loadings, noise.errors))
            values.append(moved.statistics.log_likelihood)
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(expected[i, j], rel=1e-5)


@pytest.mark.parametrize(("n_components", "n_factors"), [(1, 0), (1, 3), (2, 2), (1, 7)])
def test_missing_values_are_those_of_a_matrix(n_components: int, n_factors: int) -> None:
    """Densities, imputed values and all statistics, against noise of the same full matrix."""
    network = random_network(n_components, (3,), n_features=5, activation="leaky_relu", seed=4)
    noise = draw_noise(5, n_factors)
    rng = np.random.default_rng(0)
    rows, weights = with_missing(2.0 * rng.normal(size=(40, 5)), 0.4), rng.uniform(0.5, 2.0, 40)
    rows[0] = np.nan
    sums, answers = [], []
    for covariance in (noise.shown, noise.matrix):
        model = PiecewiseAffineDGN.from_network(
            network.coefs, network.intercepts, covariance, activation="leaky_relu"
        )
        answers.append([model.score_samples(rows), model.impute(rows)])
        sums.append(expect(model._fitted_model().visitor, rows, weights, Workers()))
    for found, expected in zip(*answers, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    squares = sums[1].squares
    expected = np.concatenate([np.diagonal(squares)[None], noise.gains @ squares])
    np.testing.assert_allclose(sums[0].squares, expected, rtol=1e-10, atol=1e-10)
    for name in ("weights", "first", "second", "data", "cross"):
        found, expected = (getattr(own, name) for own in sums)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_missing_values_cost_no_digits_where_factors_explain_nearly_all() -> None:
    """The rest of a complete sample is one of a network with fewer features."""
    loadings, variances = 1e6 * np.random.default_rng(0).normal(size=(6, 2)), np.full(6, 0.3)
    slopes, kept = np.arange(6.0)[:, None], np.array([0, 2, 3, 5])
    models = [
        PiecewiseAffineDGN.from_network(
            [slopes[part]],
            [np.zeros(len(part))],
            (loadings[part], variances[part]),
            activation="relu",
        )
        for part in (np.arange(6), kept)
    ]
    rows = models[0].sample(20, random_state=0)[0]
    expected = models[1].score_samples(rows[:, kept])
    rows[:, [1, 4]] = np.nan
    np.testing.assert_allclose(models[0].score_samples(rows), expected, rtol=1e-8)


# Starts, and what networks have in common


def test_covariances_that_are_not_formed_are_those_of_matrices() -> None:
    rng = np.random.default_rng(0)
    samples, shares = rng.normal(size=(7, 4)), rng.dirichlet(np.ones(7))
    matrix, noise = samples.T @ np.diag(shares) @ samples, draw_noise(4, 2)
    both = Sum([0.3, 0.7], [OfSamples(samples, shares), noise])
    expected = 0.3 * matrix + 0.7 * noise.matrix
    directions = rng.normal(size=(4, 3))
    for covariance, wanted in ((both, expected), (Dense(expected), expected)):
        np.testing.assert_allclose(covariance.matrix, wanted, atol=1e-13)
        np.testing.assert_allclose(covariance.variances, np.diagonal(wanted), atol=1e-13)
        np.testing.assert_allclose(covariance.multiply(directions), wanted @ directions, atol=1e-13)
    np.testing.assert_allclose(both.loadings, np.sqrt(0.7) * noise.loadings)
    assert Dense(expected).loadings.shape == (4, 0)


def test_factor_analysis_of_a_covariance_finds_its_factors() -> None:
    truth = draw_noise(8, 2)
    loadings, variances = analyze_factors(truth, 2, np.full(8, 1e-6))
    found = Factor.join(loadings, variances)
    excess = found.expected_square(truth) - 8 + found.log_determinant - truth.log_determinant
    assert 0.0 <= excess < 0.02
    loadings, variances = analyze_factors(truth, 0, np.full(8, 1e-6))
    np.testing.assert_allclose(variances, truth.variances)
    assert loadings.shape == (8, 0)
    loadings, _ = analyze_factors(truth, 10, np.full(8, 1e-6))
    assert loadings.shape == (8, 10)


def test_pooled_factors_are_a_pooled_covariance() -> None:
    noises, counts = [draw_noise(6, 2, seed) for seed in range(3)], np.array([30.0, 20.0, 50.0])
    loadings, variances = pool_factors(counts, noises)
    expected = pool_covariances(counts, np.array([noise.matrix for noise in noises]))
    np.testing.assert_allclose(loadings @ loadings.T + np.diag(variances), expected, atol=1e-12)


# Models: other models, quadrature, textbook


def linear(n_factors: int, **parameters) -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN(
        hidden_layer_sizes=(),
        covariance_type="factor",
        n_factors=n_factors,
        tol=1e-10,
        max_iter=3000,
        random_state=0,
        **parameters,
    )


@pytest.mark.parametrize("n_factors", [1, 2])
def test_a_linear_network_is_factor_analysis_with_one_factor_more(n_factors: int) -> None:
    X = make_wide(300, 10)
    model = linear(n_factors).fit(X)
    theirs = FactorAnalysis(n_factors + 1, tol=1e-12, max_iter=100_000, svd_method="lapack").fit(X)
    assert model.score(X) == pytest.approx(theirs.score(X), abs=1e-6)
    k = n_factors + 1
    assert model.n_parameters_ == 10 + 10 + 10 * k - k * (k - 1) // 2


def test_no_factor_is_diag_and_many_are_full() -> None:
    X = make_wide(200, 4)
    parameters = {"hidden_layer_sizes": (3,), "tol": 1e-6, "max_iter": 1000, "random_state": 0}
    none = PiecewiseAffineDGN(covariance_type="factor", n_factors=0, **parameters).fit(X)
    diag = PiecewiseAffineDGN(covariance_type="diag", **parameters).fit(X)
    np.testing.assert_allclose(none.score_samples(X), diag.score_samples(X), rtol=1e-9)
    assert none.n_parameters_ == diag.n_parameters_
    many = linear(4).fit(X)
    full = PiecewiseAffineDGN(
        hidden_layer_sizes=(), covariance_type="full", tol=1e-10, random_state=0
    ).fit(X)
    assert many.score(X) == pytest.approx(full.score(X), abs=1e-4)
    assert many.n_parameters_ == full.n_parameters_ == 14


@pytest.mark.parametrize("n_components", [1, 2])
def test_densities_equal_quadrature(n_components: int) -> None:
    network = random_network(n_components, (3,), n_features=4, activation="leaky_relu", seed=2)
    pair = (0.6 * np.random.default_rng(0).normal(size=(4, 2)), np.array([0.1, 0.2, 0.3, 0.15]))
    model = PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, pair, activation="leaky_relu"
    )
    assert (model.covariance_type, model.n_factors) == ("factor", 2)
    rows = model.sample(6, random_state=0)[0]
    rows[0] += 1.0
    rows[4, 1] = rows[5, 0] = rows[5, 3] = np.nan
    grid = quadrature.make_grid(network)
    expected = [quadrature.condition(grid, network, pair, row).log_density for row in rows]
    np.testing.assert_allclose(model.score_samples(rows), expected, rtol=1e-8)


def test_factors_given_samples_are_the_textbooks() -> None:
    rng = np.random.default_rng(0)
    slopes, mean, noise = rng.normal(size=(5, 2)), rng.normal(size=5), draw_noise(5, 2)
    model = PiecewiseAffineDGN.from_network([slopes], [mean], noise.shown, activation="relu")
    rows = with_missing(model.sample(20, random_state=0)[0], 0.4)
    loadings, total = model.noise_factors_, slopes @ slopes.T + noise.matrix
    expected = np.zeros((20, 2))
    for n, row in enumerate(rows):
        o = ~np.isnan(row)
        gains = np.linalg.solve(total[np.ix_(o, o)], loadings[o])
        expected[n] = (row[o] - mean[o]) @ gains
    np.testing.assert_allclose(model.transform_factors(rows), expected, atol=1e-10)
    complete = rows[~np.isnan(rows).any(axis=1)]
    scores = multivariate_normal(mean, total).logpdf(complete)
    np.testing.assert_allclose(model.score_samples(complete), scores, rtol=1e-10)


def test_without_factors_there_are_none_to_infer() -> None:
    model = PiecewiseAffineDGN.from_network([[[1.0], [2.0]]], [[0.0, 0.0]], 1.0, activation="relu")
    assert model.noise_factors_.shape == (2, 0)
    assert model.transform_factors([[1.0, 2.0], [0.0, np.nan]]).shape == (2, 0)
    noise = Factor.from_variances(np.array([1.0, 2.0]))
    np.testing.assert_array_equal(noise.matrix, np.diag([1.0, 2.0]))


def test_lower_bounds_and_modes_know_of_factors() -> None:
    network = random_network(1, (3,), n_features=4, activation="leaky_relu", seed=2)
    noise = draw_noise(4, 2)
    models = [
        PiecewiseAffineDGN.from_network(
            network.coefs, network.intercepts, covariance, activation="leaky_relu"
        )
        for covariance in (noise.shown, noise.matrix)
    ]
    rows = models[0].sample(5, random_state=0)[0]
    rows[3, 1] = np.nan
    rows[4] = np.nan
    means, covariances = np.zeros((5, 1)), np.full((5, 1, 1), 0.3)
    factor, full = (
        [
            model.elbo(rows, means, covariances),
            model.posterior(rows).mode(),
            model.posterior(rows).mean,
            model.impute(rows),
        ]
        for model in models
    )
    for found, expected in zip(factor, full, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)
    draws = models[0].impute(rows, method="sample", n_draws=4000, random_state=0)
    assert np.abs(draws[:, 3, 1].mean() - full[3][3, 1]) < 0.1
    with pytest.raises(ValueError, match="noise_covariance must be a number"):
        Noise.from_covariance(np.ones((2, 3, 1)), 4)


# Fits


def random_model(rng: np.random.Generator, seed: int) -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN(
        int(rng.choice([1, 1, 2])),
        hidden_layer_sizes=tuple(int(width) for width in rng.integers(1, 4, rng.integers(0, 3))),
        covariance_type="factor",
        n_factors=int(rng.integers(0, 5)),
        m_step=str(rng.choice(["joint", "layerwise"])),
        max_iter=6,
        random_state=seed,
    )


@pytest.mark.no_cover
@pytest.mark.parametrize("first", portions(100, 20))
def test_no_random_fit_ever_decreases(first: int) -> None:
    for seed in range(first, first + 20):
        rng = np.random.default_rng(seed)
        rows = rng.standard_t(3.0, size=(int(rng.integers(12, 40)), int(rng.integers(2, 7))))
        rows = rows @ rng.normal(size=(rows.shape[1], rows.shape[1]))
        if seed % 3 == 0:
            rows = with_missing(rows, 0.2, seed)
            np.fill_diagonal(rows, 1.0)
        model: PiecewiseAffineDGN | DGNMixture = random_model(rng, seed)
        if seed % 4 == 0:
            model = DGNMixture(model, 2, max_iter=4, refine=seed % 8 == 0, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", "The noise of feature", UserWarning)
            model.fit(rows)
        bounds = model.lower_bounds_
        assert np.all(np.isfinite(bounds)), (seed, model)
        assert np.all(np.diff(bounds) >= 0.0), (seed, model)
        assert np.all(np.isfinite(model.score_samples(rows))), (seed, model)


def test_factors_of_a_curve_are_found() -> None:
    """A bent curve and two factors beside it: better than either alone."""
    rng = np.random.default_rng(0)
    z, loadings = rng.normal(size=(600, 1)), rng.normal(size=(12, 2))
    curve = np.abs(z) @ rng.normal(size=(1, 12)) + z @ rng.normal(size=(1, 12))
    X = 2.0 * curve + rng.normal(size=(600, 2)) @ loadings.T + 0.3 * rng.normal(size=(600, 12))
    scores = {}
    for kind in ("diag", "full", "factor"):
        model = PiecewiseAffineDGN(
            hidden_layer_sizes=(4,), covariance_type=kind, n_factors=2, tol=1e-3, random_state=0
        )
        scores[kind] = fit_quietly(model, X[:300]).score(X[300:])
    assert scores["factor"] > max(scores["diag"], scores["full"])
    straight = fit_quietly(linear(2).set_params(tol=1e-3), X[:300]).score(X[300:])
    assert scores["factor"] > straight + 1.0


def test_fits_go_on_and_learn_from_chunks() -> None:
    X = make_wide(300, 6)
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(2,),
        covariance_type="factor",
        n_factors=2,
        tol=1e-3,
        warm_start=True,
        random_state=0,
    ).fit(X[:200])
    before = model.lower_bound_
    assert model.fit(X[:200]).lower_bound_ >= before - 1e-9
    for start in range(200, 300, 25):
        model.partial_fit(X[start : start + 25])
    assert model.score(X) > before - 1.0
    with pytest.raises(ValueError, match="needs the n_factors of the last fit, 2, got 3"):
        model.set_params(n_factors=3).fit(X)


@pytest.mark.parametrize(("n_networks", "share"), [(None, 0.0), (None, 0.2), (3, 0.0)])
def test_memory_is_linear_in_the_number_of_features(n_networks: int | None, share: float) -> None:
    n_features = 2000  # a matrix would take 32 MB
    X = with_missing(make_wide(24, n_features), share)
    model: PiecewiseAffineDGN | DGNMixture = PiecewiseAffineDGN(
        hidden_layer_sizes=(2,), covariance_type="factor", n_factors=3, max_iter=2, random_state=0
    )
    if n_networks is not None:
        model = DGNMixture(model, n_networks, max_iter=2, random_state=0)
    fit_quietly(model, X[:12])  # what is compiled counts as memory, too
    tracemalloc.start()
    try:
        fit_quietly(model, X)
        model.score_samples(X)
        model.sample(3)
        model.impute(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * n_features**2
