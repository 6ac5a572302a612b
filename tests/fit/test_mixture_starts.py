"""Where mixtures begin: from Gaussian mixtures."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.mixture import GaussianMixture

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._fit.starts.growth import write_linear_network
from skdgn._network import ACTIVATIONS, Activation, Architecture
from skdgn._noise import KINDS, Dense
from skdgn._runtime.seeds import draw_seed
from tests.mixtures import FLAT_PRIORS, ROUNDING, make_clusters, short_mixture, start_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:EM did not converge:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:The noise of feature:UserWarning"),  # rounded tables
]


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
        estimator, 4, max_iter=1, refine=False, random_state=seed, **FLAT_PRIORS
    ).fit(X)
    assert mixture.score(X) >= gaussians.score(X) - 1e-9


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("n_components", [1, 2])
@pytest.mark.parametrize("widths", [(), (1,), (2,), (5,), (4, 4), (3, 1), (2, 6, 4)])
def test_a_linear_map_is_written_as_a_network_exactly(activation, n_components, widths):
    rng = np.random.default_rng(0)
    slopes, mean = rng.normal(size=(3, n_components)), rng.normal(size=3)
    if widths:  # no more dimensions than the narrowest layer has units get through
        slopes[:, min(widths) :] = 0.0
    network = write_linear_network(
        slopes,
        mean,
        Architecture.alike(slopes.shape[1], widths, Activation.from_name(activation, 0.1)),
    )
    assert network.hidden_layer_sizes == widths
    latent = rng.normal(size=(100, n_components))
    np.testing.assert_allclose(network.forward(latent), latent @ slopes.T + mean, atol=1e-13)


@pytest.mark.parametrize("n_components", [1, 3, 5])
def test_a_covariance_is_split_into_slopes_and_noise(n_components):
    rng = np.random.default_rng(n_components)
    root = rng.normal(size=(4, 4))
    floors = np.array([0.5, 1e-6, 1e-6, 1e-6])
    covariance = KINDS["full"].bound_below(root @ root.T, floors)
    slopes, noise = KINDS["full"].from_gaussian(Dense(covariance), n_components, floors, 0)
    assert not slopes.any()
    slopes, noise = noise.hand_over(slopes, floors)
    np.testing.assert_allclose(noise.matrix + slopes @ slopes.T, covariance, atol=1e-13)
    assert slopes.shape == (4, n_components)
    assert np.any(slopes)
    rest = (covariance - slopes @ slopes.T) / np.sqrt(np.outer(floors, floors))
    assert np.linalg.eigvalsh(rest)[0] >= 1.0 - 1e-8


@pytest.mark.parametrize("covariance_type", ["spherical", "diag"])
def test_factors_are_at_least_as_likely_as_none(covariance_type):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(5, 5)) * rng.lognormal(size=5)
        covariance, floors = root @ root.T, np.full(5, 1e-9)
        kind = KINDS[covariance_type]
        slopes, noise = kind.from_gaussian(Dense(covariance), 2, floors, 0)
        model = slopes @ slopes.T + noise.matrix
        plain = kind.from_variances(covariance.diagonal()).matrix
        with_factors, without = (
            -np.linalg.slogdet(matrix)[1] - np.trace(np.linalg.solve(matrix, covariance))
            for matrix in (model, plain)
        )
        assert with_factors >= without - ROUNDING


@pytest.mark.parametrize("init_params", ["kmeans", "random", "labels", "responsibilities"])
def test_other_starts(init_params):
    X = make_clusters(spread=3.0)
    labels = np.arange(len(X)) % 3
    start = {"labels": labels, "responsibilities": np.full((len(X), 3), 1.0 / 3.0)}
    mixture = short_mixture(init_params=start.get(init_params, init_params)).fit(X)
    assert np.all(np.diff(mixture.lower_bounds_) >= 0.0)
    assert np.all(np.isfinite(mixture.score_samples(X)))


def test_responsibilities_of_a_fit_are_where_it_was():
    X = make_clusters(spread=1.5)
    linear = PiecewiseAffineDGN(hidden_layer_sizes=(), covariance_type="full")
    first = short_mixture(estimator=linear, max_iter=50, tol=1e-9, **FLAT_PRIORS).fit(X)
    shares = first.predict_proba(X)
    again = clone(first).set_params(init_params=shares, max_iter=1).fit(X)
    assert again.lower_bound_ == pytest.approx(first.lower_bound_, abs=1e-6)


def test_weights_and_missing_values_start_from_linear_networks():
    X = make_clusters(spread=3.0)
    X[::7, 1] = np.nan
    _, state = start_of(X, weights=np.linspace(0.5, 1.5, len(X)), **FLAT_PRIORS)
    _, clusters = start_of(
        X, weights=np.linspace(0.5, 1.5, len(X)), init_params="kmeans", **FLAT_PRIORS
    )
    assert state.lower_bound > clusters.lower_bound
