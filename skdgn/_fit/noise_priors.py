"""A prior for the noise of the networks of a mixture: what one of them lacks, the others know.

A network with few samples would take their scatter for its noise, which is too small in directions
that none of them happens to leave.  So its noise is estimated as if it had some more samples, with
a covariance that is common to all networks (`pool_covariances`): an inverse Wishart prior.  How
many more, the networks themselves tell: the more alike their noise is, the more
(`estimate_weight`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from skdgn._fit.statistics import SufficientStatistics
from skdgn._noise import KINDS, Noise, raise_matrix
from skdgn._runtime import Floats

# The least weight that is tried.  The most is the number of features: by more, the noise would stay
# where it was when the prior was made.
_LEAST_WEIGHT = 0.03
_N_WEIGHTS = 16


@dataclass(frozen=True)
class NoisePrior:
    """An inverse Wishart prior of every network's noise: some more samples, of known covariance."""

    weight: float  # of these samples
    covariance: Floats  # (D, D)

    @classmethod
    def pool(
        cls,
        weight: float | None,
        counts: Floats,
        covariances: Floats,
        n_estimated: Floats | float,
        covariance_type: str,
        floors: Floats,
    ) -> NoisePrior:
        """Return what noises (K, D, D) of networks with so many samples (K,) have in common.

        If the weight is None, it is the one that explains these noises best, given that so many
        parameters were estimated for each feature of a network, or (K,) of the networks.
        """
        covariance = raise_matrix(pool_covariances(counts, covariances), floors)
        if weight is None:
            weight = estimate_weight(counts, covariances, n_estimated, covariance, covariance_type)
        return cls(weight, covariance)

    @cached_property
    def _log_determinant(self) -> float:
        return float(np.linalg.slogdet(self.covariance)[1])

    def log_density(self, noise: Noise) -> float:
        """Log density, relative to that of these samples' own covariance."""
        if self.weight == 0.0:
            return 0.0
        whitened = noise.whiten(noise.whiten(self.covariance).T)
        excess = np.trace(whitened) - len(whitened)
        return float(-0.5 * self.weight * (noise.log_determinant - self._log_determinant + excess))

    def join(self, statistics: SufficientStatistics, kind: type[Noise]) -> SufficientStatistics:
        """Add these samples to the statistics that noise of a kind is estimated from."""
        return replace(
            statistics,
            squares=statistics.squares + self.weight * kind.squares_of(self.covariance),
            total_weight=statistics.total_weight + self.weight,
        )

    def part(self, covariance: Floats, count: float) -> Floats:
        """Take these samples away again from a covariance (D, D) to which others have added."""
        more = self.weight / max(count, 1.0)
        return covariance + more * (covariance - self.covariance)


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


def estimate_weight(
    counts: Floats,
    covariances: Floats,
    n_estimated: Floats | float,
    common: Floats,
    covariance_type: str,
) -> float:
    """Return the weight of the prior that makes the covariances (K, D, D) of samples likeliest.

    Given the prior, the scatter of a network's samples has a density in closed form, with the
    covariance integrated out: empirical Bayes.
    """
    kind = KINDS[covariance_type]
    if len(counts) < kind.fewest_to_compare:
        return 0.0  # it has nothing but its own variances to be compared with
    scatters = counts[:, None, None] * covariances
    # What is left of the samples once the network has gone where they are.
    counts = np.maximum(counts - n_estimated, 0.0)
    weights = np.geomspace(_LEAST_WEIGHT, max(len(common), 1.0), _N_WEIGHTS)
    evidences = [kind.log_evidence(counts, scatters, common, weight) for weight in weights]
    return float(weights[np.argmax(evidences)])
