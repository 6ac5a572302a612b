"""Features given others: means, distribution functions, quantiles; against quadrature."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal, norm

from skdgn import DGNEnsemble, PiecewiseAffineDGN
from skdgn._posterior.features.feature_distributions import mix
from tests.networks import random_network

N_NODES, N_PANELS = 40, 30


def make_model(n_components: int, widths: tuple[int, ...], kind: str) -> PiecewiseAffineDGN:
    network = random_network(
        n_components, widths, n_features=4, activation="leaky_relu", seed=n_components
    )
    mixing = np.random.default_rng(1).normal(size=(4, 4))
    covariance = {
        "spherical": 0.2,
        "diag": np.array([0.1, 0.02, 0.3, 0.05]),
        "full": 0.05 * (mixing @ mixing.T + 0.1 * np.eye(4)),
        "factor": (0.2 * mixing[:, :2], np.array([0.1, 0.02, 0.3, 0.05])),
    }[kind]
    return PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, covariance, activation="leaky_relu"
    )


def make_rows(model: PiecewiseAffineDGN) -> np.ndarray:
    """Samples of the model, some of them ever farther out, some with missing values."""
    rows = model.sample(8, random_state=0)[0]
    rows[4:, 0] *= [3.0, -10.0, 30.0, 100.0]
    rows[1, 0] = rows[2, 2] = rows[3, 1] = np.nan
    return rows


def integrate_density(
    model: PiecewiseAffineDGN, condition: np.ndarray, feature: int, value: float, width: float
) -> float:
    """Integrate the exact conditional density from far below up to a value."""
    edges = np.linspace(value - width, value, N_PANELS + 1)
    nodes, weights = np.polynomial.legendre.leggauss(N_NODES)
    half = 0.5 * np.diff(edges)[:, None]
    points = edges[:-1, None] + half * (1.0 + nodes)
    rows = np.tile(condition, (points.size, 1))
    rows[:, feature] = points.ravel()
    log_density = model.score_samples(rows) - model.score_samples(condition[None])
    return float((half * weights * np.exp(log_density).reshape(points.shape)).sum())


CASES = [(1, (5,), "diag"), (1, (4, 3), "full"), (2, (4,), "spherical"), (2, (4,), "full")]


@pytest.mark.parametrize(("n_components", "widths", "kind"), CASES)
def test_distribution_functions_are_integrals_of_the_density(
    n_components: int, widths: tuple[int, ...], kind: str
) -> None:
    model = make_model(n_components, widths, kind)
    rows = make_rows(model)
    conditions = rows.copy()
    conditions[:, [1, 3]] = np.nan
    means = model.conditional_mean(rows, given=[0, 2])
    # Values around the means: those of the far samples are nowhere near them.
    low, high = model.conditional_quantiles(rows, given=[0, 2], q=[1e-3, 0.9])
    for values in (low, means, high):
        rows[:, [1, 3]] = values
        found = model.conditional_cdf(rows, given=[0, 2])
        for n, column in np.ndindex(found.shape):
            width = 8.0 * (high - low)[n, column]
            expected = integrate_density(
                model, conditions[n], (1, 3)[column], values[n, column], width
            )
            assert found[n, column] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("n_components", "widths", "kind"), CASES)
def test_means_are_those_of_imputation_and_quantiles_invert(
    n_components: int, widths: tuple[int, ...], kind: str
) -> None:
    model = make_model(n_components, widths, kind)
    rows = make_rows(model)
    conditions = rows.copy()
    conditions[:, [0, 3]] = np.nan
    expected = model.impute(conditions)[:, [0, 3]]
    np.testing.assert_allclose(
        model.conditional_mean(rows, given=[1, 2]), expected, rtol=1e-11, atol=1e-11
    )
    shares = np.array([1e-9, 0.05, 0.5, 0.95, 1.0 - 1e-9])
    for share, values in zip(
        shares, model.conditional_quantiles(rows, given=[1, 2], q=shares), strict=True
    ):
        rows[:, [0, 3]] = values
        probabilities = model.conditional_cdf(rows, given=[1, 2])
        np.testing.assert_allclose(probabilities, share, rtol=1e-5, atol=2e-12)


@pytest.mark.parametrize("kind", ["spherical", "diag", "full"])
@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_no_hidden_layer_is_the_conditional_gaussian(n_components: int, kind: str) -> None:
    model = make_model(n_components, (), kind)
    rows = model.sample(6, random_state=1)[0]
    slopes = model.coefs_[0]
    noise = np.asarray(model.noise_covariance_)
    noise = noise if noise.ndim == 2 else np.diag(np.broadcast_to(noise, 4))
    covariance = slopes @ slopes.T + noise
    gains = np.linalg.solve(covariance[:2, :2], covariance[:2, 2:]).T
    mean = model.intercepts_[0][2:] + (rows[:, :2] - model.intercepts_[0][:2]) @ gains.T
    variances = np.diagonal(covariance[2:, 2:] - gains @ covariance[:2, 2:])
    expected = norm.cdf(rows[:, 2:], mean, np.sqrt(variances))
    # An estimate in three dimensions: four are integrated over.
    tolerance = 1e-11 if n_components < 3 else 2e-3
    np.testing.assert_allclose(
        model.conditional_cdf(rows, given=[0, 1]), expected, atol=tolerance, rtol=0.0
    )
    np.testing.assert_allclose(model.conditional_mean(rows, given=[0, 1]), mean, rtol=1e-11)


@pytest.mark.parametrize("distance", [10.0, 140.0, 1e3, 1e6, 1e9])
def test_far_samples(distance: float) -> None:
    # On either side of the fold x_2 = 2 |z| has the same distribution, given x_1 = |z| + noise.
    model = PiecewiseAffineDGN.from_network(
        [[[1.0]], [[1.0], [2.0]]], [[0.0], [0.0, 0.0]], [0.01, 0.04], activation="abs"
    )
    variance = 1.0 / (1.0 + 1.0 / 0.01)
    mean, deviation = 2.0 * variance * distance / 0.01, np.sqrt(4.0 * variance + 0.04)
    steps = np.array([-3.0, 0.0, 1.0])
    rows = np.stack([np.full(3, distance), mean + deviation * steps], axis=1)
    # Values of this size are rounded themselves.
    tolerance = 1e-12 + 4.0 * np.spacing(mean) / deviation
    np.testing.assert_allclose(
        model.conditional_cdf(rows, given=0)[:, 0], norm.cdf(steps), rtol=0.0, atol=tolerance
    )
    # Nothing makes x_1 negative but noise: z is at the fold, within 0.01 / distance or so.
    rows = np.stack([np.full(3, -distance), 0.2 * steps], axis=1)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    rates, slope = 20.0 * (1.0 + nodes), distance / 0.01
    weights = weights * np.exp(-rates - 0.5 * (rates / slope) ** 2 / variance)
    below = norm.cdf((rows[:, 1:] - 2.0 * rates / slope) / 0.2)
    tolerance = 1e-11 if distance < 100.0 else 1e-9
    np.testing.assert_allclose(
        model.conditional_cdf(rows, given=0)[:, 0],
        below @ weights / weights.sum(),
        rtol=0.0,
        atol=tolerance,
    )


def test_regions_too_thin_to_be_cut_out() -> None:
    # Two kinks 1e-13 apart, and samples that pin z between them.
    model = PiecewiseAffineDGN.from_network(
        [[[1.0], [1.0]], [[1.0, -1.0], [1.0, 1.0]]],
        [[0.0, -1e-13], [0.0, 0.0]],
        [1.0, 1e-4],
        activation="relu",
    )
    rows = np.array([[0.3, 0.0], [-0.7, 1.0]])
    found = model.conditional_cdf(rows, given=1)
    for n, row in enumerate(rows):
        condition = np.array([np.nan, row[1]])
        expected = integrate_density(model, condition, 0, row[0], 12.0)
        assert found[n, 0] == pytest.approx(expected, abs=1e-10)


def test_mixtures_of_distributions() -> None:
    parts = [make_model(1, (5,), "diag"), make_model(2, (4,), "spherical")]
    weights = np.array([0.3, 0.7])
    rows = parts[0].sample(5, random_state=2)[0]
    rows[0, 0] = np.nan
    condition, features = rows.copy(), np.array([2, 3])
    condition[:, features] = np.nan
    mixed = mix(
        [part._fitted_model().feature_distributions(condition, features) for part in parts], weights
    )
    joint = np.log(weights)[:, None] + [part.score_samples(condition) for part in parts]
    np.testing.assert_allclose(mixed.log_density, np.logaddexp(*joint), rtol=1e-13)
    shares = np.exp(joint - np.logaddexp(*joint))[:, :, None]
    for name, method in (("mean", "conditional_mean"), ("cdf", "conditional_cdf")):
        found = mixed.mean if name == "mean" else mixed.cdf(rows[:, features])
        expected = sum(
            share * getattr(part, method)(rows, given=[0, 1])
            for share, part in zip(shares, parts, strict=True)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(mixed.cdf(mixed.quantile(0.2)), 0.2, rtol=1e-11)
    # The variance by the quantiles: an integral over all shares.
    nodes, gauss = np.polynomial.legendre.leggauss(30)
    angles = 0.25 * np.pi * (1.0 + nodes)  # shares sin^2: the tails are smooth in the angle
    squares = [(mixed.quantile(np.sin(a) ** 2) - mixed.mean) ** 2 for a in angles]
    densities = 0.25 * np.pi * gauss * np.sin(2.0 * angles)
    np.testing.assert_allclose(np.tensordot(densities, squares, 1), mixed.variance, rtol=1e-3)
    # A part that has nothing to say of a sample says nothing; if none has, nothing is known.
    far = condition.copy()
    far[1, 0] = 1e200
    unknown = mix(
        [part._fitted_model().feature_distributions(far, features) for part in parts], weights
    )
    assert np.isneginf(unknown.log_density[1])
    assert np.isfinite(np.delete(unknown.log_density, 1)).all()


def test_shapes_missing_values_and_masks() -> None:
    model = make_model(1, (5,), "diag")
    rows = model.sample(3, random_state=0)[0]
    by_index = model.conditional_cdf(rows, given=[1, 3])
    assert by_index.shape == (3, 2)
    for mask in ([False, True, False, True], np.array([0, 1, 0, 1], dtype=bool)):
        np.testing.assert_array_equal(model.conditional_cdf(rows, given=mask), by_index)
        np.testing.assert_array_equal(
            model.conditional_score_samples(rows, given=mask),
            model.conditional_score_samples(rows, given=[1, 3]),
        )
    assert model.conditional_quantiles(rows, given=[1, 3]).shape == (3, 3, 2)
    assert model.conditional_quantiles(rows, given=[1, 3], q=0.5).shape == (3, 2)
    assert model.conditional_quantiles(rows, given=[1, 3], q=[]).shape == (0, 3, 2)
    assert model.conditional_mean(rows, given=[True] * 4).shape == (3, 0)
    # Every feature is judged on its own.
    rows[0, 0] = np.nan
    partly = model.conditional_cdf(rows, given=[1, 3])
    assert np.isnan(partly[0, 0])
    assert partly[0, 1] == by_index[0, 1]
    # No feature given, or none observed: the marginal distribution.
    nothing = np.full((1, 4), np.nan)
    np.testing.assert_allclose(
        model.conditional_mean(rows, given=[])[:1], model.impute(nothing), rtol=1e-12
    )


def test_threads_change_nothing() -> None:
    model = make_model(1, (5,), "full")
    rows = model.sample(600, random_state=0)[0]
    expected = model.conditional_cdf(rows, given=0)
    model.set_params(n_jobs=2)
    np.testing.assert_array_equal(model.conditional_cdf(rows, given=0), expected)


def test_names_of_features() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
    model = PiecewiseAffineDGN(hidden_layer_sizes=(), random_state=0).fit(frame)
    np.testing.assert_array_equal(
        model.conditional_mean(frame, given="b"), model.conditional_mean(frame, given=1)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"given": [True, False]}, r"given must be a mask of the 4 features, .* got \[True, False"),
        ({"given": True}, "given must be a mask of the 4 features, or .* got True"),
        ({"given": [True, 1, 0, 0]}, "given must hold indices or names of features, got True"),
        ({"given": 0, "q": 0.0}, r"q must be a probability from 1e-12 to 1 - 1e-12, .* got 0\.0"),
        ({"given": 0, "q": [0.5, 1.0]}, r"q must be a probability .* got \[0\.5, 1\.0\]"),
        ({"given": 0, "q": [[0.5]]}, r"q must be a probability .* got \[\[0\.5\]\]"),
        ({"given": 0, "q": "median"}, "q must be a rectangular array of numbers"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_model(1, (5,), "diag").conditional_quantiles(np.zeros((1, 4)), **arguments)


@pytest.mark.parametrize("method", ["impute", "draw", "mean", "cdf", "quantiles"])
def test_samples_of_which_nothing_is_known_are_named(method: str) -> None:
    model = make_model(1, (5,), "diag")
    rows = np.array([[0.0, 1.0, 2.0, np.nan], [0.0, 1e200, np.nan, 0.0]])
    call = {
        "impute": lambda: model.impute(rows),
        "draw": lambda: model.impute(rows, method="sample", random_state=0),
        "mean": lambda: model.conditional_mean(rows, given=1),
        "cdf": lambda: model.conditional_cdf(rows, given=1),
        "quantiles": lambda: model.conditional_quantiles(rows, given=1),
    }[method]
    with pytest.raises(ValueError, match=r"finite squares.* Got 1e\+200 in column 1 of sample 1\."):
        call()


def test_straight_networks_are_gaussians() -> None:
    """Textbook conditionals of a mixture of Gaussians, near and far."""
    rng = np.random.default_rng(0)
    weights, networks = np.array([0.2, 0.5, 0.3]), []
    for _ in weights:
        slopes, mean = rng.normal(size=(3, 2)), rng.normal(size=3)
        networks.append(PiecewiseAffineDGN.from_network([slopes], [mean], 0.1, activation="relu"))
    mixture = DGNEnsemble.from_estimators(networks, weights)
    given = np.array([[0.3, np.nan, -1.0], [8.0, np.nan, np.nan], [np.nan, np.nan, np.nan]])
    values = np.array([[0.5], [-3.0], [0.1]])
    found = mixture._fitted_model().feature_distributions(given, np.array([1]))
    for n, row in enumerate(given):
        known = ~np.isnan(row)
        log_shares, means, variances = [], [], []
        for weight, network in zip(weights, networks, strict=True):
            slopes, mean = network.coefs_[0], network.intercepts_[0]
            covariance = slopes @ slopes.T + 0.1 * np.eye(3)
            gains = np.linalg.solve(covariance[np.ix_(known, known)], covariance[known, 1])
            means.append(mean[1] + gains @ (row - mean)[known])
            variances.append(covariance[1, 1] - gains @ covariance[known, 1])
            log_share = np.log(weight)
            if known.any():
                marginal = multivariate_normal(mean[known], covariance[np.ix_(known, known)])
                log_share += marginal.logpdf(row[known])
            log_shares.append(log_share)
        shares, parts = softmax(log_shares), norm(means, np.sqrt(variances))
        average = shares @ means
        assert found.log_density[n] == pytest.approx(logsumexp(log_shares), rel=1e-12)
        assert found.mean[n, 0] == pytest.approx(average, rel=1e-10)
        spread = shares @ (np.array(variances) + (np.array(means) - average) ** 2)
        assert found.variance[n, 0] == pytest.approx(spread, rel=1e-10)
        assert found.cdf(values)[n, 0] == pytest.approx(shares @ parts.cdf(values[n]), rel=1e-10)
        density = np.log(shares @ parts.pdf(values[n]))
        assert found.log_pdf(values)[n, 0] == pytest.approx(density, rel=1e-10)
    np.testing.assert_allclose(found.cdf(found.quantile(0.3)), 0.3, rtol=1e-12)
