"""The prior that the networks of a mixture have in common."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from sklearn.covariance import oas

from skdgn import DGNMixture, PiecewiseAffineDGN
from skdgn._fit.m_step.noise_priors import NoisePrior, estimate_weight
from skdgn._noise import KINDS, Dense
from skdgn._noise.gaussian import Noise
from skdgn._noise.pooling import pool_covariances

TYPES = ("spherical", "diag", "full")


def draw_covariances(spread, n_networks, n_samples, n_features, seed):
    """Covariances of samples, from networks whose deviations differ by factors of exp(spread)."""
    rng = np.random.default_rng(seed)
    deviations = np.exp(spread * rng.normal(size=(n_networks, n_features)))
    samples = deviations[:, None] * rng.normal(size=(n_networks, n_samples, n_features))
    return np.array([np.cov(own.T, bias=True) for own in samples])


def test_the_pooled_covariance_is_the_shrunk_one_of_equal_networks():
    samples = np.random.default_rng(0).normal(size=(40, 6)) @ np.diag([1, 2, 3, 1, 1, 1])
    samples -= samples.mean(axis=0)
    scales = samples.std(axis=0)
    covariance = samples.T @ samples / len(samples)
    pooled = pool_covariances(np.array([30.0, 10.0]), np.array([covariance, covariance]))
    correlations, _ = oas(samples / scales, assume_centered=True)
    np.testing.assert_allclose(pooled, correlations * np.outer(scales, scales), rtol=1e-12)


def test_pooled_variances_are_geometric_means():
    covariances = np.array([np.diag([1.0, 1e-4]), np.diag([4.0, 1.0])])
    pooled = pool_covariances(np.array([10.0, 10.0]), covariances)
    np.testing.assert_allclose(np.diagonal(pooled), [2.0, 1e-2], rtol=1e-12)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_evidence_is_the_integral_over_variances(covariance_type):
    common, weight = 0.7, 1.5
    values = []
    for count, scatter in ((4.0, 3.0), (9.0, 1.2)):
        prior = scipy.stats.invgamma(0.5 * (weight + 2.0), scale=0.5 * weight * common)
        assert prior.mean() == pytest.approx(common)

        def integrand(variance, count=count, scatter=scatter, prior=prior):
            likelihood = variance ** (-0.5 * count) * np.exp(-0.5 * scatter / variance)
            return likelihood * prior.pdf(variance)

        value, _ = scipy.integrate.quad(integrand, 0.0, np.inf)
        # Terms that do not depend on the prior are left out.
        values.append(np.log(value) - 0.5 * count * np.log(2.0))
    found = KINDS[covariance_type].log_evidence(
        np.array([4.0, 9.0]),
        [Dense(np.array([[3.0]])), Dense(np.array([[1.2]]))],
        Dense(np.array([[common]])),
        weight,
    )
    assert found == pytest.approx(sum(values), rel=1e-8)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_like_noises_tell_of_a_strong_prior_and_unlike_ones_of_a_weak_one(covariance_type):
    counts = np.full(12, 60.0)
    weights = []
    for spread in (0.0, 2.0):
        covariances = draw_covariances(spread, 12, 60, 4, seed=0)
        if covariance_type != "full":
            covariances *= np.eye(4)
        if covariance_type == "spherical":
            covariances = covariances.mean(axis=(1, 2))[:, None, None] * 4.0 * np.eye(4)
        common = Dense(pool_covariances(counts, covariances))
        dense = [Dense(own) for own in covariances]
        weights.append(estimate_weight(counts, dense, 1.0, common, covariance_type))
    assert weights[0] == pytest.approx(4.0)  # as many as there are features: the most
    assert weights[1] < 1.0


@pytest.mark.parametrize("covariance_type", ["spherical", "diag"])
def test_a_single_network_has_nobody_to_learn_variances_from(covariance_type):
    identity = Dense(np.eye(2))
    assert estimate_weight(np.array([9.0]), [identity], 1.0, identity, covariance_type) == 0.0


def test_samples_of_the_prior_can_be_taken_away_again():
    prior = NoisePrior(3.0, Noise.from_covariance([1.0, 2.0], 2))
    own = np.array([[0.5, 0.1], [0.1, 0.4]])
    joined = Noise.from_covariance((20.0 * own + 3.0 * prior.common.matrix) / 23.0, 2)
    parted = prior.part(joined, 20.0, np.full(2, 1e-9))
    np.testing.assert_allclose(parted.matrix, own, rtol=1e-12)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_the_prior_helps_where_samples_are_few(covariance_type):
    rng = np.random.default_rng(0)
    centers = 6.0 * rng.normal(size=(4, 8))
    samples = centers[rng.integers(4, size=460)] + rng.normal(size=(460, 8))
    network = PiecewiseAffineDGN(1, hidden_layer_sizes=(2,), covariance_type=covariance_type)
    scores = [
        DGNMixture(network, 4, noise_prior_weight=weight, refine=False, random_state=0)
        .fit(samples[:60])
        .score(samples[60:])
        for weight in ("auto", 0.0)
    ]
    assert scores[0] > scores[1]
