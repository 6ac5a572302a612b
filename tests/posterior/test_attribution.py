"""Contributions of features: sums, closed forms of Gaussians, orders against subsets."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from skdgn import DGNEnsemble, PiecewiseAffineDGN
from skdgn._posterior.features import attribution
from tests.networks import random_network


def linear_model(n_features: int) -> PiecewiseAffineDGN:
    rng = np.random.default_rng(n_features)
    mixing = rng.normal(size=(n_features, n_features))
    return PiecewiseAffineDGN.from_network(
        [rng.normal(size=(n_features, 2))],
        [rng.normal(size=n_features)],
        mixing @ mixing.T + 0.2 * np.eye(n_features),
        activation="relu",
    )


def gaussian_of(model: PiecewiseAffineDGN) -> tuple[np.ndarray, np.ndarray]:
    slopes = model.coefs_[0]
    return model.intercepts_[0], slopes @ slopes.T + model.noise_covariance_


def bent_model(n_features: int, n_components: int = 1) -> PiecewiseAffineDGN:
    network = random_network(
        n_components, (4,), n_features=n_features, activation="leaky_relu", seed=3
    )
    noise = np.linspace(0.1, 0.5, n_features)
    return PiecewiseAffineDGN.from_network(
        network.coefs, network.intercepts, noise, activation="leaky_relu"
    )


def shapley_by_definition(model: PiecewiseAffineDGN, row: np.ndarray) -> np.ndarray:
    """Average over all orders, one at a time."""
    mean, covariance = gaussian_of(model)

    def score(subset: tuple[int, ...]) -> float:
        if not subset:
            return 0.0
        chosen = list(subset)
        return -float(
            multivariate_normal.logpdf(
                row[chosen], mean[chosen], covariance[np.ix_(chosen, chosen)]
            )
        )

    values = np.zeros(row.size)
    for order in permutations(range(row.size)):
        for place, feature in enumerate(order):
            values[feature] += score(order[: place + 1]) - score(order[:place])
    return values / factorial(row.size)


def test_a_linear_model_has_the_closed_forms_of_a_gaussian() -> None:
    model = linear_model(5)
    rows = model.sample(3, random_state=0)[0]
    rows[2] *= 10.0
    expected = [shapley_by_definition(model, row) for row in rows]
    np.testing.assert_allclose(model.explain(rows), expected, rtol=1e-10, atol=1e-10)
    # -log p(x_j | others): by the precision matrix, a residual of variance 1 / precision_jj.
    mean, covariance = gaussian_of(model)
    precision = np.linalg.inv(covariance)
    variances = 1.0 / np.diag(precision)
    residuals = (rows - mean) @ precision * variances
    surprise = 0.5 * np.log(2.0 * np.pi * variances) + 0.5 * residuals**2 / variances
    found = model.explain(rows, method="leave_one_out")
    np.testing.assert_allclose(found, surprise, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["network", "plane", "ensemble"])
def test_contributions_add_up_to_the_score(kind: str) -> None:
    model: PiecewiseAffineDGN | DGNEnsemble = bent_model(6, 2 if kind == "plane" else 1)
    if kind == "ensemble":
        model = DGNEnsemble.from_estimators([model, bent_model(6)], weights=[1, 2])
    rows = model.sample(12, random_state=0)[0]
    rows[4:6] *= 30.0
    rows[6:9, [0, 3]] = rows[8:10, 5] = np.nan
    rows[10] = np.nan
    values, errors = model.explain(rows, return_error=True)
    np.testing.assert_allclose(
        values.sum(axis=1), -model.score_samples(rows), rtol=1e-10, atol=1e-10
    )
    assert np.all(values[np.isnan(rows)] == 0.0)
    assert np.all(errors == 0.0)
    one_left_out = model.explain(rows, method="leave_one_out")
    assert np.all(one_left_out[np.isnan(rows)] == 0.0)
    expected = -model.conditional_score_samples(rows, given=[0, 1, 2, 4, 5])
    np.testing.assert_allclose(one_left_out[:, 3], expected, rtol=1e-10, atol=1e-10)


def test_a_feature_of_its_own_contributes_its_own_density() -> None:
    model = PiecewiseAffineDGN.from_network(
        [[[1.0], [1.0], [0.0]]], [[0.0, 0.0, 2.0]], [0.1, 0.2, 4.0], activation="relu"
    )
    rows = model.sample(5, random_state=0)[0]
    alone = np.where([False, False, True], rows, np.nan)
    for method in ("shapley", "leave_one_out"):
        found = model.explain(rows, method=method)[:, 2]
        np.testing.assert_allclose(found, -model.score_samples(alone), rtol=1e-10)


def test_orders_estimate_what_subsets_give(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bent_model(5)
    rows = model.sample(20, random_state=0)[0]
    exact = model.explain(rows)
    monkeypatch.setattr(attribution, "MOST_EXACT_FEATURES", 4)
    values, errors = model.explain(rows, n_permutations=60, random_state=0, return_error=True)
    np.testing.assert_allclose(values.sum(axis=1), exact.sum(axis=1), rtol=1e-10)
    assert np.all(errors > 0.0)
    z_scores = (values - exact) / errors
    # All samples share the orders: only the features are independent, more or less.
    assert np.sqrt(np.mean(z_scores**2)) < 2.0
    more, smaller = model.explain(rows, n_permutations=600, random_state=0, return_error=True)
    assert np.abs(more - exact).mean() < np.abs(values - exact).mean()
    assert smaller.mean() == pytest.approx(errors.mean() / 10.0**0.5, rel=0.3)
    again = model.explain(rows, n_permutations=60, random_state=0)
    np.testing.assert_array_equal(again, values)


def test_more_than_twelve_features_are_explained_by_orders() -> None:
    model = linear_model(14)
    rows = model.sample(2, random_state=0)[0]
    rows[1, :3] = np.nan
    values, errors = model.explain(rows, n_permutations=10, random_state=0, return_error=True)
    np.testing.assert_allclose(values.sum(axis=1), -model.score_samples(rows), rtol=1e-10)
    assert np.all(errors[0] > 0.0)
    assert np.all(errors[1] == 0.0)  # eleven are left


def test_a_sample_infinitely_far_out_has_no_explanation() -> None:
    model = linear_model(3)
    for method in ("shapley", "leave_one_out"):
        assert not np.isfinite(model.explain([[1e200, 0.0, 0.0]], method=method)).any()


def test_bad_arguments_are_refused() -> None:
    model = linear_model(3)
    with pytest.raises(ValueError, match=r"method must be one of .* got 'lime'"):
        model.explain([[0.0, 0.0, 0.0]], method="lime")
    with pytest.raises(ValueError, match="n_permutations"):
        model.explain([[0.0, 0.0, 0.0]], n_permutations=2)


@pytest.mark.parametrize("method", ["shapley", "leave_one_out"])
def test_standardized_contributions_do_not_depend_on_units(method: str) -> None:
    model, units = linear_model(4), np.array([1.0, 100.0, 1e-3, 7.0])
    scaled = PiecewiseAffineDGN.from_network(
        [model.coefs_[0] * units[:, None]],
        [model.intercepts_[0] * units],
        model.noise_covariance_ * np.outer(units, units),
        activation="relu",
    )
    rows = model.sample(5, random_state=0)[0]
    rows[0, 2] = np.nan
    expected = model.explain(rows, method=method, standardize=True)
    found = scaled.explain(rows * units, method=method, standardize=True)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert found[0, 2] == 0.0
    _, covariance = gaussian_of(model)
    plain = model.explain(rows, method=method)
    difference = (plain - expected)[1:]
    np.testing.assert_allclose(difference, [0.5 * np.log(np.diag(covariance))] * 4, atol=1e-9)
