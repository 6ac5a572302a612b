"""EM for mixtures: what must hold at every step."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._fit.em.mixture import NetworkVisits, log_density_bounds, log_of
from skdgn._network import ACTIVATIONS
from skdgn._posterior.model import Model
from skdgn._runtime.workers import Workers
from tests.mixtures import ROUNDING, make_clusters, start_of
from tests.networks import with_weights
from tests.portions import portions

pytestmark = [
    pytest.mark.filterwarnings("ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The noise of feature:UserWarning"),  # rounded tables
]


@pytest.mark.no_cover
@pytest.mark.parametrize("first", portions(200, 5))
def test_random_fits_never_decrease(first):
    for seed in range(first, first + 5):
        check_random_fit(seed)


def check_random_fit(seed):
    rng = np.random.default_rng(seed)
    n_samples, n_features = int(rng.integers(12, 70)), int(rng.integers(1, 5))
    X = make_clusters(n_samples, n_features, seed=seed, spread=rng.choice([0.5, 4.0]))
    if seed % 4 == 1:
        X = np.round(X)  # ties
    if seed % 2:
        X[rng.random(X.shape) < 0.2] = np.nan
        X[: 2 * n_features] = np.nan_to_num(X[: 2 * n_features])
    estimator = PiecewiseAffineDGN(
        int(rng.integers(1, 3)),
        hidden_layer_sizes=[(), (1,), (3,), (2, 2)][rng.integers(4)],
        activation=ACTIVATIONS[rng.integers(3)],
        covariance_type=["spherical", "diag", "full"][rng.integers(3)],
        weight_prior=[None, None, "gaussian", "laplace", "uniform"][rng.integers(5)],
        prior_scale=3.0,
        m_step=["joint", "joint", "layerwise"][rng.integers(3)],
    )
    mixture = DGNMixture(
        estimator,
        int(rng.integers(1, 5)),
        init_params=["gaussian_mixture", "kmeans", "random"][rng.integers(3)],
        weight_concentration_prior=rng.choice([1.0, 2.0]),
        noise_prior_weight=rng.choice([0.0, 1.0]),
        refine=seed % 5 == 0,
        max_iter=6,
        tol=0.0,
        random_state=seed,
    )
    weights = rng.choice([0.0, 0.5, 1.0, 2.3], size=n_samples) if seed % 3 == 0 else None
    if weights is not None:
        weights[: 2 * n_features] = 1.0
    mixture.fit(X, sample_weight=weights)
    assert np.all(np.isfinite(mixture.lower_bounds_)), seed
    assert np.all(np.diff(mixture.lower_bounds_) >= 0.0), seed
    assert np.all(np.isfinite(mixture.score_samples(X))), seed
    assert mixture.weights_.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(mixture.predict_proba(X).sum(axis=1), 1.0)
    has_prior = mixture.noise_prior_weight > 0.0 or mixture.weight_concentration_prior > 1.0
    if not has_prior and estimator.weight_prior is None:
        score = mixture.score(X, sample_weight=weights)
        assert mixture.lower_bound_ == pytest.approx(score, rel=1e-9, abs=1e-9)


def shaken(model: Model, seed: int) -> Model:
    """Another network, not far away."""
    rng = np.random.default_rng(seed)
    coefs = [coef + 0.3 * rng.normal(size=coef.shape) for coef in model.network.coefs]
    network = with_weights(model.network, coefs)
    return Model.build(network, model.noise)


@pytest.mark.parametrize("n_missing", [0, 60])
def test_gains_of_the_networks_bound_the_gain_of_the_mixture(n_missing):
    X = make_clusters(spread=1.0)
    X.ravel()[np.random.default_rng(0).permutation(X.size)[:n_missing]] = np.nan
    problem, state = start_of(X)
    for seed in range(5):
        models = [shaken(model, seed) for model in state.models]
        models[seed % 3] = state.models[seed % 3]
        gains = problem.gains(state, models)
        assert gains[seed % 3] == 0.0
        after = problem.evaluate(state.weights, models)
        change = after.total_weight * (after.lower_bound - state.lower_bound)
        assert change >= gains.sum() - ROUNDING
        assert np.any(gains < 0.0)


def test_networks_that_are_passed_over_do_not_matter():
    X = make_clusters(300, spread=3.0)
    problem, state = start_of(X)
    visited = NetworkVisits(state.models, log_of(state.weights), problem.network.samples)
    every = np.stack(
        [
            np.log(weight) + model.log_density(problem.network.samples, Workers())
            for weight, model in zip(state.weights, state.models, strict=True)
        ],
        axis=1,
    )
    bounds = np.stack(
        [log_density_bounds(model.visitor, problem.network.samples) for model in state.models]
    )
    assert np.all(bounds.T + np.log(state.weights) >= every)
    assert np.isinf(visited.log_joint).any()
    np.testing.assert_allclose(visited.log_density, logsumexp(every, axis=1), rtol=1e-13)
    np.testing.assert_allclose(
        visited.responsibilities.T,
        np.exp(every - logsumexp(every, axis=1, keepdims=True)),
        atol=1e-13,
    )
