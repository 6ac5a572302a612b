"""The M-step under a prior: solvers against each other, and optimality."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn._fit.m_step import maximization as _maximization
from skdgn._fit.m_step import penalization as _penalization
from skdgn._fit.m_step.maximization import GaussNewtonSystem, linearize
from skdgn._fit.m_step.penalization import PenalizedSystem
from skdgn._fit.m_step.weight_priors import PRIORS, WeightPrior
from skdgn._network import Network
from skdgn._noise import COVARIANCE_TYPES
from tests.fit.problems import (
    linearization_of,
    make_network,
    make_noise,
    make_problem,
)


@pytest.mark.parametrize("kind", PRIORS)
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_penalized_steps_with_and_without_the_matrix_agree(kind, covariance_type, monkeypatch):
    prior = WeightPrior(kind, 0.9, np.array([1.0, 2.0, 0.5]))
    problem = make_problem(covariance_type, prior)
    state = problem.evaluate(make_network(1), make_noise(covariance_type))

    def propose(layers: list[int]) -> Network:
        system = GaussNewtonSystem(linearization_of(state), layers)
        return PenalizedSystem(system, state.network, state.noise, layers, prior).solve(0.1)

    for layers in ([0, 1, 2], [1], [2]):
        dense = propose(layers)
        with monkeypatch.context() as patch:
            patch.setattr(_penalization, "LARGEST_DENSE_SYSTEM", 0)
            patch.setattr(_maximization, "CG_TOLERANCE", 1e-13)
            iterative = propose(layers)
        for expected, found in zip(dense.coefs, iterative.coefs, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
        for layer in {0, 1, 2} - set(layers):
            np.testing.assert_array_equal(dense.coefs[layer], state.network.coefs[layer])


@pytest.mark.parametrize("kind", PRIORS)
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_penalized_output_layer_satisfies_the_optimality_conditions(kind, covariance_type):
    units = np.array([1.0, 2.0, 0.5])
    scale = {"gaussian": 0.5, "laplace": 0.05, "uniform": 0.6}[kind]
    prior = WeightPrior(kind, scale, units)
    problem = make_problem(covariance_type, prior)
    state = problem.evaluate(make_network(1), make_noise(covariance_type))
    system = GaussNewtonSystem(linearization_of(state), [2])
    network = state.network
    for _ in range(20):  # each solves one orthant, and leaves it at zero
        network = PenalizedSystem(system, network, state.noise, [2], prior).solve(0.0)
        moved = linearize(state.statistics, network, state.noise, state.partition.patterns)
        system = GaussNewtonSystem(moved, [2])
    slopes = (state.noise.whiten(np.eye(3)) @ system.output_gradient)[:, :-1]
    weights, scales = network.coefs[-1], scale / units[:, None] * np.ones((1, 3))
    tolerance = 1e-6 * np.abs(slopes).max() + 1e-6
    if kind == "gaussian":
        np.testing.assert_allclose(slopes, weights / scales**2, atol=tolerance)
    elif kind == "laplace":
        zero = weights == 0
        assert zero.any()
        assert not zero.all()
        assert np.all(np.abs(slopes[zero]) <= 1.0 / scales[zero] + tolerance)
        np.testing.assert_allclose(slopes[~zero], (np.sign(weights) / scales)[~zero], rtol=1e-5)
    else:
        inside = np.abs(weights) < scales
        assert not inside.all()
        np.testing.assert_array_equal(np.abs(weights[~inside]), scales[~inside])
        assert np.all(np.abs(slopes[inside]) <= tolerance)
        assert np.all((slopes * weights)[~inside] >= 0.0)
