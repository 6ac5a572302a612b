"""DGNRegressor: exact conditional distributions, in the shapes of its targets."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from skdgn import DGNEnsemble, DGNMixture, DGNRegressor, PiecewiseAffineDGN

LINEAR = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full", random_state=0)


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X @ np.array([[1.0, 0.0], [-2.0, 1.0], [0.0, 3.0]]) + rng.normal(size=(300, 2))
    return X, y


@pytest.fixture(scope="module")
def linear(table: tuple[np.ndarray, np.ndarray]) -> DGNRegressor:
    return DGNRegressor(LINEAR).fit(*table)


@pytest.fixture(scope="module")
def forked() -> DGNRegressor:
    """Two answers, y = x or y = -x."""
    rng = np.random.default_rng(0)
    X = rng.uniform(1.0, 2.0, size=(300, 1))
    y = X[:, 0] * rng.choice([-1.0, 1.0], 300) + 0.05 * rng.normal(size=300)
    mixture = DGNMixture(n_networks=2, refine=False, random_state=0)
    return DGNRegressor(mixture).fit(X, y)


def test_a_linear_model_is_linear_regression(
    linear: DGNRegressor, table: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = table
    classical = LinearRegression().fit(X, y)
    np.testing.assert_allclose(linear.predict(X), classical.predict(X), atol=1e-3)
    residuals = y - classical.predict(X)
    np.testing.assert_allclose(linear.predict_std(X), [residuals.std(axis=0)] * 300, rtol=1e-3)
    # All targets together, with the covariance that is left of them.
    expected = multivariate_normal.logpdf(residuals, cov=residuals.T @ residuals / 300)
    np.testing.assert_allclose(linear.score_samples(X, y), expected, atol=1e-2)
    assert linear.score(X, y) == pytest.approx(classical.score(X, y), abs=1e-6)


def test_quantiles_intervals_and_distribution_functions_agree(
    linear: DGNRegressor, table: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = table[0][:5], table[1][:5]
    mean, deviation = linear.predict(X), linear.predict_std(X)
    found = linear.predict_quantiles(X, [0.1, 0.5])
    assert found.shape == (2, 5, 2)
    np.testing.assert_allclose(found[0], mean + norm.ppf(0.1) * deviation, rtol=1e-9)
    np.testing.assert_array_equal(linear.predict_quantiles(X, 0.1), found[0])
    np.testing.assert_allclose(linear.cdf(X, found[0]), 0.1, atol=1e-12)
    np.testing.assert_allclose(linear.cdf(X, y), norm.cdf((y - mean) / deviation), atol=1e-9)
    central = linear.predict_interval(X, 0.8)
    assert central.shape == (5, 2, 2)
    np.testing.assert_allclose(central[..., 0], found[0], rtol=1e-12)
    # The smallest interval of a Gaussian is the central one.
    smallest = linear.predict_interval(X, 0.8, kind="highest_density")
    assert smallest.shape == (5, 2, 1, 2)
    np.testing.assert_allclose(smallest[:, :, 0], central, atol=1e-5)


def test_means_medians_and_modes(forked: DGNRegressor) -> None:
    X = [[1.5]]
    mean, median, mode = (
        DGNRegressor.predict(forked.set_params(prediction=kind), X)[0]
        for kind in ("mean", "median", "mode")
    )
    forked.set_params(prediction="mean")
    assert abs(mean) < 0.4  # where no answer is
    assert forked.cdf(X, [median]) == pytest.approx(0.5, abs=1e-12)
    assert abs(mode) == pytest.approx(1.5, abs=0.05)
    around = forked.score_samples([X[0]] * 3, [mode - 0.01, mode, mode + 0.01])
    assert around.argmax() == 1


def test_two_answers_have_two_intervals(forked: DGNRegressor) -> None:
    sets = forked.predict_interval([[1.2], [1.8]], 0.9, kind="highest_density")
    assert sets.shape == (2, 2, 2)
    for value, (low, high) in zip((1.2, 1.8), sets, strict=True):
        assert low[0] < -value < low[1] < high[0] < value < high[1]
        probability = forked.cdf([[value]] * 4, [*low, *high])
        assert probability[1] - probability[0] + probability[3] - probability[2] == pytest.approx(
            0.9, abs=1e-6
        )
    central = forked.predict_interval([[1.2], [1.8]], 0.9)
    lengths = np.diff(sets, axis=-1).sum(axis=(1, 2))
    assert np.all(lengths < 0.3 * np.diff(central, axis=-1)[:, 0])


def test_draws_have_the_distribution(forked: DGNRegressor) -> None:
    draws = forked.sample([[1.2], [1.8]], n_draws=400, random_state=0)
    assert draws.shape == (400, 2)
    levels = forked.cdf(np.repeat([[1.2]], 400, axis=0), draws[:, 0])
    # Kolmogorov-Smirnov, 0.1 %.
    assert np.abs(np.sort(levels) - np.arange(1, 401) / 400).max() < 1.95 / 20.0
    assert forked.sample([[1.2]], random_state=0).shape == (1,)


def test_several_targets_are_drawn_together(
    linear: DGNRegressor, table: tuple[np.ndarray, np.ndarray]
) -> None:
    assert linear.sample(table[0][:4], random_state=0).shape == (4, 2)
    assert linear.sample(table[0][:4], n_draws=3, random_state=0).shape == (3, 4, 2)


def test_missing_inputs_are_integrated_out(
    linear: DGNRegressor, table: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = table[0][:6].copy(), table[1][:6]
    X[:, 1] = np.nan
    model = linear.estimator_
    joint = np.column_stack([X, np.full((6, 2), np.nan)])
    np.testing.assert_allclose(linear.predict(X), model.impute(joint)[:, 3:], rtol=1e-12)
    assert np.all(linear.predict_std(X) > linear.predict_std(table[0][:6]))
    complete = np.column_stack([X, y])
    expected = model.score_samples(complete) - model.score_samples(joint)
    np.testing.assert_allclose(linear.score_samples(X, y), expected, rtol=1e-12)
    # One target of two.
    assert np.isnan(linear.cdf(X, np.where([True, False], y, np.nan))[:, 1]).all()
    np.testing.assert_allclose(linear.score_samples(X), model.score_samples(joint), rtol=1e-12)


def test_fits_with_missing_inputs_weights_and_frames(table: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = table[0][:80].copy(), table[1][:80, 0]
    X[::3, 0] = np.nan
    twice = DGNRegressor(LINEAR).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    weighted = DGNRegressor(LINEAR).fit(X, y, sample_weight=np.full(80, 2.0))
    np.testing.assert_allclose(weighted.predict(X), twice.predict(X), rtol=1e-9)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = DGNRegressor(LINEAR).fit(frame, pd.Series(y))
    assert list(named.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_allclose(named.predict(frame), weighted.predict(X), rtol=1e-6)


def test_samples_without_targets_tell_of_the_inputs(table: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = table[0][:80], table[1][:80].copy()
    y[::4], y[1::4, 1] = np.nan, np.nan
    regressor = DGNRegressor(LINEAR).fit(X, y)
    joint = clone(LINEAR).fit(np.column_stack([X, y]))
    expected = joint.score_samples(np.column_stack([table[0], table[1]]))
    found = regressor.score_samples(table[0]) + regressor.score_samples(*table)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    one = DGNRegressor(LINEAR).fit(X, y[:, 0])
    assert one.score(X[1::4], y[1::4, 0]) > 0.5


def test_any_exact_density_will_do(table: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = table[0][:40], table[1][:40, 0]
    ensemble = DGNRegressor(DGNEnsemble(LINEAR, n_estimators=2), random_state=0).fit(X, y)
    assert ensemble.predict_interval(X).shape == (40, 2)
    default = DGNRegressor(random_state=0).fit(X[:15], y[:15])
    assert [member.n_networks for member in default.estimator_.estimators_] == [1] * 10
    assert np.isfinite(default.predict(X)).all()


def test_bad_input_is_refused(linear: DGNRegressor, table: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = table
    with pytest.raises(ValueError, match=r"coverage must be a probability.*got 1\.0"):
        linear.predict_interval(X, 1.0)
    with pytest.raises(ValueError, match=r"kind must be one of.*got 'widest'"):
        linear.predict_interval(X, kind="widest")
    with pytest.raises(ValueError, match=r"y must have 2 values .* got shape \(300,\)"):
        linear.cdf(X, y[:, 0])
    with pytest.raises(ValueError, match="y must hold values of the targets, got None"):
        linear.cdf(X, None)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        linear.score_samples(X, y[:9])
    with pytest.raises(ValueError, match="n_draws"):
        linear.sample(X, n_draws=0)
    with pytest.raises(ValueError, match="X must hold values whose distances"):
        linear.predict([[1e200, 0.0, 0.0]])
    for q in (0.0, 1.0, 1.5, -0.1, np.nan, [[0.5]], "half"):
        with pytest.raises(ValueError, match="q must be"):
            linear.predict_quantiles(X, q)
    with pytest.raises(ValueError, match=r"y must hold numbers: could not convert .*'a'"):
        DGNRegressor(LINEAR).fit(X, np.full(len(X), "a"))
    with pytest.raises(ValueError, match="y must have an observed value"):
        DGNRegressor(LINEAR).fit(X, np.where(np.arange(2) == 0, np.nan, y))
    with pytest.raises(ValueError, match="y must hold numbers: Input y contains infinity"):
        DGNRegressor(LINEAR).fit(X, np.where(y > 1.0, np.inf, y))
    frame = pd.DataFrame(X, columns=list("abc")).assign(d=np.nan)
    with pytest.raises(ValueError, match=r"got none in 1 of 4 columns: \['d'\]"):
        DGNRegressor(LINEAR).fit(frame, y)
    with pytest.raises(ValueError, match="'prediction' parameter"):
        DGNRegressor(LINEAR, prediction="best").fit(X, y)
    with pytest.raises(ValueError, match="'estimator' parameter"):
        DGNRegressor(LinearRegression()).fit(X, y)


def test_a_failed_fit_changes_nothing(table: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = table
    regressor = DGNRegressor(LINEAR).fit(X[:50], y[:50])
    expected = regressor.predict(X)
    with pytest.raises(ValueError, match="observed value"):
        regressor.fit(np.full((50, 2), np.nan), y[:50])
    np.testing.assert_array_equal(regressor.predict(X), expected)


def test_warnings_speak_of_targets_in_the_name_of_the_caller() -> None:
    X = np.random.default_rng(0).normal(size=(60, 1))
    y = np.where(X[:, 0] > 0.0, 1.0, 0.0)
    short = PiecewiseAffineDGN(hidden_layer_sizes=(4,), max_iter=1, tol=0.0, random_state=0)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        DGNRegressor(short, cv=2).fit(X, y)
    messages = [str(warning.message) for warning in warned]
    assert len(messages) == 2
    assert messages[0].startswith("EM did not converge in the joint fit. Increase max_iter")
    assert messages[1].startswith("The noise of feature y is as small as tied values allow")
    assert {warning.filename for warning in warned} == {__file__}
