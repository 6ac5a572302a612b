"""A kind of noise is one class: everything else finds it by its registration."""

from __future__ import annotations

import numpy as np
import pytest

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._noise import KINDS
from skdgn._noise.full import Full
from skdgn._noise.gaussian import Noise


class Equicorrelated(Full):
    """One variance for all features, and one covariance of any two of them."""

    covariance_type = "equicorrelated"
    n_parameters = 2

    @classmethod
    def shape(cls, n_features):
        return (2,)  # a variance and a covariance

    @property
    def shown(self):
        return self.covariance[0, :2]

    @classmethod
    def read(cls, values, n_features):
        variance, covariance = values
        identity = np.eye(n_features)
        return cls.of(variance * identity + covariance * (1.0 - identity), n_features)

    @classmethod
    def bound_below(cls, covariance, floors):
        n_features = len(covariance)
        total, common = np.trace(covariance), covariance.sum() / n_features  # 1' S 1 / D
        # The eigenvalues of the likeliest such matrix, along the diagonal and across it.
        along = max(common, floors.mean())
        across = max((total - common) / (n_features - 1), floors.mean())
        return across * np.eye(n_features) + (along - across) / n_features

    @classmethod
    def units_of(cls, variances):
        return np.full_like(variances, variances.mean())

    @classmethod
    def from_gaussian(cls, covariance, n_components, floors, n_factors):
        slopes = np.zeros((len(floors), n_components))
        return slopes, cls.of(cls.bound_below(covariance.matrix, floors), len(floors))

    def hand_over(self, slopes, floors):
        return Noise.hand_over(self, slopes, floors)

    def restrict(self, features):
        restricted = super().restrict(features)
        return self.of(restricted.matrix, features.size) if features.size else restricted


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(KINDS, "equicorrelated", Equicorrelated)
    constraints = PiecewiseAffineDGN._parameter_constraints
    monkeypatch.setitem(constraints, "covariance_type", [str])


def make_samples(n_samples: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    t = rng.normal(size=n_samples)
    curve = np.stack([t, np.sin(2.0 * t), np.abs(t), 0.5 * t], axis=1)
    common, own = rng.normal(size=(n_samples, 1)), rng.normal(size=curve.shape)
    samples = curve + 0.2 * common + 0.1 * own  # variance 0.05, covariance 0.04
    samples[rng.random(samples.shape) < 0.1] = np.nan
    return samples


@pytest.mark.parametrize("m_step", ["joint", "layerwise"])
def test_a_new_kind_needs_a_class_and_its_registration(registered, m_step):
    X = make_samples(400)
    model = PiecewiseAffineDGN(
        hidden_layer_sizes=(4,),
        covariance_type="equicorrelated",
        m_step=m_step,
        tol=1e-2,
        random_state=0,
    ).fit(X)
    assert np.all(np.diff(model.lower_bounds_) >= 0.0)
    noise = model._fitted_model().noise
    assert isinstance(noise, Equicorrelated)
    np.testing.assert_allclose(noise.matrix[0], [model.noise_covariance_[i] for i in (0, 1, 1, 1)])
    assert model.noise_covariance_[1] > 0.3 * model.noise_covariance_[0]
    # The same matrix, given as a full one.
    full = PiecewiseAffineDGN.from_network(
        model.coefs_, model.intercepts_, noise.matrix, activation="leaky_relu"
    )
    np.testing.assert_allclose(full.score_samples(X), model.score_samples(X), rtol=1e-10)
    assert full.n_parameters_ - model.n_parameters_ == 10 - 2


def test_mixtures_of_it(registered):
    X = make_samples(200)
    network = PiecewiseAffineDGN(hidden_layer_sizes=(2,), covariance_type="equicorrelated")
    mixture = DGNMixture(network, 2, tol=0.1, random_state=0).fit(X)
    assert np.all(np.diff(mixture.lower_bounds_) >= 0.0)
    mixture.partial_fit(make_samples(50))
    for own in mixture.networks_:
        matrix = own._fitted_model().noise.matrix
        off_diagonal = matrix[~np.eye(4, dtype=bool)]
        np.testing.assert_allclose(off_diagonal, off_diagonal[0], rtol=1e-9)
