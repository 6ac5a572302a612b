"""The density of samples whose transformed features have a known one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._posterior.features import FeatureDistributions
from skdgn._posterior.transformed.column_maps import ColumnMaps
from skdgn._posterior.transformed.expectations import Expectations, expect
from skdgn._posterior.weighted_sums import Density
from skdgn._runtime import Bools, Floats, Integers, RandomSource, Workers, read

# Means are integrals between quantiles of this share and of one minus it: bounds of them, which are
# wide, so that what is beyond matters as little as a millionth of it would.
_SHARE = 1e-8


@dataclass(frozen=True)
class TransformedModel:
    """An exact density of ``T(x)``, read as one of x; a `skdgn._posterior.weighted_sums.Density`.

    Log densities, conditionals, quantiles, probabilities and draws are as exact as those of the
    model.  Means are integrals of its distribution functions.
    """

    model: Density  # of T(x)
    maps: ColumnMaps

    def widen(self, factor: float) -> TransformedModel:
        """Return the same with the variances of all noise, after the transformation, multiplied."""
        return TransformedModel(self.model.widen(factor), self.maps)

    def blur(self, scales: Floats, weights: Floats) -> TransformedModel:
        """Average copies of itself with variances of all noise multiplied by scales (s,)."""
        return TransformedModel(self.model.blur(scales, weights), self.maps)

    def log_density(self, samples: NDArray[Any], workers: Workers) -> Floats:
        """Log density of every sample (n, D)."""
        transformed, volumes = self._enter(samples)
        return self.model.log_density(transformed, workers) + volumes

    def log_density_bounds(self, samples: NDArray[Any], workers: Workers) -> tuple[Floats, Floats]:
        """Bounds of the log density of every sample (n, D) from below and above: (n,) each."""
        transformed, volumes = self._enter(samples)
        lower, upper = self.model.log_density_bounds(transformed, workers)
        return lower + volumes, upper + volumes

    def conditional_log_density(
        self, samples: NDArray[Any], features: Bools, workers: Workers
    ) -> Floats:
        """Log density of some features of every sample (n, D), given the others."""
        transformed, volumes = self._enter(np.where(features, samples, np.nan))
        condition, impossible = self._enter(np.where(features, np.nan, samples))
        joint = np.where(features, transformed, condition)
        result = self.model.conditional_log_density(joint, features, workers) + volumes
        # Given what cannot be, nothing is known.
        return np.where(np.isneginf(impossible), np.nan, result)

    @property
    def distribution_bytes(self) -> float:
        """Memory that `feature_distributions` takes for a sample."""
        return self.model.distribution_bytes

    def feature_distributions(
        self, samples: Floats, features: Integers
    ) -> TransformedDistributions:
        """Distributions of features given samples (n, D), in which these are missing."""
        transformed, volumes = self._enter(samples)
        # What cannot be is conditioned on nothing instead.
        transformed[np.isneginf(volumes)] = np.nan
        return TransformedDistributions(
            self.model.feature_distributions(transformed, features),
            self.maps.take(features),
            volumes,
        )

    @property
    def line_regions(self) -> None:
        """None: integrals over boxes are those of the model, in its units."""
        return None

    def log_probability(
        self, bounds: tuple[Floats, Floats], n_draws: int, generator: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Log probabilities of boxes between bounds (n, D), and standard errors: (n,) each."""
        lower, upper = (self.maps.limits(bound) for bound in bounds)
        return self.model.log_probability((lower, upper), n_draws, generator)

    def impute(self, samples: Floats, workers: Workers) -> tuple[Floats, Floats]:
        """Replace missing values of samples (n, D) by means; tell their errors."""
        means, errors = samples.copy(), np.zeros(samples.shape)
        for feature in range(samples.shape[1]):
            missing = np.flatnonzero(np.isnan(samples[:, feature]))

            def expect_batch(batch: Floats, feature: int = feature) -> Floats:
                found = self.feature_distributions(batch, np.array([feature]))
                mean, _, error = found.expectations
                unknown = np.isneginf(found.log_density)
                return np.stack([np.where(unknown, np.nan, mean[:, 0]), error[:, 0]], axis=1)

            found = np.empty((len(missing), 2))
            workers.fill(found, expect_batch, self.distribution_bytes, samples[missing])
            means[missing, feature], errors[missing, feature] = found.T
        return means, errors

    def draw_missing(
        self, samples: Floats, n_draws: int, generator: RandomSource, workers: Workers
    ) -> Floats:
        """Replace missing values of samples (n, D) by independent draws: (n_draws, n, D)."""
        transformed, volumes = self._enter(samples)
        drawn = self.model.draw_missing(transformed, n_draws, generator, workers)
        tables = np.where(np.isnan(samples), self.maps.backward(drawn), samples)
        tables[:, np.isneginf(volumes)] = np.nan
        return tables

    def draw(self, n_samples: int, generator: RandomSource) -> tuple[Floats, Integers]:
        """Draw samples (n, D), and the number of the component each comes from."""
        drawn, labels = self.model.draw(n_samples, generator)
        return self.maps.backward(drawn), labels

    def _enter(self, samples: NDArray[Any]) -> tuple[Floats, Floats]:
        """Transform samples (n, D); return the logs of the volumes, -inf outside of the domain."""
        transformed, log_slopes, outside = self.maps.forward(read(samples))
        return transformed, np.where(outside.any(axis=1), -np.inf, log_slopes.sum(axis=1))


@dataclass(frozen=True)
class TransformedDistributions:
    """Distributions of single features, read from those of the transformed features."""

    transformed: FeatureDistributions
    maps: ColumnMaps  # of the features
    volumes: Floats  # (n,) logs, of what each sample was conditioned on

    @property
    def log_density(self) -> Floats:
        """Log density of what each sample was conditioned on, (n,)."""
        return self.transformed.log_density + self.volumes

    @cached_property
    def expectations(self) -> Expectations:
        """Means and variances (n, k), and errors of the means."""
        low, high = self.transformed.bracket(_SHARE)[0], self.transformed.bracket(1.0 - _SHARE)[1]
        return expect(self.transformed.cdf, self.maps.backward, low, high)

    @property
    def mean(self) -> Floats:
        """Means, (n, k)."""
        return self.expectations.mean

    @property
    def variance(self) -> Floats:
        """Variances, (n, k)."""
        return self.expectations.variance

    def bracket(self, share: float | Floats) -> tuple[Floats, Floats]:
        """Values (n, k) between which lies the quantile of a share."""
        low, high = self.transformed.bracket(share)
        return self.maps.backward(low), self.maps.backward(high)

    def quantile(self, share: float | Floats) -> Floats:
        """Values (n, k) below which lies a share, or one of each feature (k,)."""
        return self.maps.backward(self.transformed.quantile(share))

    def cdf(self, values: Floats) -> Floats:
        """Probabilities of at most these values (n, k): (n, k)."""
        limits = self.maps.limits(values)
        inside = np.isfinite(limits)
        probabilities = self.transformed.cdf(np.where(inside, limits, 0.0))
        return np.where(inside, probabilities, limits > 0.0)

    def log_pdf(self, values: Floats) -> Floats:
        """Log densities of these values (n, k): (n, k)."""
        transformed, log_slopes, outside = self.maps.forward(values)
        log_densities = self.transformed.log_pdf(np.where(outside, 0.0, transformed))
        return np.where(outside, -np.inf, log_densities + log_slopes)
