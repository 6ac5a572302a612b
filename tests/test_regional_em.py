"""EM with regional noise: gradient, noise update, prior, and what regions inherit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from skdgn import PiecewiseAffineDGN
from skdgn._batches import Workers
from skdgn._em import Problem, State, inherit
from skdgn._maximization import gradient, linearize, maximize_regional_noise
from skdgn._model import Model
from skdgn._network import Network
from skdgn._noise import COVARIANCE_TYPES, Noise
from skdgn._priors import WeightPrior
from skdgn._regional_noise import RegionalNoise
from skdgn._shrinkage import NoisePrior
from skdgn.datasets import make_noisy_circle
from tests.networks import make_network, random_network, replace_layer
from tests.reference import quadrature
from tests.regional_models import D, covariances_of, fit_quietly, model_of


def make_state(kind: str, holes: bool, n_components: int = 1) -> tuple[Problem, State]:
    network = random_network(n_components, (3,), n_features=D, activation="leaky_relu", seed=4)
    model = model_of(network, 0.3, "shared")
    rows = model.sample(40, random_state=0)[0] + 0.2
    rng = np.random.default_rng(1)
    if holes:
        rows[rng.random(rows.shape) < 0.3] = np.nan
    problem = Problem(
        rows,
        rng.uniform(0.5, 2.0, len(rows)),
        kind,
        np.full(D, 1e-6),
        WeightPrior(None, 1.0, np.ones(D)),
        1000,
        Workers(),
        NoisePrior.of(2.0, kind, D),
    )
    covariances = covariances_of(kind, model.n_regions_)
    noise = RegionalNoise.from_covariances(covariances, model.n_regions_, D)
    return problem, problem.evaluate(network, noise)


def objective(problem: Problem, network: Network, noise: RegionalNoise) -> float:
    state = problem.evaluate(network, noise)
    return state.statistics.log_likelihood + state.log_prior


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_gradient_of_the_output_layer_is_exact(kind: str, holes: bool) -> None:
    problem, state = make_state(kind, holes)
    found = gradient(
        linearize(state.statistics, state.network, state.noise, state.partition.patterns), 1
    )
    step = 1e-5
    weights = np.column_stack([state.network.coefs[1], state.network.intercepts[1]])
    for d, i in np.ndindex(weights.shape):
        values = []
        for sign in (1.0, -1.0):
            moved = weights.copy()
            moved[d, i] += sign * step
            network = replace_layer(state.network, 1, moved[:, :-1], moved[:, -1])
            values.append(objective(problem, network, state.noise))
        assert found[d, i] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-5)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_noise_update_is_where_the_gradient_vanishes(kind: str, holes: bool) -> None:
    # At a fixed point of the update, no covariance can be moved to the objective's advantage.
    problem, state = make_state(kind, holes)
    for _ in range(300):
        noise = maximize_regional_noise(
            state.statistics,
            state.network,
            state.partition.patterns,
            state.noise,
            problem.noise_prior,
            np.full(D, 1e-6),
        )
        before, state = state, problem.evaluate(state.network, noise)
        assert state.lower_bound >= before.lower_bound - 1e-12
        if state.lower_bound - before.lower_bound < 1e-13:
            break
    noise, step = state.noise, 1e-4
    best = objective(problem, state.network, noise)
    rng = np.random.default_rng(3)
    for _ in range(4):
        factors = 1.0 + step * rng.normal(size=noise.covariance.shape)
        if kind == "full":
            factors = 0.5 * (factors + np.swapaxes(factors, 1, 2))
        moved = RegionalNoise.from_covariances(
            noise.covariance * factors, len(noise), D, noise.pooled
        )
        # Second order: what is lost is of the order of the square of the step.
        assert best + 1e-6 >= objective(problem, state.network, moved) >= best - 1e-4
    for factor in (1.0 + step, 1.0 - step):
        pooled = Noise.from_covariance(noise.pooled.covariance * factor, D)
        moved = RegionalNoise.from_covariances(noise.covariance, len(noise), D, pooled)
        assert best + 1e-6 >= objective(problem, state.network, moved) >= best - 1e-4


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_log_prior_is_that_of_an_inverse_wishart_relative_to_its_mode(kind: str) -> None:
    matrices = np.stack([quadrature.as_matrix(c, D) for c in covariances_of(kind, 4)])
    noise = RegionalNoise.from_covariances(covariances_of(kind, 4), 4, D)
    center = quadrature.as_matrix(noise.pooled.covariance, D)
    weight = 7.0
    # The mode of an inverse-Wishart is its scale over its degrees of freedom plus D + 1.
    degrees = weight - D - 1
    wishart = scipy.stats.invwishart(degrees, weight * center)
    expected = sum(wishart.logpdf(m) - wishart.logpdf(center) for m in matrices)
    assert NoisePrior(weight).log_density(noise) == pytest.approx(expected, rel=1e-9)


def test_lower_bound_is_likelihood_plus_prior() -> None:
    rows = make_noisy_circle(100, random_state=1)
    model = fit_quietly(
        PiecewiseAffineDGN(
            hidden_layer_sizes=(4,),
            covariance_type="full",
            noise="regional",
            max_iter=6,
            noise_prior_weight=4.0,
            random_state=0,
        ),
        rows,
    )
    weight = 4.0 * 1.5  # rows to have a number for each of the three entries
    center = model.pooled_noise_covariance_
    loss = sum(
        np.trace(np.linalg.solve(c, center)) - np.linalg.slogdet(np.linalg.solve(c, center))[1] - 2
        for c in model.noise_covariance_
    )
    expected = model.score(rows) - 0.5 * weight * loss / len(rows)
    assert model.lower_bound_ == pytest.approx(expected, rel=1e-9)
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)
    counts = model.predict_proba(rows).sum(axis=0)
    own = (counts / (counts + weight)).sum()
    n_covariances = own + min(1.0, model.n_regions_ - own)
    n_weights = 4 + 4 + 8 + 2 - 4
    assert model.n_parameters_ == pytest.approx(n_weights + 3 * n_covariances, rel=1e-9)


def test_new_regions_inherit_from_where_they_were_cut() -> None:
    noise = Noise.from_covariance(1.0, 1)
    # Kinks at 0 and 3; then the second has moved to -2, past the first.
    before = make_network([[[1.0], [1.0]], [[1.0, 1.0]]], [[0.0, -3.0], [0.0]])
    after = replace_layer(before, 0, intercept=np.array([0.0, 2.0]))
    models = [Model.build(network, noise) for network in (before, after)]
    left, _, right = np.argsort(models[0].partition.cells.lower)
    first, new, last = np.argsort(models[1].partition.cells.lower)
    origins = inherit(models[1].partition, models[0])
    # The outer cells have kept their patterns; the new one was cut from the left.
    assert origins[first] == left
    assert origins[new] == left
    assert origins[last] == right
