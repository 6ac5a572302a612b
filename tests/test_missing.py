"""Rows with holes: densities, posteriors, fits and imputations are those of what was observed."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.integrate import quad
from scipy.stats import kstest, multivariate_normal, norm
from sklearn.exceptions import ConvergenceWarning

from skdgn import PiecewiseAffineDGN
from skdgn._fit.em import Problem
from skdgn._fit.maximization import gradient, linearize, maximize_noise
from skdgn._fit.weight_priors import PRIORS, WeightPrior
from skdgn._network.network import Activation, Network
from skdgn._noise.gaussian import COVARIANCE_TYPES, Noise
from skdgn._partition.enumeration import build_partition
from skdgn._posterior.visits import Visitor
from skdgn._runtime.workers import Workers
from tests.networks import random_network, replace_layer
from tests.reference import quadrature

D = 4


def noise_of(kind: str, n_features: int = D) -> np.ndarray:
    rng = np.random.default_rng(7)
    variances = rng.uniform(0.1, 0.4, n_features)
    if kind == "spherical":
        return np.array(0.2)
    if kind == "diag":
        return variances
    mixing = rng.normal(size=(n_features, n_features))
    return np.diag(variances) + 0.1 * mixing @ mixing.T


def model_of(network: Network, covariance: np.ndarray) -> PiecewiseAffineDGN:
    return PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, covariance, activation=network.activation.name
    )


def with_holes(rows: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(rows.shape) < share, np.nan, rows)


def fit_quietly(model: PiecewiseAffineDGN, *arguments: object) -> PiecewiseAffineDGN:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few iterations are enough here
        return model.fit(*arguments)


# No hidden layer: the textbook.


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
@pytest.mark.parametrize("n_components", [1, 2])
def test_no_hidden_layer_is_the_conditional_gaussian(n_components: int, kind: str) -> None:
    network = random_network(n_components, (), n_features=D)
    model = model_of(network, noise_of(kind))
    slopes, offset = network.coefs[0], network.intercepts[0]
    total = slopes @ slopes.T + quadrature.as_matrix(noise_of(kind), D)
    rows = with_holes(model.sample(40, random_state=0)[0], 0.5)
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


@pytest.fixture(scope="module", params=[(1, "diag"), (1, "full"), (2, "spherical"), (2, "full")])
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
    rows = with_holes(model.sample(6, random_state=0)[0], 0.5)
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
    rows = with_holes(model.sample(30, random_state=0)[0], 0.4)
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
    rows = with_holes(model.sample(50, random_state=0)[0], 0.3)
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


@pytest.mark.parametrize("n_components", [1, 2, 3])
@pytest.mark.parametrize("kind", ["spherical", "diag", "full"])
def test_far_away_no_region_is_lost(n_components: int, kind: str) -> None:
    """Samples with missing values, against the network without these outputs: 10^4 in all."""
    rng = np.random.default_rng(n_components)
    n_usual_rows = 30 if n_components < 3 else 10  # integrals over polyhedra take longer
    for seed in range(8):
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


# EM.


def problem_of(rows: np.ndarray, weights: np.ndarray, kind: str) -> Problem:
    prior = WeightPrior(None, 1.0, np.ones(rows.shape[1]))
    floors = np.full(rows.shape[1], 1e-6)
    return Problem(rows, weights, kind, floors, prior, 10_000, Workers())


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_statistics_give_the_gradient_of_the_observed_likelihood(kind: str) -> None:
    network = random_network(1, (3,), n_features=D, activation="leaky_relu", seed=4)
    noise = Noise.from_covariance(noise_of(kind), D)
    rows = with_holes(model_of(network, noise_of(kind)).sample(30, random_state=0)[0] + 0.3, 0.4)
    rows[:3] = [[0.1, 0.2, 0.3, 0.4], [np.nan, 1.0, 1.0, np.nan], [np.nan] * D]
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(rows))
    problem = problem_of(rows, weights, kind)
    state = problem.evaluate(network, noise)

    def likelihood(network: Network, noise: Noise) -> float:
        return problem.evaluate(network, noise).statistics.log_likelihood

    step = 1e-5
    linearization = linearize(state.statistics, network, noise, state.partition.patterns)
    for layer in range(2):
        slope = gradient(linearization, layer)
        if layer == 1:  # of the whitened layer
            slope = np.linalg.solve(quadrature.as_matrix(noise.factor, D).T, slope)
        for i, j in [(0, 0), (2, 0), (1, slope.shape[1] - 1)]:
            values = []
            for sign in (1.0, -1.0):
                coef, bias = network.coefs[layer].copy(), network.intercepts[layer].copy()
                if j < coef.shape[1]:
                    coef[i, j] += sign * step
                else:
                    bias[i] += sign * step
                values.append(likelihood(replace_layer(network, layer, coef, bias), noise))
            assert slope[i, j] == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)

    # d/dN log p = n/2 N^-1 (best N - N) N^-1, in the directions that the noise can take.
    best = maximize_noise(
        state.statistics, network, state.partition.patterns, kind, np.full(D, 1e-12)
    )
    precision = np.linalg.inv(quadrature.as_matrix(noise.covariance, D))
    change = quadrature.as_matrix(best.covariance, D) - quadrature.as_matrix(noise.covariance, D)
    slope = 0.5 * weights.sum() * precision @ change @ precision
    rng = np.random.default_rng(0)
    for _ in range(3):
        direction = rng.normal(size=noise.covariance.shape)
        if kind == "full":
            direction = direction + direction.T
        values = [
            likelihood(
                network, Noise.from_covariance(noise.covariance + sign * step * direction, D)
            )
            for sign in (1.0, -1.0)
        ]
        expected = np.sum(slope * quadrature.as_matrix(direction, D))
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(expected, rel=1e-5)


def test_random_fits_never_decrease_and_never_fail() -> None:
    rng = np.random.default_rng(0)
    priors = [None, *[prior for prior in PRIORS if prior is not None]]
    for seed in range(100):
        n_components = 1 + seed % 2
        n_features = 2 + seed % 4
        hidden_layer_sizes = [(3,), (), (2, 2)][seed % 3]
        network = random_network(n_components, (4,), n_features=n_features, seed=seed)
        rows = network.forward(rng.normal(size=(40, n_components)))
        rows += 0.1 * rng.normal(size=rows.shape)
        holed = with_holes(rows, rng.uniform(0.1, 0.7), seed)
        # A value in every column, which chance may have removed.
        holed[np.arange(n_features), np.arange(n_features)] = np.arange(n_features)
        model = PiecewiseAffineDGN(
            n_components,
            hidden_layer_sizes=hidden_layer_sizes,
            covariance_type=COVARIANCE_TYPES[seed % 3 if seed < 50 else (seed // 3) % 3],
            weight_prior=priors[(seed // 2) % len(priors)],
            prior_scale=3.0,
            init_params=["pca", "random"][(seed // 4) % 2],
            max_iter=4,
            random_state=seed,
        )
        weights = rng.uniform(0.0, 2.0, len(rows)) if seed % 5 == 0 else None
        if weights is not None:
            weights[:n_features] = 1.0
        fit_quietly(model, holed, None, weights)
        assert np.all(np.isfinite(model.lower_bounds_)), seed
        assert np.all(np.diff(model.lower_bounds_) >= 0.0), seed
        assert np.all(np.isfinite(model.score_samples(holed))), seed
        assert np.all(np.isfinite(model.impute(holed))), seed


@pytest.fixture(scope="module")
def wave() -> np.ndarray:
    rng = np.random.default_rng(0)
    angle = rng.uniform(-2.0, 2.0, 150)
    rows = np.stack([angle, np.sin(2.0 * angle), np.cos(angle)], axis=1)
    return 5.0 + 100.0 * (rows + 0.1 * rng.normal(size=rows.shape))


@pytest.fixture(scope="module")
def fitted(wave: np.ndarray) -> PiecewiseAffineDGN:
    model = PiecewiseAffineDGN(hidden_layer_sizes=(4,), max_iter=15, random_state=0)
    frame = pd.DataFrame(with_holes(wave, 0.2), columns=["angle", "sine", "cosine"])
    return fit_quietly(model, frame)


def test_lower_bound_is_in_the_units_of_the_rows(
    fitted: PiecewiseAffineDGN, wave: np.ndarray
) -> None:
    frame = pd.DataFrame(with_holes(wave, 0.2), columns=["angle", "sine", "cosine"])
    assert fitted.score(frame) == pytest.approx(fitted.lower_bound_, abs=1e-9)
    log_density = fitted.score_samples(frame)
    expected = -2.0 * log_density.sum() + np.log(len(frame)) * fitted.n_parameters_
    assert fitted.bic(frame) == pytest.approx(expected)


def test_weights_repetition_and_order_of_rows_with_holes(wave: np.ndarray) -> None:
    rows = with_holes(wave[:40], 0.3)
    weights = np.random.default_rng(0).integers(0, 3, len(rows))
    weights[:3] = 1
    order = np.random.default_rng(1).permutation(weights.sum())
    model = PiecewiseAffineDGN(hidden_layer_sizes=(3,), max_iter=5, random_state=0)
    weighted = fit_quietly(model, rows, None, weights).score_samples(rows)
    repeated = fit_quietly(model, np.repeat(rows, weights, axis=0)[order]).score_samples(rows)
    np.testing.assert_allclose(repeated, weighted, rtol=1e-9)


def test_holes_are_filled_in_better_than_by_a_linear_model(wave: np.ndarray) -> None:
    holed = with_holes(wave, 0.3)
    errors = []
    for hidden_layer_sizes in [(), (8,)]:
        model = PiecewiseAffineDGN(
            hidden_layer_sizes=hidden_layer_sizes, max_iter=60, random_state=0
        )
        imputed = fit_quietly(model, holed).impute(holed)
        errors.append(np.mean((imputed - wave)[np.isnan(holed)] ** 2))
    assert errors[1] < 0.6 * errors[0]


# Tables in, tables out.


def test_observed_entries_come_back_bit_for_bit(
    fitted: PiecewiseAffineDGN, wave: np.ndarray
) -> None:
    holed = with_holes(wave, 0.4, seed=3)
    holed[0, 0] = -0.0
    before = holed.copy()
    for imputed in (fitted.impute(pd.DataFrame(holed, columns=fitted.feature_names_in_)),):
        values = imputed.to_numpy()
        assert not np.isnan(values).any()
        kept = ~np.isnan(holed)
        np.testing.assert_array_equal(values.view(np.int64)[kept], holed.view(np.int64)[kept])
    np.testing.assert_array_equal(holed, before)


def test_frames_come_back_as_frames(fitted: PiecewiseAffineDGN, wave: np.ndarray) -> None:
    holed = with_holes(wave[:10], 0.4, seed=3)
    names = list(fitted.feature_names_in_)
    pandas = pd.DataFrame(holed, columns=names, index=np.arange(10) * 3)
    expected = fitted.impute(pandas)
    assert isinstance(expected, pd.DataFrame)
    pd.testing.assert_index_equal(expected.index, pandas.index)
    pd.testing.assert_index_equal(expected.columns, pandas.columns)
    polars = fitted.impute(pl.DataFrame(dict(zip(names, holed.T, strict=True)), nan_to_null=True))
    assert isinstance(polars, pl.DataFrame)
    assert polars.columns == names
    np.testing.assert_array_equal(polars.to_numpy(), expected.to_numpy())
    single = pandas.astype({"sine": np.float32})
    assert list(fitted.impute(single).dtypes) == [np.float64, np.float32, np.float64]
    # A column without holes keeps its type, whatever it is.
    integers = pandas.assign(angle=np.arange(10))
    assert fitted.impute(integers)["angle"].dtype == integers["angle"].dtype
    nullable = pandas.assign(angle=pd.array([1, None] * 5, dtype="Int64"))
    assert fitted.impute(nullable)["angle"].dtype == np.float64


def test_arrays_keep_their_precision() -> None:
    model = model_of(random_network(1, (3,)), noise_of("diag", 3))
    rows = np.array([[1.0, np.nan, 0.1]], dtype=np.float32)
    imputed = model.impute(rows)
    assert imputed.dtype == np.float32
    assert imputed[0, 2] == rows[0, 2]
    assert model.impute([[1.0, None, 0.5]]).dtype == np.float64
    complete = np.ones((2, 3))
    np.testing.assert_array_equal(model.impute(complete), complete)


def test_features_may_be_given_by_name(fitted: PiecewiseAffineDGN, wave: np.ndarray) -> None:
    frame = pd.DataFrame(wave[:5], columns=fitted.feature_names_in_)
    by_name = fitted.conditional_score_samples(frame, given=["sine", "angle"])
    np.testing.assert_array_equal(fitted.conditional_score_samples(frame, given=[0, 1]), by_name)
    np.testing.assert_array_equal(
        fitted.conditional_score_samples(frame, given="angle"),
        fitted.conditional_score_samples(frame, given=-3),
    )
    np.testing.assert_array_equal(
        fitted.conditional_score_samples(frame, given=[]), fitted.score_samples(frame)
    )
    np.testing.assert_array_equal(fitted.conditional_score_samples(frame, given=range(3)), 0.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tangent", r"given must hold names of features seen in fit, .*'cosine'\], got 'tangent'"),
        ([3], "given must hold indices of the 3 features, got 3"),
        ([0.5], "given must hold indices or names of features, got 0.5"),
    ],
)
def test_bad_features_are_refused(
    fitted: PiecewiseAffineDGN, wave: np.ndarray, given: object, message: str
) -> None:
    frame = pd.DataFrame(wave[:2], columns=fitted.feature_names_in_)
    with pytest.raises(ValueError, match=message):
        fitted.conditional_score_samples(frame, given=given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "median"}, r"method must be one of \('mean', 'sample'\), got 'median'"),
        ({"n_draws": 3}, 'n_draws must be None unless method="sample", got 3'),
        ({"method": "sample", "n_draws": 0}, "n_draws must be a positive integer or None, got 0"),
        ({"method": "sample", "n_draws": 1.5}, "n_draws must be a positive integer .* got 1.5"),
    ],
)
def test_bad_arguments_of_impute_are_refused(arguments: dict, message: str) -> None:
    model = model_of(random_network(1, (3,)), noise_of("diag", 3))
    with pytest.raises(ValueError, match=message):
        model.impute([[1.0, np.nan, 0.1]], **arguments)


def test_columns_without_values_are_named() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": np.nan, "c": [np.nan, np.nan, 1.0]})
    with pytest.raises(ValueError, match=r"got none in 1 of 3 columns: \['b'\]"):
        PiecewiseAffineDGN().fit(frame)
    with pytest.raises(ValueError, match=r"got none in 2 of 3 columns: \[1, 2\]"):
        PiecewiseAffineDGN().fit(frame.to_numpy(), sample_weight=[1.0, 1.0, 0.0])


def test_infinite_values_are_refused() -> None:
    rows = np.array([[1.0, np.nan], [np.inf, 0.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="infinity"):
        PiecewiseAffineDGN().fit(rows)
    model = model_of(random_network(1, (3,), n_features=2), noise_of("diag", 2))
    for method in (model.impute, model.score_samples, model.transform):
        with pytest.raises(ValueError, match="infinity"):
            method(rows)


# What the posterior offers beyond its moments.


def test_evidence_bound_of_the_exact_posterior_is_the_evidence() -> None:
    model = model_of(random_network(2, (), n_features=D), noise_of("full"))
    rows = with_holes(model.sample(10, random_state=0)[0], 0.5)
    rows[0] = np.nan
    posterior = model.posterior(rows)
    bound = model.elbo(rows, posterior.mean, posterior.covariance)
    np.testing.assert_allclose(bound, model.score_samples(rows), atol=1e-9)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_density_of_the_posterior_is_bayes_rule(kind: str) -> None:
    network = random_network(1, (4,), n_features=D, seed=2)
    model = model_of(network, noise_of(kind))
    rows = with_holes(model.sample(8, random_state=0)[0], 0.5)
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
