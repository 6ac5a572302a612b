"""Weights of an average, by samples that were held out."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._fit.stacking import stack, stack_with_scales


@pytest.fixture
def held_out() -> tuple[np.ndarray, np.ndarray]:
    """Log densities of four members at three scales, some of them unknown, and weights."""
    generator = np.random.default_rng(0)
    log_densities = generator.normal(size=(200, 4, 3)) * 3.0 - 40.0
    log_densities[generator.random((200, 4)) < 0.4] = np.nan
    log_densities[0] = np.nan
    log_densities[1] = -np.inf
    return log_densities, generator.uniform(size=200)


def test_stacking_maximizes_the_likelihood_of_the_average(held_out):
    log_densities, row_weights = held_out[0][:, :, 0], held_out[1]
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


@pytest.mark.parametrize("given", [None, np.array([0.5, 0.0, 0.2, 0.3])])
def test_no_other_weights_of_scales_are_likelier(held_out, given):
    log_densities, row_weights = held_out
    weights, scale_weights = stack_with_scales(log_densities, row_weights, given)
    if given is not None:
        np.testing.assert_array_equal(weights, given)
    assert scale_weights.sum() == pytest.approx(1.0, abs=1e-14)
    densities = np.nan_to_num(np.exp(log_densities))

    def objective(scale_weights):
        averages = (densities @ scale_weights) @ weights
        told = averages > 0.0
        # As if every scale had a tenth of a sample of its own; of weights only proportions count.
        count = 0.1 * row_weights[told].sum() / told.sum()
        return row_weights[told] @ np.log(averages[told]) + count * np.log(scale_weights).sum()

    best = objective(scale_weights)
    for other in np.random.default_rng(1).dirichlet(np.ones(3), size=200):
        for step in (0.03, 1.0):
            assert objective((1.0 - step) * scale_weights + step * other) < best + 1e-6


def test_no_scale_is_without_weight():
    log_densities = np.zeros((100, 2, 3))
    log_densities[:, :, 1:] = -1e6
    _, scale_weights = stack_with_scales(log_densities, np.ones(100))
    np.testing.assert_allclose(scale_weights[1:], 0.1 / 100.3)


def test_stacking_without_evidence_is_equal():
    np.testing.assert_array_equal(stack(np.full((5, 2), np.nan), np.ones(5)), 0.5)
    weights, scale_weights = stack_with_scales(np.full((5, 2, 3), np.nan), np.ones(5))
    np.testing.assert_array_equal(weights, 0.5)
    np.testing.assert_array_equal(scale_weights, [1.0, 0.0, 0.0])
