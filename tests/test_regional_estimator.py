"""The estimator with regional noise: attributes, warm starts, choice of the noise, bad input."""

from __future__ import annotations

import math
import pickle
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from skdgn import PiecewiseAffineDGN
from skdgn._noise import COVARIANCE_TYPES
from skdgn.datasets import make_noisy_circle
from tests.networks import random_network
from tests.regional_models import D, fit_quietly, model_of


@pytest.fixture(scope="module")
def fitted() -> PiecewiseAffineDGN:
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(4,), noise="regional", max_iter=5, init_params="pca", random_state=0
    )
    return fit_quietly(model, make_noisy_circle(120, random_state=0))


def test_density_integrates_to_one(fitted: PiecewiseAffineDGN) -> None:
    ticks = np.linspace(-4.0, 4.0, 801)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    volume = np.exp(fitted.score_samples(grid)).sum() * (ticks[1] - ticks[0]) ** 2
    assert volume == pytest.approx(1.0, abs=1e-4)


def test_fitted_shapes_and_pickles(fitted: PiecewiseAffineDGN) -> None:
    assert fitted.noise_covariance_.shape == (fitted.n_regions_, 2)
    assert fitted.pooled_noise_covariance_.shape == (2,)
    rows = make_noisy_circle(30, random_state=1)
    rows[:5, 0] = np.nan
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.score_samples(rows), fitted.score_samples(rows))
    same = PiecewiseAffineDGN.from_network(
        fitted.coefs_,
        fitted.intercepts_,
        fitted.noise_covariance_,
        activation="leaky_relu",
        noise="regional",
    )
    np.testing.assert_allclose(same.score_samples(rows), fitted.score_samples(rows), atol=1e-12)
    # Covariances that were given count in full.
    assert same.n_parameters_ == 4 + 4 + 8 + 2 - 4 + 2 * same.n_regions_
    assert fitted.n_parameters_ < same.n_parameters_


def test_warm_start_goes_on_where_the_last_fit_ended(fitted: PiecewiseAffineDGN) -> None:
    rows = make_noisy_circle(120, random_state=0)
    again = pickle.loads(pickle.dumps(fitted)).set_params(warm_start=True, max_iter=2)
    end = fitted.lower_bound_
    fit_quietly(again, rows)
    assert again.lower_bounds_[0] >= end - 1e-9
    again.set_params(noise="shared")
    with pytest.raises(ValueError, match="needs the noise of the last fit, regional, got shared"):
        again.fit(rows)
    again.set_params(warm_start=False)
    fit_quietly(again, rows)
    assert not hasattr(again, "pooled_noise_covariance_")
    assert again.noise_covariance_.shape == (2,)


def test_grid_search_chooses_the_noise() -> None:
    # Noise that grows along a line, ten times from one end to the other.
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(300, 1))
    rows = np.hstack([latent, latent]) * 2.0
    rows += rng.normal(size=rows.shape) * np.where(latent > 0.0, 0.5, 0.05)
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(2,), init_params="pca", max_iter=30, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = GridSearchCV(model, {"noise": ["shared", "regional"]}, cv=3).fit(rows)
        shared, regional = (
            model.set_params(noise=noise).fit(rows).bic(rows) for noise in ("shared", "regional")
        )
    assert search.best_params_ == {"noise": "regional"}
    assert regional < shared


@pytest.mark.parametrize(
    ("covariance", "noise", "message"),
    [
        (np.ones(3), "regional", r"of 5 regions must have shape \(5,\), .* got shape \(3,\)"),
        (np.ones((5, 2)), "regional", r"got shape \(5, 2\)"),
        (-np.ones(5), "regional", "must be positive, got a variance of -1.0"),
        (np.full((5, 3), np.nan), "regional", "must be finite, got nan"),
        ("much", "regional", "must be an array of numbers, got 'much'"),
        (1.0, "local", 'noise must be "shared" or "regional", got \'local\''),
    ],
)
def test_bad_covariances_are_refused(covariance: object, noise: str, message: str) -> None:
    network = random_network(1, (4,), n_features=D, seed=5)
    with pytest.raises(ValueError, match=message):
        model_of(network, covariance, noise)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"noise": "local"}, "The 'noise' parameter .* Got 'local'"),
        ({"noise_prior_weight": 0.0}, "The 'noise_prior_weight' parameter .* Got 0.0"),
        ({"noise_prior_weight": math.nan}, "The 'noise_prior_weight' parameter .* Got nan"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PiecewiseAffineDGN(**parameters).fit(np.zeros((3, 2)))


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_a_prior_beyond_all_rows_fits_shared_noise(kind: str) -> None:
    rows = make_noisy_circle(150, random_state=0)
    parameters = {
        "hidden_layer_sizes": (5,), "covariance_type": kind, "init_params": "pca", "max_iter": 5,
        "random_state": 0,
    }  # fmt: skip
    shared = fit_quietly(PiecewiseAffineDGN(**parameters), rows)
    regional = fit_quietly(
        PiecewiseAffineDGN(**parameters, noise="regional", noise_prior_weight=1e12), rows
    )
    # It begins where as many iterations with shared noise ended.
    assert regional.lower_bounds_[0] >= shared.lower_bound_ - 1e-9
    equal = model_of(regional._fitted_model().network, regional.pooled_noise_covariance_, "shared")
    assert regional.score(rows) == pytest.approx(equal.score(rows), abs=1e-6)
    np.testing.assert_allclose(
        regional.noise_covariance_,
        np.broadcast_to(regional.pooled_noise_covariance_, regional.noise_covariance_.shape)
        if kind != "spherical"
        else np.full(regional.n_regions_, regional.pooled_noise_covariance_),
        rtol=1e-6,
    )
    assert regional.n_parameters_ == pytest.approx(shared.n_parameters_, abs=1e-6)
