"""The M-step: gradients against finite differences, solvers against each other."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._fit.m_step import maximization as _maximization
from skdgn._fit.m_step.maximization import GaussNewtonSystem, gradient, linearize, maximize_noise
from skdgn._noise import COVARIANCE_TYPES, Noise
from tests.fit.problems import (
    linearization_of,
    make_state,
)
from tests.networks import with_weights

# Central differences of a log-likelihood of about a hundred: five to six digits.
STEP = 1e-5
FINITE_DIFFERENCES = 1e-5


@pytest.mark.parametrize("n_components", [1, 2])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_gradient_of_every_layer_is_that_of_the_exact_likelihood(covariance_type, n_components):
    problem, state = make_state(covariance_type, n_components)
    linearization = linearization_of(state)

    def likelihood(layer: int, change: np.ndarray) -> float:
        coefs, intercepts = list(state.network.coefs), list(state.network.intercepts)
        coefs[layer] = coefs[layer] + change[:, :-1]
        intercepts[layer] = intercepts[layer] + change[:, -1]
        network = with_weights(state.network, coefs, intercepts)
        return problem.evaluate(network, state.noise).statistics.log_likelihood

    for layer, coef in enumerate(state.network.coefs):
        expected = gradient(linearization, layer).reshape(len(coef), -1)
        if layer == len(state.network.hidden_layer_sizes):  # that of the whitened layer
            expected = state.noise.whiten(np.eye(3)) @ expected
        measured = np.empty_like(expected)
        for index in np.ndindex(coef.shape[0], coef.shape[1] + 1):
            change = np.zeros_like(expected)
            change[index] = STEP
            rise = likelihood(layer, change) - likelihood(layer, -change)
            measured[index] = rise / (2.0 * STEP)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(measured, expected, atol=FINITE_DIFFERENCES * scale, rtol=0)


@pytest.mark.parametrize("covariance_type", ["spherical", "diag", "full"])
def test_gradient_of_the_noise_is_that_of_the_exact_likelihood(covariance_type):
    problem, state = make_state(covariance_type)
    best = maximize_noise(
        state.statistics,
        state.network,
        state.partition.patterns,
        state.noise,
        np.full(3, 1e-12),
    ).covariance
    current = state.noise.covariance
    rng = np.random.default_rng(0)
    direction = rng.normal(size=current.shape)
    direction = 0.05 * (direction + direction.T if direction.ndim == 2 else direction)
    # d/dN of -(W/2) (log det N + tr N^-1 best): W/2 N^-1 (best - N) N^-1.
    if current.ndim == 2:
        precision = np.linalg.inv(current)
        slope = float(((precision @ (best - current) @ precision) * direction).sum())
    else:
        slope = float(((best - current) / current**2 * direction).sum())
        slope *= 3 if current.ndim == 0 else 1
    slope *= 0.5 * state.statistics.total_weight

    def likelihood(step: float) -> float:
        noise = Noise.from_covariance(current + step * direction, 3)
        return problem.evaluate(state.network, noise).statistics.log_likelihood

    measured = (likelihood(1e-4) - likelihood(-1e-4)) / 2e-4
    assert measured == pytest.approx(slope, rel=FINITE_DIFFERENCES)


@pytest.mark.parametrize("layers", [[0, 1, 2], [0], [2], [0, 1]])
@pytest.mark.parametrize("damping", [1e-7, 0.1])
def test_conjugate_gradients_find_the_step_of_the_factorization(layers, damping, monkeypatch):
    _, state = make_state("full")
    linearization = linearization_of(state)
    dense = GaussNewtonSystem(linearization, layers).solve(damping)
    monkeypatch.setattr(_maximization, "LARGEST_DENSE_SYSTEM", 0)
    monkeypatch.setattr(_maximization, "CG_TOLERANCE", 1e-13)
    iterative = GaussNewtonSystem(linearization, layers).solve(damping)
    for expected, found in zip([*dense[0], dense[1]], [*iterative[0], iterative[1]], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_the_output_layer_alone_is_a_weighted_regression(covariance_type):
    problem, state = make_state(covariance_type)
    steps = GaussNewtonSystem(linearization_of(state), [2]).solve(0.0)
    moved = _maximization.step_network(state.network, state.noise, [2], steps)
    # At the maximum of the expected log-likelihood, its gradient with the old posterior vanishes.
    again = linearize(state.statistics, moved, state.noise, state.partition.patterns)
    before = np.abs(gradient(linearization_of(state), 2)).max()
    assert np.abs(gradient(again, 2)).max() < 1e-7 * before
    after = problem.evaluate(moved, problem.best_noise(state, moved))
    assert after.lower_bound > state.lower_bound
