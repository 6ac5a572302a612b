"""Noise that follows the manifold: one covariance for each region of latent space.

Rows cannot be whitened once and for all if every region has a unit of its own.  So everything is
measured in units of one reference, the pooled covariance, and each region has a whitener
relative to it: with ``N_0 = L_0 L_0'`` and ``N_r = L_r L_r'``, the whitener of region r is
``W_r = L_r^-1 L_0``, again lower triangular, and the identity where the two noises are equal.

Shapes: ``R`` regions, ``D`` features, ``M`` is 1 where only the diagonal of a matrix is stored, and
D otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdgn._noise import COVARIANCE_TYPES, Floats, Noise, rescale_covariance

Integers = NDArray[np.intp]


@dataclass(frozen=True)
class RegionalNoise:
    """A noise covariance for each region, and the one they were shrunk to.

    ``covariance`` is (R,) variances (spherical), (R, D) variances (diag) or (R, D, D) (full);
    ``factor`` has the same shape and holds standard deviations or lower Cholesky factors.
    """

    covariance: Floats
    factor: Floats
    pooled: Noise
    shares: Floats  # (R,) how much of each covariance is its own, not the pooled one's

    @classmethod
    def from_covariances(
        cls, covariances: ArrayLike, n_regions: int, n_features: int, pooled: Noise | None = None
    ) -> RegionalNoise:
        """Check covariances given as variances (R,), (R, D) or as matrices (R, D, D).

        Without a pooled covariance, it is the likeliest one: the harmonic mean.
        """
        try:
            values = np.array(covariances, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"noise_covariance must be an array of numbers, got {covariances!r}."
            ) from error
        shapes = [(n_regions, *shape) for shape in ((), (n_features,), (n_features, n_features))]
        if values.shape not in shapes:
            raise ValueError(
                f"noise_covariance of {n_regions} regions must have shape "
                f"{shapes[0]}, {shapes[1]} or {shapes[2]}, got shape {values.shape}."
            )
        noises = [Noise.from_covariance(value, n_features) for value in values]
        values = np.stack([noise.covariance for noise in noises])
        if pooled is None:
            pooled = Noise.from_covariance(harmonic_mean(values), n_features)
        factors = np.stack([noise.factor for noise in noises])
        return cls(values, factors, pooled, np.ones(n_regions))

    @classmethod
    def uniform(cls, noise: Noise, n_regions: int) -> RegionalNoise:
        """Give all regions the same noise."""

        def repeat(array: Floats) -> Floats:
            return np.tile(array, (n_regions,) + (1,) * array.ndim)

        return cls(repeat(noise.covariance), repeat(noise.factor), noise, np.zeros(n_regions))

    def __len__(self) -> int:
        return len(self.covariance)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.pooled.n_features

    @property
    def covariance_type(self) -> str:
        """Return ``"spherical"``, ``"diag"`` or ``"full"``."""
        return COVARIANCE_TYPES[self.covariance.ndim - 1]

    @property
    def n_parameters(self) -> float:
        """Effective number of free parameters.

        Each covariance counts by its share; the pooled one stands for what is left of all
        others, and counts once at most.
        """
        own = float(self.shares.sum())
        return self.pooled.n_parameters * (own + min(1.0, len(self) - own))

    @property
    def reference(self) -> Noise:
        """The noise in whose units everything is measured."""
        return self.pooled

    @cached_property
    def relative_whiteners(self) -> Floats:
        """Whiteners (R, D, M) of what is in units of the reference."""
        if self.covariance.ndim < 3:
            ratios = self.pooled.factor / self.factor
            ratios = np.broadcast_to(ratios.reshape(len(self), -1), (len(self), self.n_features))
            return np.ascontiguousarray(ratios[:, :, None])
        # Triangular but for rounding.
        return np.ascontiguousarray(np.tril(np.linalg.solve(self.factor, self.pooled.factor)))

    def relative_log_determinants(self, n_regions: int) -> Floats:
        """Log determinants (R,) of the regions' covariances, in units of the reference."""
        whiteners = self.relative_whiteners
        if whiteners.shape[2] == 1:
            diagonals = whiteners[:, :, 0]
        else:
            diagonals = np.diagonal(whiteners, axis1=1, axis2=2)
        return np.asarray(-2.0 * np.log(diagonals).sum(axis=1), dtype=np.float64)

    def relative_spreads(self, n_regions: int) -> Floats:
        """Largest variances (R,) of the regions' noise, in units of the reference."""
        whiteners = self.relative_whiteners
        if whiteners.shape[2] == 1:
            return np.asarray(whiteners[:, :, 0].min(axis=1) ** -2.0)
        return np.asarray(np.linalg.norm(whiteners, -2, axis=(1, 2)) ** -2.0)

    def restrict(self, features: Integers) -> RegionalNoise:
        """Return the noise of some of the features."""
        covariance = self.covariance
        if covariance.ndim == 2:
            covariance = covariance[:, features]
        elif covariance.ndim == 3:
            covariance = covariance[:, features[:, None], features]
        if features.size == 0:  # no feature has no covariance
            covariance = np.ones(len(self))
        pooled = self.pooled.restrict(features)
        return self._with_covariance(covariance, pooled)

    def rescale(self, factors: Floats) -> RegionalNoise:
        """Return the noise of features multiplied by factors (D,), equal ones if spherical."""
        covariance = rescale_covariance(self.covariance, factors, self.covariance.ndim - 1)
        return self._with_covariance(covariance, self.pooled.rescale(factors))

    def take(self, regions: Integers) -> RegionalNoise:
        """Return the noise of these regions."""
        return replace(
            self,
            covariance=self.covariance[regions],
            factor=self.factor[regions],
            shares=self.shares[regions],
        )

    def color_at(self, regions: Integers, rows: Floats) -> Floats:
        """Turn rows (n, D) from N(0, I) into the noise of each row's region."""
        factor = self.factor[regions]
        if factor.ndim == 3:
            return np.asarray(np.einsum("nde,ne->nd", factor, rows))
        return rows * factor.reshape(len(rows), -1)

    def _with_covariance(self, covariance: Floats, pooled: Noise) -> RegionalNoise:
        checked = RegionalNoise.from_covariances(covariance, len(self), pooled.n_features, pooled)
        return replace(checked, shares=self.shares)


AnyNoise = Noise | RegionalNoise


def harmonic_mean(covariances: Floats) -> Floats:
    """Harmonic mean of variances (R, ...) or of matrices (R, D, D)."""
    if covariances.ndim < 3:
        return np.asarray(1.0 / np.mean(1.0 / covariances, axis=0))
    precision = np.linalg.inv(covariances).mean(axis=0)
    covariance = np.linalg.inv(0.5 * (precision + precision.T))
    return np.asarray(0.5 * (covariance + covariance.T))


def whiten_relative(whiteners: Floats, arrays: Floats) -> Floats:
    """Multiply arrays (R or 1, D, k), in units of the reference, by whiteners (R, D, M)."""
    if whiteners.size == 0:
        return arrays
    if whiteners.shape[2] == 1:
        return whiteners * arrays
    return whiteners @ arrays


def whiten_features(noise: AnyNoise, arrays: Floats, regions: Integers | None = None) -> Floats:
    """Multiply axis 1 of (R or 1, D, k) by the inverse noise factors of all or some regions."""
    measured = np.swapaxes(noise.reference.whiten(np.swapaxes(arrays, 1, 2)), 1, 2)
    whiteners = noise.relative_whiteners
    if regions is not None and whiteners.size > 0:
        whiteners = whiteners[regions]
    return whiten_relative(whiteners, measured)
