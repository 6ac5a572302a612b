"""The prior of regional noise: each region's covariance is drawn to a pooled one, learned too.

With ``N_r`` the noise covariance of region r and ``N_0`` the pooled one, the log prior is

    -(weight / 2) sum_r ( tr(N_r^-1 N_0) - log det(N_r^-1 N_0) - D ),

an inverse-Wishart density (inverse-gamma, for variances) whose mode is ``N_0``, relative to its
value there.  So a region without rows costs nothing, and partitions of different sizes can be
compared.  Given the scatter ``S_r`` of ``n_r`` rows about the generator, the maximum is at

    N_r = (S_r + weight N_0) / (n_r + weight)     and     N_0 = (mean of N_r^-1)^-1,

each given the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skdgn._network import Floats
from skdgn._noise import Noise
from skdgn._regional_noise import RegionalNoise, harmonic_mean

# Rounds of maximising over the regions' covariances and over the pooled one in turn.  They converge
# from one iteration of EM to the next.
_ROUNDS = 5


@dataclass(frozen=True)
class NoisePrior:
    """How strongly covariances are drawn to the pooled one, in rows."""

    weight: float

    @classmethod
    def of(cls, noise_prior_weight: float, covariance_type: str, n_features: int) -> NoisePrior:
        """Multiply the weight by the rows it takes to have a number for each parameter.

        That is one row for variances, but (D + 1) / 2 for a full matrix.  Rows span no more
        dimensions than there are of them: with less than D rows' worth of prior, even the pooled
        covariance could shrink to nothing in directions for which no region has rows enough.
        """
        rows = 0.5 * (n_features + 1) if covariance_type == "full" else 1.0
        return cls(rows * noise_prior_weight)

    def shares(self, counts: Floats) -> Floats:
        """How much of a region's covariance is its own, for so many rows."""
        return np.asarray(counts / (counts + self.weight))

    def log_density(self, noise: RegionalNoise) -> float:
        """Log density of the regions' covariances, relative to that of the pooled one."""
        whiteners = noise.relative_whiteners
        traces = np.square(whiteners).sum(axis=(1, 2))
        losses = traces + noise.relative_log_determinants(len(noise)) - noise.n_features
        return float(-0.5 * self.weight * losses.sum())

    def maximize(
        self,
        scatter: Floats,
        counts: Floats,
        pooled: Noise,
        smallest_variance: float,
    ) -> RegionalNoise:
        """Maximise expected log-likelihood plus log prior over all covariances.

        Parameters
        ----------
        scatter : ndarray of shape (R,), (R, D) or (R, D, D)
            Sums over rows of squared residuals; spherical: their means over features.
        counts : ndarray of shape (R,)
            Sums over rows of the regions' responsibilities.
        pooled : Noise
            The pooled covariance before.
        smallest_variance : float
        """
        n_features = pooled.n_features
        totals = (counts + self.weight).reshape(-1, *(1,) * (scatter.ndim - 1))
        # Regions without rows have the pooled covariance, whatever it is, and no say in it.
        used = np.flatnonzero(counts > 0)
        center = pooled.covariance
        covariances = np.empty_like(scatter)
        for _ in range(_ROUNDS):
            covariances = (scatter + self.weight * center) / totals
            covariances = _bound_below(covariances, smallest_variance)
            center = harmonic_mean(covariances[used])
        covariances[counts <= 0] = center
        noise = RegionalNoise.from_covariances(
            covariances, len(counts), n_features, Noise.from_covariance(center, n_features)
        )
        return replace(noise, shares=self.shares(counts))


def _bound_below(covariances: Floats, smallest_variance: float) -> Floats:
    """Raise variances, or the eigenvalues of matrices, to the smallest one allowed."""
    if covariances.ndim < 3:
        return np.maximum(covariances, smallest_variance)
    values, vectors = np.linalg.eigh(covariances)
    if values.min() >= smallest_variance:
        return covariances
    values = np.maximum(values, smallest_variance)
    bounded = (vectors * values[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    return 0.5 * (bounded + np.swapaxes(bounded, 1, 2))
