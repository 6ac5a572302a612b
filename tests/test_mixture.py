"""DGNMixture: what it contains, that its likelihood never decreases, and what users may ask."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._network import ACTIVATIONS, Activation
from skdgn._random import draw_seed
from tests.reference.factor_analyzers import FactorAnalyzers

pytestmark = pytest.mark.filterwarnings(
    "ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"
)
# The same sums in another order.
ROUNDING = 1e-9
FLAT_PRIORS = {"noise_prior_weight": 0.0, "weight_concentration_prior": 1.0}


def make_clusters(n_samples=150, n_features=3, n_clusters=3, seed=0, spread=4.0) -> np.ndarray:
    """Bent clusters, so that there is something for networks to do."""
    rng = np.random.default_rng(seed)
    members = rng.integers(n_clusters, size=n_samples)
    centers = spread * rng.normal(size=(n_clusters, n_features))
    directions = rng.normal(size=(2, n_clusters, n_features))
    latent = rng.normal(size=(n_samples, 1))
    curves = latent * directions[0, members] + (latent**2 - 1.0) * directions[1, members]
    return centers[members] + curves + 0.2 * rng.normal(size=(n_samples, n_features))


def short_mixture(n_networks=3, **parameters) -> DGNMixture:
    defaults = {"max_iter": 4, "n_restarts": 0, "random_state": 0}
    return DGNMixture(n_networks=n_networks, **(defaults | parameters))


@parametrize_with_checks([DGNMixture()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# What it contains


def test_full_noise_without_hidden_layers_is_a_gaussian_mixture():
    X = make_clusters(400, spread=1.5)
    labels = np.random.default_rng(1).integers(3, size=len(X))
    groups = [X[labels == k] for k in range(3)]
    theirs = GaussianMixture(
        3,
        reg_covar=0.0,
        tol=1e-13,
        max_iter=5000,
        weights_init=[len(group) / len(X) for group in groups],
        means_init=[group.mean(axis=0) for group in groups],
        precisions_init=[np.linalg.inv(np.cov(group.T, bias=True)) for group in groups],
    ).fit(X)
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full", reg_covar=1e-12)
    ours = DGNMixture(
        linear, 3, init_params=labels, tol=1e-13, max_iter=5000, **FLAT_PRIORS
    ).fit(X)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), atol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(ours.weights_, theirs.weights_, atol=1e-6)
    assert ours.n_parameters_ >= theirs._n_parameters()  # a latent variable that says nothing
    assert ours.bic(X) == pytest.approx(
        -2.0 * theirs.score_samples(X).sum() + ours.n_parameters_ * np.log(len(X))
    )


@pytest.mark.parametrize("n_components", [1, 2])
def test_diagonal_noise_without_hidden_layers_is_a_mixture_of_factor_analyzers(n_components):
    X = make_clusters(200, n_features=5)
    linear = PiecewiseAffineDGN(n_components, hidden_layer_sizes=(), reg_covar=1e-10)
    ours = short_mixture(estimator=linear, max_iter=2, tol=0.0, warm_start=True, **FLAT_PRIORS)
    ours.fit(X)
    reference = FactorAnalyzers(
        ours.weights_,
        [network.intercepts_[-1] for network in ours.networks_],
        [network.coefs_[-1] for network in ours.networks_],
        [network.noise_covariance_ for network in ours.networks_],
    )
    assert reference.log_likelihood(X) == pytest.approx(ours.score(X), abs=1e-9)
    ours.set_params(max_iter=10).fit(X)
    for bound in ours.lower_bounds_:
        reference.iterate(X)
        assert reference.log_likelihood(X) == pytest.approx(bound, abs=1e-6)
    np.testing.assert_allclose(ours.predict_proba(X), reference.responsibilities(X), atol=1e-5)


def test_one_network_is_that_network():
    X = make_clusters(80, n_clusters=1)
    mixture = short_mixture(1).fit(X)
    assert mixture.weights_.tolist() == [1.0]
    network = mixture.networks_[0]
    np.testing.assert_allclose(mixture.score_samples(X), network.score_samples(X), rtol=1e-12)
    np.testing.assert_allclose(mixture.transform(X), network.transform(X), rtol=1e-12)


# Its likelihood


@pytest.mark.parametrize("seed", range(200))
def test_random_fits_never_decrease(seed):
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
        n_restarts=int(seed % 5 == 0),
        max_iter=6,
        tol=0.0,
        random_state=seed,
    )
    weights = rng.choice([0.0, 0.5, 1.0, 2.3], size=n_samples) if seed % 3 == 0 else None
    if weights is not None:
        weights[: 2 * n_features] = 1.0
    mixture.fit(X, sample_weight=weights)
    assert np.all(np.isfinite(mixture.lower_bounds_))
    assert np.all(np.diff(mixture.lower_bounds_) >= 0.0)
    assert np.all(np.isfinite(mixture.score_samples(X)))
    assert mixture.weights_.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(mixture.predict_proba(X).sum(axis=1), 1.0)
    if mixture.noise_prior_weight == 0.0 and mixture.weight_concentration_prior == 1.0:
        if estimator.weight_prior is None:
            score = mixture.score(X, sample_weight=weights)
            assert mixture.lower_bound_ == pytest.approx(score, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("covariance_type", ["spherical", "diag", "full"])
@pytest.mark.parametrize("seed", range(5))
def test_never_below_the_gaussian_mixture_it_starts_from(covariance_type, seed):
    X = np.unique(make_clusters(200, 4, n_clusters=4, seed=seed, spread=2.0), axis=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    generator = np.random.default_rng(draw_seed(seed))
    gaussians = GaussianMixture(
        4,
        covariance_type=covariance_type,
        random_state=int(generator.integers(2**31 - 1)),
    ).fit(X)
    estimator = PiecewiseAffineDGN(hidden_layer_sizes=(4,), covariance_type=covariance_type)
    mixture = DGNMixture(
        estimator, 4, max_iter=1, n_restarts=0, random_state=seed, **FLAT_PRIORS
    ).fit(X)
    assert mixture.score(X) >= gaussians.score(X) - 1e-9
