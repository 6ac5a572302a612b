"""Small problems for the M-step."""

from __future__ import annotations

import numpy as np

from skdgn._fit.em.loop import Problem, State
from skdgn._fit.m_step import maximization as _maximization
from skdgn._fit.m_step.maximization import linearize
from skdgn._fit.m_step.weight_priors import WeightPrior
from skdgn._network import Network
from skdgn._noise.gaussian import Noise
from skdgn._runtime.workers import Workers
from tests.networks import random_network

FLAT = WeightPrior(None, 1.0, np.ones(3))


def make_noise(covariance_type: str) -> Noise:
    full = np.array([[0.5, 0.1, 0.0], [0.1, 0.3, -0.1], [0.0, -0.1, 0.4]])
    variances = np.array([0.2, 0.3, 0.5])
    loadings = np.array([[0.3], [-0.4], [0.2]])
    covariance = {
        "spherical": 0.3,
        "diag": variances,
        "full": full,
        "factor": (loadings, variances),
    }
    return Noise.from_covariance(covariance[covariance_type], 3)


def make_network(n_components: int) -> Network:
    return random_network(n_components, (4, 3), activation="leaky_relu", seed=5)


def make_problem(covariance_type: str, prior: WeightPrior = FLAT) -> Problem:
    rng = np.random.default_rng(3)
    rows, weights = 1.5 * rng.normal(size=(30, 3)), rng.uniform(0.5, 2.0, 30)
    return Problem(rows, weights, covariance_type, 1, np.full(3, 1e-6), prior, 1000, Workers())


def make_state(covariance_type: str, n_components: int = 1) -> tuple[Problem, State]:
    problem = make_problem(covariance_type)
    return problem, problem.evaluate(make_network(n_components), make_noise(covariance_type))


def linearization_of(state: State) -> _maximization.Linearization:
    return linearize(state.statistics, state.network, state.noise, state.partition.patterns)
