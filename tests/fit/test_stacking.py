"""Weights of an average, by samples that were held out."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._fit.stacking import stack


def test_stacking_maximizes_the_likelihood_of_the_average():
    generator = np.random.default_rng(0)
    log_densities = generator.normal(size=(200, 4)) * 3.0 - 40.0
    row_weights = generator.uniform(size=200)
    log_densities[generator.random((200, 4)) < 0.4] = np.nan
    log_densities[0] = np.nan
    log_densities[1] = -np.inf
    weights = stack(log_densities, row_weights)
    assert weights.sum() == pytest.approx(1.0, abs=1e-14)
    informative = slice(2, None)
    densities = np.nan_to_num(np.exp(log_densities[informative]))

    def objective(weights):
        with np.errstate(divide="ignore"):
            logs = np.log(densities @ weights)
        return row_weights[informative][np.isfinite(logs)] @ logs[np.isfinite(logs)]

    # The gradient of a concave objective on the simplex: no member wants to gain.
    averages = densities @ weights
    asked = averages > 0.0
    gradient = (row_weights[informative][asked] / averages[asked]) @ densities[asked]
    total = row_weights[informative][asked].sum()
    assert np.all(gradient / total <= 1.0 + 1e-3)
    assert objective(weights) > objective(np.full(4, 0.25))


def test_stacking_without_evidence_is_equal():
    np.testing.assert_array_equal(stack(np.full((5, 2), np.nan), np.ones(5)), 0.5)
