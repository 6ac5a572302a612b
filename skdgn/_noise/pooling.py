"""What the noises of several networks have in common.

Variances are geometric means.  In a column of a few levels, some networks are as narrow as a level
and others span several of them; arithmetic means would forbid the narrow ones.  Correlations are
those of the mean covariance, shrunk toward none by the oracle approximating shrinkage (Chen et al.,
2010), which is strong where features are many and samples are few.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import multigammaln

from skdgn._noise.covariances import Covariance
from skdgn._runtime import Floats

_SMALLEST = np.finfo(np.float64).tiny


def pool_covariances(counts: Floats, covariances: Floats) -> Floats:
    """Return a covariance (D, D) typical of the covariances (K, D, D) of so many samples each."""
    deviations = _typical_deviations(counts, np.einsum("kdd->kd", covariances))
    mean = np.tensordot(counts / counts.sum(), covariances, axes=1)
    units = np.sqrt(np.maximum(np.diagonal(mean), _SMALLEST))
    correlations = mean / np.outer(units, units)
    shrinkage = _oracle_shrinkage(counts.sum(), len(mean), float((correlations**2).sum()))
    correlations = (1.0 - shrinkage) * correlations + shrinkage * np.eye(len(mean))
    return np.asarray(np.outer(deviations, deviations) * correlations)


def pool_factors(counts: Floats, covariances: Sequence[Covariance]) -> tuple[Floats, Floats]:
    """Return loadings (D, q) and variances (D,) of what features do not share, alike.

    Of the covariances, what is not explained by factors counts as independent.
    """
    shares = counts / counts.sum()
    variances = np.array([own.variances for own in covariances])
    deviations = _typical_deviations(counts, variances)
    pairs = zip(shares, covariances, strict=True)
    loadings = np.concatenate([np.sqrt(share) * own.loadings for share, own in pairs], axis=1)
    # Correlations are ``L L' + diag(1 - squares)``.
    loadings = loadings / np.sqrt(np.maximum(shares @ variances, _SMALLEST))[:, None]
    squares = np.square(loadings).sum(axis=1)
    total = float(np.square(loadings.T @ loadings).sum() - np.square(squares).sum())
    shrinkage = _oracle_shrinkage(counts.sum(), len(loadings), total + len(loadings))
    loadings = np.sqrt(1.0 - shrinkage) * loadings
    own = np.maximum(1.0 - np.square(loadings).sum(axis=1), 0.0)
    return loadings * deviations[:, None], own * deviations**2


def log_wishart_evidence(
    counts: Floats, before: float, after: Floats, n_features: int, weight: float
) -> float:
    """Log density of scatters of so many samples (K,), given an inverse Wishart prior.

    By log determinants of the prior's scatter, and of that with the scatter of each (K,) added.
    """
    freedom = weight + n_features + 1.0  # the mean of the prior is the common covariance
    total = 0.5 * (freedom * before - (freedom + counts) * after)
    total += multigammaln(0.5 * (freedom + counts), n_features)
    return float(np.sum(total - multigammaln(0.5 * freedom, n_features)))


def _typical_deviations(counts: Floats, variances: Floats) -> Floats:
    """Geometric means of deviations, given variances (K, D)."""
    return np.exp(0.5 * (counts / counts.sum()) @ np.log(np.maximum(variances, _SMALLEST)))


def _oracle_shrinkage(n_samples: float, n_features: int, square: float) -> float:
    """How far to shrink correlations, given the sum of their squares: from 0 to 1.

    The formula for a matrix whose mean variance is 1.
    """
    unequal = (n_samples + 1.0 - 2.0 / n_features) * (square - n_features)
    common = (1.0 - 2.0 / n_features) * square + n_features**2
    return 1.0 if common >= unequal else common / unequal
