"""The distribution of single features, given others, under networks of one region: Gaussians.

They are what is left of `skdgn._posterior.features.feature_distributions` where nothing bends.
Mixtures of such networks have hundreds of parts, which are taken together here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import ndtr, ndtri

from skdgn._posterior.features.quantiles import find_quantiles
from skdgn._runtime import LOG_SQRT_2PI, Floats


@dataclass(frozen=True)
class GaussianDistributions:
    """Mixtures of K Gaussians for each of n samples and k features."""

    log_density: Floats  # (n,) of what each sample was conditioned on
    weights: Floats  # (K, n), given the condition
    means: Floats  # (K, n, k)
    deviations: Floats  # (K, n, k)
    n_dimensions = 0  # of latent space: none that matters

    @classmethod
    def join(cls, parts: Sequence[Self], weights: Floats, log_density: Floats) -> Self:
        """Mix mixtures with these weights (p, n)."""
        return cls(
            log_density,
            np.concatenate([own * part.weights for own, part in zip(weights, parts, strict=True)]),
            np.concatenate([part.means for part in parts]),
            np.concatenate([part.deviations for part in parts]),
        )

    @property
    def mean(self) -> Floats:
        """Means, (n, k)."""
        return self._average(self.means)

    @property
    def variance(self) -> Floats:
        """Variances, (n, k): within the parts and between them."""
        return self._average(self.deviations**2 + (self.means - self.mean) ** 2)

    def bracket(self, share: float | Floats) -> tuple[Floats, Floats]:
        """Values (n, k) between which lies the quantile of a share: those of all parts do."""
        ends = self.means + self.deviations * ndtri(share)
        # A little wider than they need be, lest rounding close them.
        margins = 1e-3 * self.deviations
        return (ends - margins).min(axis=0), (ends + margins).max(axis=0)

    def quantile(self, share: float | Floats) -> Floats:
        """Values (n, k) below which lies a share, or one of each feature (k,)."""
        return find_quantiles(self, share)

    def cdf(self, values: Floats) -> Floats:
        """Probabilities of at most these values (n, k): (n, k)."""
        return np.clip(self._average(ndtr((values - self.means) / self.deviations)), 0.0, 1.0)

    def log_pdf(self, values: Floats) -> Floats:
        """Log densities of these values (n, k): (n, k)."""
        with np.errstate(divide="ignore"):
            log_weights = np.log(self.weights)[:, :, None]
        exponents = -0.5 * ((values - self.means) / self.deviations) ** 2
        log_densities = exponents - np.log(self.deviations) - LOG_SQRT_2PI
        with np.errstate(invalid="ignore"):  # of NaN, NaN
            return np.logaddexp.reduce(log_weights + log_densities, axis=0)

    def _average(self, of_parts: Floats) -> Floats:
        return np.einsum("pn,pnk->nk", self.weights, of_parts)
