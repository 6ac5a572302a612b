"""Probabilities of boxes: quadrature, grids of boxes, tails, estimates with their errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import log_ndtr
from scipy.stats import chi2_contingency, ks_2samp, multivariate_normal, norm

from skdgn import DGNEnsemble, PiecewiseAffineDGN
from tests.networks import random_network

EXACT = 1e-8


def make_model(
    n_components: int = 1, kind: str = "diag", seed: int = 0, activation: str = "leaky_relu"
) -> PiecewiseAffineDGN:
    network = random_network(n_components, (4,), n_features=3, activation=activation, seed=seed)
    mixing = np.random.default_rng(1).normal(size=(3, 3))
    covariance = {
        "spherical": 0.2,
        "diag": np.array([0.1, 1e-4, 0.3]),
        "full": 0.1 * (mixing @ mixing.T + 0.2 * np.eye(3)),
    }[kind]
    return PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, covariance, activation=activation
    )


def by_quadrature(model: PiecewiseAffineDGN, lower: np.ndarray, upper: np.ndarray) -> float:
    """Integrate over latent space on 1,000 panels, with all kinks between them."""
    deviations = np.sqrt(np.broadcast_to(model.noise_covariance_, 3))
    kinks = -model.intercepts_[0] / model.coefs_[0][:, 0]
    edges = np.unique([*np.linspace(-9.0, 9.0, 1001), *kinks[np.abs(kinks) < 9.0]])
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = 0.5 * np.diff(edges)[:, None]
    z = (edges[:-1, None] + half * (1.0 + nodes)).ravel()
    x = model.inverse_transform(z[:, None])
    shares = norm.cdf((upper - x) / deviations) - norm.cdf((lower - x) / deviations)
    integrand = norm.pdf(z) * shares.prod(axis=1)
    return float(np.log((half * weights).ravel() @ integrand))


@pytest.mark.parametrize("kind", ["spherical", "diag"])
def test_boxes_agree_with_quadrature(kind: str) -> None:
    model = make_model(kind=kind)
    center = model.sample(1, random_state=0)[0][0]
    boxes = [
        (center - 0.5, center + 0.5),
        (center - np.array([0.1, 0.01, np.inf]), center + np.array([0.1, 0.02, 0.2])),
        (np.full(3, -np.inf), center),
        (center + np.array([0.5, -0.1, -1.0]), center + np.array([0.9, 0.1, 1.0])),
    ]
    lower, upper = (np.array(bounds) for bounds in zip(*boxes, strict=True))
    found, errors = model.log_probability(lower, upper, return_error=True)
    assert np.all(errors < EXACT)
    for n in range(len(boxes)):
        assert found[n] == pytest.approx(by_quadrature(model, lower[n], upper[n]), abs=EXACT)


def test_a_linear_model_is_a_gaussian_in_the_tail_too() -> None:
    model = PiecewiseAffineDGN.from_network(
        [[[1.0], [2.0]]], [[0.0, 1.0]], [0.5, 2.0], activation="relu"
    )
    bounds = np.array([1.0, 10.0, 40.0, 1e3])
    lower = np.column_stack([bounds, np.full(4, np.nan)])
    found = model.log_probability(lower, np.full((4, 2), np.nan))
    np.testing.assert_allclose(found, log_ndtr(-bounds / np.sqrt(1.5)), rtol=1e-9)
    covariance = np.array([[1.5, 2.0], [2.0, 6.0]])
    both = model.log_probability([[-np.inf, -np.inf]], [[0.3, 2.0]])
    expected = multivariate_normal.logcdf([0.3, 2.0], [0.0, 1.0], covariance, abseps=1e-12)
    assert both[0] == pytest.approx(expected, abs=1e-6)  # the accuracy of SciPy's


@pytest.mark.parametrize("kind", ["diag", "mixture"])
def test_a_grid_of_boxes_adds_up_to_one(kind: str) -> None:
    model: PiecewiseAffineDGN | DGNEnsemble = make_model(activation="relu")
    if kind == "mixture":
        model = DGNEnsemble.from_estimators([model, make_model(seed=5)], weights=[1, 3])
    rows = model.sample(200, random_state=0)[0]
    cuts = np.quantile(rows, [0.1, 0.5, 0.8], axis=0)
    edges = np.concatenate([np.full((1, 3), -np.inf), cuts, np.full((1, 3), np.inf)])
    places = np.array(list(itertools.product(range(4), repeat=3)))
    lower = np.stack([edges[places[:, d], d] for d in range(3)], axis=1)
    upper = np.stack([edges[places[:, d] + 1, d] for d in range(3)], axis=1)
    logs = model.log_probability(lower, upper)
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=EXACT)
    # Sides of a box add up at any depth.
    low, high = [[40.0, -1.0, np.nan]], [[50.0, 1.0, np.nan]]
    whole = model.log_probability(low, high)
    one = model.log_probability(low, [[50.0, 0.2, np.nan]])
    two = model.log_probability([[40.0, 0.2, np.nan]], high)
    assert whole[0] < -100.0
    np.testing.assert_allclose(np.logaddexp(one, two), whole, rtol=EXACT)


def test_no_bounds_and_no_inside() -> None:
    for model in (make_model(), make_model(kind="full")):
        nothing = np.full((1, 3), np.nan)
        assert model.log_probability(nothing, nothing) == 0.0
        flat = model.log_probability([[1.0, 0.0, 0.0]], [[1.0, 1.0, 1.0]])
        assert np.isneginf(flat).all()


@pytest.mark.parametrize(("n_components", "kind", "n_draws"), [(1, "full", 64), (2, "diag", 16)])
def test_other_models_give_estimates_with_their_errors(
    n_components: int, kind: str, n_draws: int
) -> None:
    model = make_model(n_components, kind)
    rows = model.sample(40000, random_state=0)[0]
    lower, upper = np.quantile(rows, [0.2, 0.7], axis=0)
    lower[1], upper[2] = -np.inf, np.inf
    inside = np.mean(np.all((rows > lower) & (rows < upper), axis=1))
    value, error = model.log_probability(
        lower[None], upper[None], n_draws=n_draws, random_state=0, return_error=True
    )
    assert 0.0 < error[0] < 0.2
    deviation = np.hypot(error[0], np.sqrt((1.0 - inside) / inside / len(rows)))
    assert abs(value[0] - np.log(inside)) < 4.0 * deviation
    # One feature is exact, and repeated calls with a seed are alike.
    one = [[np.nan, 0.3, np.nan]]
    found, none = model.log_probability([[np.nan] * 3], one, return_error=True)
    cdf = model.conditional_cdf(one, given=[])[0, 1]
    assert found[0] == pytest.approx(np.log(cdf), rel=1e-10)
    assert none[0] == 0.0
    again = model.log_probability(lower[None], upper[None], n_draws=n_draws, random_state=0)
    assert again[0] == value[0]


def test_both_ways_agree() -> None:
    exact = make_model(kind="spherical")
    full = PiecewiseAffineDGN.from_network(
        exact.coefs_, exact.intercepts_, 0.2 * np.eye(3), activation="leaky_relu"
    )
    center = exact.sample(1, random_state=1)[0]
    expected = exact.log_probability(center - 0.4, center + 0.6)
    found, error = full.log_probability(
        center - 0.4, center + 0.6, n_draws=64, random_state=0, return_error=True
    )
    assert abs(found[0] - expected[0]) < 4.0 * error[0] + 1e-6


def test_bad_bounds_are_refused() -> None:
    model = make_model()
    with pytest.raises(ValueError, match=r"lower must be at most upper, got 1\.0 and 0\.0 in col"):
        model.log_probability([[0.0, 1.0, 0.0]], [[1.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match="lower must have 3 columns"):
        model.log_probability([[0.0, 1.0]], [[1.0, 2.0, 1.0]])
    with pytest.raises(ValueError, match="must have the same number of boxes, got 3 and 2"):
        model.log_probability([[0.0, 1.0, 0.0]] * 3, [[1.0, 2.0, 1.0]] * 2)
    with pytest.raises(ValueError, match="n_draws"):
        model.log_probability([[0.0] * 3], [[1.0] * 3], n_draws=0)


def make_sum(kind: str) -> DGNEnsemble:
    members = [make_model(kind=kind), make_model(kind=kind, seed=5)]
    return DGNEnsemble.from_estimators(members, weights=[1, 3])


def mean_by_quadrature(
    model: PiecewiseAffineDGN, row: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[float, np.ndarray]:
    """Integrate over latent space, given values and bounds: the density, and means of features."""
    deviations = np.sqrt(np.broadcast_to(model.noise_covariance_, 3))
    kinks = -model.intercepts_[0] / model.coefs_[0][:, 0]
    edges = np.unique([*np.linspace(-9.0, 9.0, 4001), *kinks[np.abs(kinks) < 9.0]])
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = 0.5 * np.diff(edges)[:, None]
    z = (edges[:-1, None] + half * (1.0 + nodes)).ravel()
    x = model.inverse_transform(z[:, None])
    a, b = (lower - x) / deviations, (upper - x) / deviations
    shares = norm.cdf(b) - norm.cdf(a)
    inside = x - deviations * (norm.pdf(b) - norm.pdf(a)) / np.maximum(shares, 1e-300)
    factors = np.where(np.isnan(row), shares, norm.pdf(row, x, deviations))
    measure = (half * weights).ravel() * norm.pdf(z) * factors.prod(axis=1)
    return measure.sum(), measure @ np.where(np.isnan(row), inside, row) / measure.sum()


@pytest.mark.parametrize("kind", ["spherical", "diag"])
def test_means_between_bounds_agree_with_quadrature(kind: str) -> None:
    ensemble = make_sum(kind)
    center = ensemble.sample(1, random_state=0)[0][0]
    rows = np.full((3, 3), np.nan)
    rows[1, 1] = center[1]
    lower = np.array([center - 0.5, [np.nan, 5.0, center[2]], [np.nan, center[1] - 0.01, np.nan]])
    upper = np.array([center + 0.2, [center[0], 9.0, np.nan], [np.nan, center[1] + 0.1, np.nan]])
    filled, error = ensemble.impute(rows, lower=lower, upper=upper, return_error=True)
    assert not error.any()
    low, high = np.nan_to_num(lower, nan=-np.inf), np.nan_to_num(upper, nan=np.inf)
    for n, row in enumerate(rows):
        parts = [
            mean_by_quadrature(member, row, low[n], high[n]) for member in ensemble.estimators_
        ]
        masses = ensemble.weights_ * [mass for mass, _ in parts]
        expected = masses @ np.array([mean for _, mean in parts]) / masses.sum()
        np.testing.assert_allclose(filled[n], expected, rtol=1e-8)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_draws_between_bounds_are_those_of_all_draws_that_lie_there(kind: str) -> None:
    ensemble = make_sum(kind)
    rows, labels = ensemble.sample(20000, random_state=0)
    lower, upper = np.quantile(rows, [0.3, 0.8], axis=0)
    lower[1], upper[2] = np.nan, np.nan
    kept = np.all(~(rows < lower) & ~(rows > upper), axis=1)
    drawn, numbers = ensemble.sample(2000, random_state=1, lower=lower, upper=upper)
    assert np.all(~(drawn < lower) & ~(drawn > upper))
    # Four comparisons: all pass with a probability of 99 % if the distributions are equal.
    for feature in range(3):
        assert ks_2samp(drawn[:, feature], rows[kept, feature]).pvalue > 0.0025
    counts = [np.bincount(found, minlength=2) for found in (numbers, labels[kept])]
    assert chi2_contingency(counts).pvalue > 0.0025


def test_draws_given_values_and_bounds_have_their_means() -> None:
    ensemble = make_sum("diag")
    center = ensemble.sample(1, random_state=0)[0][0]
    row = np.array([[center[0], np.nan, np.nan], [np.nan] * 3])
    lower = np.array([[np.nan, center[1] - 0.05, np.nan], [60.0, np.nan, np.nan]])
    means = ensemble.impute(row, lower=lower)
    draws = ensemble.impute(row, "sample", 2000, 0, lower=lower)
    assert np.all(draws[:, :, 0] >= [center[0], 60.0])
    assert np.all(draws[:, 0, 1] >= lower[0, 1])
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - means) < 4.0 * error + 1e-12)
    # By correlated noise, of which the density is the same, means are estimates.
    full = DGNEnsemble.from_estimators(
        [
            PiecewiseAffineDGN.from_network(
                member.coefs_,
                member.intercepts_,
                np.diag(member.noise_covariance_),
                activation="leaky_relu",
            )
            for member in ensemble.estimators_
        ],
        ensemble.weights_,
    )
    found, error = full.impute(row[:1], lower=lower[:1], random_state=0, return_error=True)
    assert error[0, 0] == 0.0
    assert np.all(error[0, 1:] > 0.0)
    assert np.all(np.abs(found - means[:1]) <= 4.0 * error)
    # Samples without bounds are filled in as ever.
    nothing = full.impute(row[:1], lower=[np.nan] * 3, upper=np.full((1, 3), np.inf))
    np.testing.assert_array_equal(nothing, full.impute(row[:1]))


def test_boxes_without_probability_are_refused() -> None:
    model, full = make_model(), make_model(kind="full")
    for density in (model, full):
        with pytest.raises(ValueError, match=r"lower must be below upper, got 1\.0 and 1\.0 in"):
            density.sample(1, lower=[0.0, 1.0, 0.0], upper=[1.0, 1.0, 1.0])
        with pytest.raises(ValueError, match=r"upper must have 3 columns"):
            density.sample(1, upper=[0.0, 1.0])
        with pytest.raises(ValueError, match=r"lower must have shape \(3,\) or \(2, 3\), got \(3"):
            density.impute(np.full((2, 3), np.nan), lower=np.zeros((3, 3)))
        with pytest.raises(ValueError, match="return_error must be False"):
            density.impute([[np.nan] * 3], "sample", return_error=True)
    with pytest.raises(ValueError, match="box of probability zero: "):
        model.sample(1, lower=[1e200, np.nan, np.nan])
    with pytest.raises(ValueError, match="box of probability zero for sample 1: "):
        model.impute([[np.nan] * 3] * 2, lower=[[0.0, np.nan, np.nan], [1e200, np.nan, np.nan]])
    with pytest.raises(ValueError, match="got a box in which fewer lie for sample 0"):
        full.impute([[np.nan] * 3], lower=[1e3, np.nan, np.nan])
    # However small it is, there are draws.
    drawn, _ = model.sample(5, random_state=0, lower=[1e3, np.nan, np.nan])
    assert np.all(drawn[:, 0] >= 1e3)
