"""The M-step: gradients against finite differences, solvers against each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from skdgn._fit import maximization as _maximization
from skdgn._fit import penalization as _penalization
from skdgn._fit.em import Problem, State
from skdgn._fit.maximization import GaussNewtonSystem, gradient, linearize, maximize_noise
from skdgn._fit.penalization import PenalizedSystem
from skdgn._fit.weight_priors import PRIORS, WeightPrior
from skdgn._network.network import Network
from skdgn._noise.gaussian import COVARIANCE_TYPES, Noise
from skdgn._runtime.workers import Workers
from tests.networks import random_network

FLAT = WeightPrior(None, 1.0, np.ones(3))
# Central differences of a log-likelihood of about a hundred: five to six digits.
STEP = 1e-5
FINITE_DIFFERENCES = 1e-5


def make_noise(covariance_type: str) -> Noise:
    full = np.array([[0.5, 0.1, 0.0], [0.1, 0.3, -0.1], [0.0, -0.1, 0.4]])
    covariance = {"spherical": 0.3, "diag": np.array([0.2, 0.3, 0.5]), "full": full}
    return Noise.from_covariance(covariance[covariance_type], 3)


def make_network(n_components: int) -> Network:
    return random_network(n_components, (4, 3), activation="leaky_relu", seed=5)


def make_problem(covariance_type: str, prior: WeightPrior = FLAT) -> Problem:
    rng = np.random.default_rng(3)
    rows, weights = 1.5 * rng.normal(size=(30, 3)), rng.uniform(0.5, 2.0, 30)
    return Problem(rows, weights, covariance_type, np.full(3, 1e-6), prior, 1000, Workers())


def make_state(covariance_type: str, n_components: int = 1) -> tuple[Problem, State]:
    problem = make_problem(covariance_type)
    return problem, problem.evaluate(make_network(n_components), make_noise(covariance_type))


def linearization_of(state: State) -> _maximization.Linearization:
    return linearize(state.statistics, state.network, state.noise, state.partition.patterns)


@pytest.mark.parametrize("n_components", [1, 2])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_gradient_of_every_layer_is_that_of_the_exact_likelihood(covariance_type, n_components):
    problem, state = make_state(covariance_type, n_components)
    linearization = linearization_of(state)

    def likelihood(layer: int, change: np.ndarray) -> float:
        coefs, intercepts = list(state.network.coefs), list(state.network.intercepts)
        coefs[layer] = coefs[layer] + change[:, :-1]
        intercepts[layer] = intercepts[layer] + change[:, -1]
        network = replace(state.network, coefs=tuple(coefs), intercepts=tuple(intercepts))
        return problem.evaluate(network, state.noise).statistics.log_likelihood

    for layer, coef in enumerate(state.network.coefs):
        expected = gradient(linearization, layer)
        if layer == state.network.n_hidden_layers:  # that of the whitened layer: back to weights
            expected = state.noise.whiten(np.eye(3)) @ expected
        measured = np.empty_like(expected)
        for index in np.ndindex(coef.shape[0], coef.shape[1] + 1):
            change = np.zeros_like(expected)
            change[index] = STEP
            rise = likelihood(layer, change) - likelihood(layer, -change)
            measured[index] = rise / (2.0 * STEP)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(measured, expected, atol=FINITE_DIFFERENCES * scale, rtol=0)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_gradient_of_the_noise_is_that_of_the_exact_likelihood(covariance_type):
    problem, state = make_state(covariance_type)
    best = maximize_noise(
        state.statistics,
        state.network,
        state.partition.patterns,
        covariance_type,
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
    assert problem.attempt(state, moved) is not None


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
            patch.setattr(_penalization, "CG_TOLERANCE", 1e-13)
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
