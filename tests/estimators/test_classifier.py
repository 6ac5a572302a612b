"""DGNClassifier: Bayes' rule on exact densities."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.model_selection import cross_val_score

from skdgn import DGNClassifier, DGNEnsemble, PiecewiseAffineDGN
from skdgn._estimators.classifier import _borrow

LINEAR = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full", random_state=0)


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, np.ndarray]:
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def gaussians(iris: tuple[np.ndarray, np.ndarray]) -> DGNClassifier:
    return DGNClassifier(LINEAR).fit(*iris)


def test_linear_networks_with_full_noise_are_quadratic_discriminant_analysis(
    gaussians: DGNClassifier, iris: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = iris
    # (whose covariances are divided by one less)
    classical = QuadraticDiscriminantAnalysis().fit(X, y)
    np.testing.assert_array_equal(gaussians.predict(X), classical.predict(X))
    np.testing.assert_allclose(gaussians.predict_proba(X), classical.predict_proba(X), atol=0.05)
    np.testing.assert_allclose(gaussians.priors_, classical.priors_)


def test_probabilities_follow_from_densities_by_bayes_rule(
    gaussians: DGNClassifier, iris: tuple[np.ndarray, np.ndarray]
) -> None:
    X = iris[0].copy()
    X[::2, 1] = X[::5, 3] = X[::7, 0] = np.nan
    X[3] = np.nan
    densities = np.stack([np.exp(own.score_samples(X)) for own in gaussians.estimators_], axis=1)
    joint = densities * gaussians.priors_
    expected = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(gaussians.predict_proba(X), expected, rtol=1e-9)
    np.testing.assert_allclose(
        gaussians.predict_log_proba(X), np.log(expected), rtol=1e-9, atol=1e-15
    )
    log_density = np.log(joint.sum(axis=1))
    np.testing.assert_allclose(gaussians.score_samples(X), log_density, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(gaussians.predict_proba(X)[3], gaussians.priors_, rtol=1e-12)


def test_logs_have_their_digits_far_out(gaussians: DGNClassifier) -> None:
    far = np.array([[1e3, 0.0, -1e3, 5.0], [1e6, 0.0, 0.0, 0.0]])
    logs = gaussians.predict_log_proba(far)
    densities = np.stack([own.score_samples(far) for own in gaussians.estimators_], axis=1)
    np.testing.assert_allclose(logs - logs[:, :1], densities - densities[:, :1], rtol=1e-9)
    assert logs.min() < -1e3
    # Squares overflow: nothing but the priors is left.
    np.testing.assert_allclose(gaussians.predict_proba([[1e200] * 4]), [gaussians.priors_])


def test_priors_are_given_or_shares_of_the_weights(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = iris
    given = DGNClassifier(LINEAR, priors=[0.98, 0.01, 0.01]).fit(X, y)
    np.testing.assert_allclose(given.predict_proba([[np.nan] * 4]), [[0.98, 0.01, 0.01]])
    weights = np.where(y == 0, 0.0, np.where(y == 1, 3.0, 1.0))
    weighted = DGNClassifier(LINEAR).fit(X, y, sample_weight=weights)
    assert weighted.classes_.tolist() == [1, 2]  # a class without weight is not there
    np.testing.assert_allclose(weighted.priors_, [0.75, 0.25])
    unfit: list[Any] = [[0.5, 0.5], [0.5, 0.6, -0.1], [0.2, 0.2, 0.2], [np.nan, 0.5, 0.5]]
    for priors in (*unfit, ["a", "b", "c"]):
        with pytest.raises(ValueError, match="priors must hold a probability for each of the 3"):
            DGNClassifier(LINEAR, priors=priors).fit(X, y)
    never = DGNClassifier(LINEAR, priors=[0.0, 0.5, 0.5]).fit(X, y)
    assert 0 not in never.predict(X)


def test_a_class_of_few_samples_borrows_the_spread_of_the_others() -> None:
    rng = np.random.default_rng(0)
    scale = np.array([1.0, 10.0])
    X = np.concatenate([rng.normal(size=(100, 2)), [[6.0, 0.0]]]) * scale
    y = np.array(["many"] * 100 + ["one"])
    classifier = DGNClassifier(LINEAR).fit(X, y)
    one = classifier.estimators_[1]
    mean = one.conditional_mean([[np.nan, np.nan]], given=[])[0]
    np.testing.assert_allclose(mean, X[-1], atol=1e-6 * scale.max())
    # 19 of 20 parts of its variance are borrowed, the last one is its own, which is zero.
    draws = one.sample(4000, random_state=0)[0]
    np.testing.assert_allclose(draws.std(axis=0), X[:100].std(axis=0) * 0.95**0.5, rtol=0.05)
    assert classifier.predict([[5.5, 3.0], [0.5, 3.0]]).tolist() == ["one", "many"]


def test_what_is_borrowed_tops_up_a_class_to_twenty_samples() -> None:
    rng = np.random.default_rng(0)
    X, numbers = rng.normal(size=(70, 2)), np.repeat([0, 1, 2], [40, 25, 5])
    weights = np.ones(70)
    for number, total in ((0, 40.0), (1, 25.0), (2, 20.0)):
        rows, own_weights = _borrow(X, weights, numbers, number)
        assert own_weights.sum() == pytest.approx(total)
        assert len(rows) == (70 if number == 2 else total)
        np.testing.assert_allclose(
            np.average(rows, axis=0, weights=own_weights), X[numbers == number].mean(axis=0)
        )
    # The only class has nobody to borrow from.
    rows, own_weights = _borrow(X[:3], weights[:3], numbers[:3], 0)
    np.testing.assert_array_equal(rows, X[:3])


def test_a_feature_never_observed_in_a_class_is_borrowed_from_the_others() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 2)), np.repeat([0, 1], 40)
    X[y == 1, 1] = np.nan
    X[y == 1, 0] += 5.0
    classifier = DGNClassifier(LINEAR).fit(X, y)
    assert classifier.predict([[0.0, 0.0], [5.0, 0.0]]).tolist() == [0, 1]
    mean = classifier.estimators_[1].conditional_mean([[np.nan, np.nan]], given=[])[0]
    np.testing.assert_allclose(mean, [X[40:, 0].mean(), X[:40, 1].mean()], atol=0.05)


def test_the_default_classifies_a_table_of_few_samples() -> None:
    X, y = load_wine(return_X_y=True)
    classifier = DGNClassifier(random_state=0)
    scores = cross_val_score(classifier, X[::2], y[::2], cv=2)
    assert scores.mean() > 0.85


def test_any_exact_density_will_do_and_a_failed_fit_changes_nothing(
    iris: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = iris
    classifier = DGNClassifier(DGNEnsemble(LINEAR, n_estimators=2), random_state=0).fit(X, y)
    expected = classifier.predict_proba(X)
    with pytest.raises(ValueError, match="observed value"):
        classifier.fit(np.full((9, 3), np.nan), y[:9])
    np.testing.assert_array_equal(classifier.predict_proba(X), expected)
    with pytest.raises(ValueError, match="y must hold labels of one kind, got NoneType, str"):
        DGNClassifier(LINEAR).fit([[0.0], [1.0], [2.0]], np.array(["a", None, "a"], dtype=object))
    with pytest.raises(ValueError, match="Unknown label type"):
        classifier.fit(X, X[:, 0] * np.pi)


def test_warnings_are_issued_once_for_all_classes() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 2)), np.arange(120) % 3
    X[:, 1] = X[:, 1].round()
    short = PiecewiseAffineDGN(hidden_layer_sizes=(4,), max_iter=1, tol=0.0, random_state=0)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        DGNClassifier(short).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    messages = [str(warning.message) for warning in warned]
    assert len(messages) == len(set(messages)) <= 2
    assert messages[0].startswith("EM did not converge in 3 fits of classes. Increase max_iter")
    assert {warning.filename for warning in warned} == {__file__}
