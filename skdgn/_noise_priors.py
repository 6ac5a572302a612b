"""A prior for the noise of the networks of a mixture: what one of them lacks, the others know.

A network with few samples would take their scatter for its noise, which is too small in directions
that none of them happens to leave.  So its noise is estimated as if it had some more samples, with
a covariance that is common to all networks (`pool_covariances`): an inverse Wishart prior.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skdgn._floors import bound_below
from skdgn._noise import Floats, Noise
from skdgn._statistics import SufficientStatistics


@dataclass(frozen=True)
class NoisePrior:
    """An inverse Wishart prior of every network's noise: some more samples, of known covariance."""

    weight: float  # of these samples
    covariance: Floats  # (D, D)

    @classmethod
    def pool(cls, weight: float, counts: Floats, covariances: Floats, floors: Floats) -> NoisePrior:
        """Return the prior that networks with these samples (K,) and covariances have in common."""
        return cls(weight, bound_below(pool_covariances(counts, covariances), floors))

    def log_density(self, noise: Noise) -> float:
        """Log density, relative to that of these samples' own covariance."""
        if self.weight == 0.0:
            return 0.0
        whitened = noise.whiten(noise.whiten(self.covariance).T)
        _, log_determinant = np.linalg.slogdet(self.covariance)
        excess = np.trace(whitened) - len(whitened)
        return float(-0.5 * self.weight * (noise.log_determinant - log_determinant + excess))

    def join(self, statistics: SufficientStatistics) -> SufficientStatistics:
        """Add these samples to the statistics that the noise is estimated from."""
        squares = statistics.squares
        covariance = self.covariance if len(squares) > 1 else np.diagonal(self.covariance)
        return replace(
            statistics,
            squares=squares + self.weight * covariance,
            total_weight=statistics.total_weight + self.weight,
        )


def pool_covariances(counts: Floats, covariances: Floats) -> Floats:
    """Return a covariance (D, D) typical of the covariances (K, D, D) of so many samples each.

    Variances are geometric means.  In a column of a few levels, some networks are as narrow as a
    level and others span several of them; arithmetic means would forbid the narrow ones.
    Correlations are those of the mean covariance, shrunk toward none by the oracle approximating
    shrinkage (Chen et al., 2010), which is strong where features are many and samples are few.
    """
    n_samples, n_features = counts.sum(), covariances.shape[1]
    shares = counts / n_samples
    variances = np.einsum("kdd->kd", covariances)
    smallest = np.finfo(np.float64).tiny
    deviations = np.exp(0.5 * shares @ np.log(np.maximum(variances, smallest)))
    mean = np.tensordot(shares, covariances, axes=1)
    units = np.sqrt(np.maximum(np.diagonal(mean), smallest))
    correlations = mean / np.outer(units, units)
    # The formula for a matrix whose mean variance is 1.
    square = float((correlations**2).sum())
    unequal = (n_samples + 1.0 - 2.0 / n_features) * (square - n_features)
    common = (1.0 - 2.0 / n_features) * square + n_features**2
    shrinkage = 1.0 if common >= unequal else common / unequal
    correlations = (1.0 - shrinkage) * correlations + shrinkage * np.eye(n_features)
    return np.asarray(np.outer(deviations, deviations) * correlations)
