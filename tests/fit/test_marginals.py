"""Functions of single features, fitted to them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import skew
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import PowerTransformer

from skdgn._fit.marginals import fit_normal_scores, fit_power


def test_power_is_that_of_scikit_learn_where_every_number_is_reached():
    values = np.random.default_rng(0).normal(size=500) ** 2 + 0.5
    line, power = fit_power(values, np.ones(500))
    standard = line.forward(values)
    theirs = PowerTransformer(standardize=False).fit(standard[:, None]).lambdas_[0]
    assert power.function.exponent == pytest.approx(max(theirs, 0.0), abs=1e-4)
    assert abs(skew(power.forward(standard))) < abs(skew(values))


def test_weights_count_samples():
    rng = np.random.default_rng(0)
    values, counts = np.exp(rng.normal(size=80)), rng.integers(1, 4, size=80)
    for fit in (fit_power, fit_normal_scores):
        _, weighted = fit(values, counts.astype(float))
        _, repeated = fit(np.repeat(values, counts), np.ones(counts.sum()))
        points = np.linspace(-1.0, 3.0, 5)
        np.testing.assert_allclose(weighted.forward(points), repeated.forward(points), rtol=1e-6)


def test_mixture_is_as_likely_as_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(-2.0, 0.3, 200), rng.normal(1.0, 1.0, 300)])
    line, scores = fit_normal_scores(values, np.ones(500))
    assert len(scores.function.weights) == 2
    standard = line.forward(values)
    theirs = GaussianMixture(2, random_state=0, tol=1e-6).fit(standard[:, None])
    ours = np.logaddexp.reduce(scores.function.log_terms(standard), axis=1).mean()
    assert ours == pytest.approx(theirs.score(standard[:, None]), abs=1e-3)


def test_constant_columns_are_left_alone():
    for fit in (fit_power, fit_normal_scores):
        (line,) = fit(np.full(5, 3.0), np.ones(5))
        np.testing.assert_array_equal(line.forward(np.array([3.0, 4.0])), [0.0, 1.0])
