"""The prior of regional noise: each region's covariance is drawn to a pooled one, learned too.

With ``N_r`` the noise covariance of region r and ``N_0`` the pooled one, the log prior is

    -(weight / 2) sum_r ( tr(N_r^-1 N_0) - log det(N_r^-1 N_0) - D ),

an inverse-Wishart density (inverse-gamma, for variances) whose mode is ``N_0``, relative to its
value there.  So a region without rows costs nothing, and partitions of different sizes can be
compared.  Given the scatter ``S_r`` of ``n_r`` rows about the generator, the maximum is at

    N_r = (S_r + weight N_0) / (n_r + weight)     and     N_0 = (mean of N_r^-1)^-1,

each given the other.  Taking turns is safe, but slow where the weight is large; where both hold,
``N_0 = sum_r S_r N_r^-1 N_0 / sum_r n_r`` holds too (multiply the first by ``N_r^-1`` and ``N_0``),
which leads to the covariance of all residuals at once if the weight is large.  Each round takes the
better of the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skdgn._network import Floats
from skdgn._noise import Noise
from skdgn._regional_noise import RegionalNoise

# Rounds of maximising over the regions' covariances and over the pooled one.  They go on with the
# next iteration of EM.
_ROUNDS = 4


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
        used = np.flatnonzero(counts > 0)
        sums, rows = _as_blocks(scatter[used]), counts[used, None, None, None]
        center = _as_blocks(pooled.covariance[None])[0]

        def best_covariances(center: Floats) -> Floats:
            covariances = (sums + self.weight * center) / (rows + self.weight)
            return _bound_below(covariances, smallest_variance)

        def value(center: Floats, covariances: Floats) -> float:
            traces = np.linalg.solve(covariances, sums + self.weight * center)
            own = (rows[..., 0, 0] + self.weight) * np.linalg.slogdet(covariances)[1]
            pull = self.weight * np.linalg.slogdet(center)[1]
            return float(-0.5 * (np.trace(traces, axis1=2, axis2=3) + own - pull).sum())

        covariances = best_covariances(center)
        for _ in range(_ROUNDS):
            pulled = (sums @ np.linalg.solve(covariances, center)).sum(axis=0) / rows.sum()
            pulled = 0.5 * (pulled + np.swapaxes(pulled, 1, 2))
            centers = [_harmonic_mean(covariances), _bound_below(pulled, smallest_variance)]
            trials = [(trial, best_covariances(trial)) for trial in centers]
            center, covariances = max(trials, key=lambda trial: value(*trial))
        # Regions without rows have the pooled covariance, whatever it is, and no say in it.
        blocks = np.tile(center, (len(counts), 1, 1, 1))
        blocks[used] = covariances
        noise = RegionalNoise.from_covariances(
            blocks.reshape(scatter.shape),
            len(counts),
            pooled.n_features,
            Noise.from_covariance(center.reshape(scatter.shape[1:]), pooled.n_features),
        )
        return replace(noise, shares=self.shares(counts))


def _as_blocks(covariances: Floats) -> Floats:
    """View covariances (R, ...) as blocks on the diagonals of matrices: (R, blocks, m, m)."""
    if covariances.ndim == 3:
        return covariances[:, None]
    return covariances.reshape(len(covariances), -1, 1, 1)


def _harmonic_mean(blocks: Floats) -> Floats:
    mean = np.linalg.inv(np.linalg.inv(blocks).mean(axis=0))
    return np.asarray(0.5 * (mean + np.swapaxes(mean, 1, 2)))


def _bound_below(blocks: Floats, smallest_variance: float) -> Floats:
    """Raise eigenvalues to the smallest one allowed."""
    values, vectors = np.linalg.eigh(blocks)
    if values.min() >= smallest_variance:
        return blocks
    values = np.maximum(values, smallest_variance)
    bounded = (vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.asarray(0.5 * (bounded + np.swapaxes(bounded, -1, -2)))
