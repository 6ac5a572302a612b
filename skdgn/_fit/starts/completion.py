"""Complete tables to start from: missing values filled in by a linear model.

A start needs complete samples.  Factor analysis by EM fills them in; it is rough, and only
where EM begins depends on it.  Everything is done for all samples at once: a sample's posterior
covariance is the inverse of a sum over the features that were observed.

Shapes: ``n`` samples, ``d`` features, ``q`` factors.
"""

from __future__ import annotations

import numpy as np

from skdgn._noise import KINDS, OfSamples
from skdgn._runtime import Floats

_MOST_FACTORS = 6
_ITERATIONS = 30
# Of the features' variance: keeps every step well posed, whatever the samples.
_SMALLEST_VARIANCE = 1e-2
# Samples' worth of loadings of zero: features seldom observed are not explained by chance.
_RIDGE = 2.0


def complete_samples(samples: Floats, sample_weights: Floats) -> Floats:
    """Fill in missing values of samples (n, d), centered, of unit variance, by factor analysis."""
    is_observed = ~np.isnan(samples)
    if is_observed.all():
        return samples
    known = np.where(is_observed, samples, 0.0)
    mask = is_observed.astype(np.float64)
    n_features = samples.shape[1]
    n_factors = max(1, min(_MOST_FACTORS, n_features - 1))
    weights = sample_weights / sample_weights.mean()

    # To begin with, as if the values of a feature were missing whatever the others are.
    seen = np.maximum(weights @ mask, 1.0) / len(samples)
    products = OfSamples(known / seen, weights / len(samples))
    floors = np.full(n_features, _SMALLEST_VARIANCE)
    loadings, noise = KINDS["factor"].from_gaussian(products, n_factors, floors, 0)
    variances = noise.errors
    center = np.zeros(n_features)
    for _ in range(_ITERATIONS):
        factors, second = _factor_moments(mask, known - mask * center, loadings, variances)
        center, loadings, variances = _update(mask * weights[:, None], known, factors, second)
    factors, _ = _factor_moments(mask, known - mask * center, loadings, variances)
    return np.where(is_observed, samples, center + factors @ loadings.T)


def _factor_moments(
    mask: Floats, deviations: Floats, loadings: Floats, variances: Floats
) -> tuple[Floats, Floats]:
    """Posterior mean (n, q) and second moment (n, q, q) of the factors."""
    n_features, n_factors = loadings.shape
    outer = np.einsum("dq,dp,d->dqp", loadings, loadings, 1.0 / variances)
    precisions = (mask @ outer.reshape(n_features, -1)).reshape(-1, n_factors, n_factors)
    covariances = np.linalg.inv(precisions + np.eye(n_factors))
    means = np.einsum("nqp,np->nq", covariances, deviations @ (loadings / variances[:, None]))
    return means, covariances + means[:, :, None] * means[:, None, :]


def _update(
    weights: Floats, known: Floats, factors: Floats, second: Floats
) -> tuple[Floats, Floats, Floats]:
    """Regress every feature on the factors of the samples where it was observed."""
    n_samples, n_factors = factors.shape
    n_features = known.shape[1]
    design = np.concatenate([factors, np.ones((n_samples, 1))], axis=1)
    moments = np.empty((n_samples, n_factors + 1, n_factors + 1))
    moments[:, :-1, :-1] = second
    moments[:, -1, :] = design
    moments[:, :, -1] = design
    grams = (weights.T @ moments.reshape(n_samples, -1)).reshape(n_features, *moments.shape[1:])
    targets = (weights * known).T @ design
    ridge = np.diag([_RIDGE] * n_factors + [0.0])
    solution = np.linalg.solve(grams + ridge, targets[:, :, None])[:, :, 0]
    squares = (weights * known**2).sum(axis=0) - 2.0 * np.einsum("dq,dq->d", solution, targets)
    squares += np.einsum("dq,dqp,dp->d", solution, grams, solution)
    variances = np.maximum(squares / weights.sum(axis=0), _SMALLEST_VARIANCE)
    return solution[:, -1], solution[:, :-1], variances
