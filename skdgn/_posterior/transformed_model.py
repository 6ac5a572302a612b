"""The density of samples whose transformed features have a known one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdgn._posterior.column_maps import ColumnMaps
from skdgn._posterior.feature_distributions import FeatureDistributions
from skdgn._posterior.weighted_sums import Density
from skdgn._runtime import Floats, RandomSource, Workers, read

# Means in the units of the samples have no closed form: they are those of so many draws.
_N_DRAWS = 1000
_SEED = 0


@dataclass(frozen=True)
class TransformedModel:
    """An exact density of ``T(x)``, read as one of x; a `skdgn._posterior.weighted_sums.Density`.

    Log densities, conditionals, quantiles, probabilities and draws are as exact as those of the
    model.  Means are averages of draws.
    """

    model: Density  # of T(x)
    maps: ColumnMaps

    def widen(self, factor: float) -> TransformedModel:
        """Return the same with the variances of all noise, after the transformation, multiplied."""
        return TransformedModel(self.model.widen(factor), self.maps)

    def log_density(self, rows: NDArray[Any], workers: Workers) -> Floats:
        """Log density of every sample (n, D)."""
        transformed, volumes = self._enter(rows)
        return self.model.log_density(transformed, workers) + volumes

    def log_density_bounds(self, rows: NDArray[Any], workers: Workers) -> tuple[Floats, Floats]:
        """Bounds of the log density of every sample (n, D) from below and above: (n,) each."""
        transformed, volumes = self._enter(rows)
        lower, upper = self.model.log_density_bounds(transformed, workers)
        return lower + volumes, upper + volumes

    def conditional_log_density(
        self, rows: NDArray[Any], features: NDArray[np.bool_], workers: Workers
    ) -> Floats:
        """Log density of some features of every sample (n, D), given the others."""
        transformed, volumes = self._enter(np.where(features, rows, np.nan))
        condition, impossible = self._enter(np.where(features, np.nan, rows))
        joint = np.where(features, transformed, condition)
        result = self.model.conditional_log_density(joint, features, workers) + volumes
        # Given what cannot be, nothing is known.
        return np.where(np.isneginf(impossible), np.nan, result)

    @property
    def distribution_bytes(self) -> float:
        """Memory that `feature_distributions` takes for a sample."""
        return self.model.distribution_bytes + 8.0 * _N_DRAWS * len(self.maps.chains)

    def feature_distributions(
        self, rows: Floats, features: NDArray[np.intp]
    ) -> TransformedDistributions:
        """Distributions of features given samples (n, D), in which these are missing."""
        transformed, volumes = self._enter(rows)
        # What cannot be is conditioned on nothing instead.
        transformed[np.isneginf(volumes)] = np.nan
        return TransformedDistributions(
            self.model.feature_distributions(transformed, features),
            self.maps.take(features),
            volumes,
            lambda: self._draw(transformed, features),
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

    def impute(self, rows: Floats, workers: Workers) -> tuple[Floats, Floats]:
        """Replace missing values of samples (n, D) by means, and tell their standard errors."""
        transformed, volumes = self._enter(rows)
        means, errors = rows.copy(), np.zeros(rows.shape)
        for n in range(len(rows)):  # draws of all at once might not fit into memory
            missing = np.isnan(rows[n])
            draws = self._draw(transformed[[n]], np.flatnonzero(missing))[:, 0]
            means[n, missing] = draws.mean(axis=0)
            errors[n, missing] = draws.std(axis=0) / np.sqrt(_N_DRAWS)
        means[np.isneginf(volumes)] = np.nan
        return means, errors

    def draw_missing(
        self, rows: Floats, n_draws: int, generator: RandomSource, workers: Workers
    ) -> Floats:
        """Replace missing values of samples (n, D) by independent draws: (n_draws, n, D)."""
        transformed, volumes = self._enter(rows)
        drawn = self.model.draw_missing(transformed, n_draws, generator, workers)
        tables = np.where(np.isnan(rows), self.maps.backward(drawn), rows)
        tables[:, np.isneginf(volumes)] = np.nan
        return tables

    def draw(self, n_samples: int, generator: RandomSource) -> tuple[Floats, NDArray[np.intp]]:
        """Draw samples (n, D), and the number of the component each comes from."""
        drawn, labels = self.model.draw(n_samples, generator)
        return self.maps.backward(drawn), labels

    def _enter(self, rows: NDArray[Any]) -> tuple[Floats, Floats]:
        """Transform samples (n, D); return the logs of the volumes, -inf outside of the domain."""
        transformed, log_slopes, outside = self.maps.forward(read(rows))
        return transformed, np.where(outside.any(axis=1), -np.inf, log_slopes.sum(axis=1))

    def _draw(self, transformed: Floats, features: NDArray[np.intp]) -> Floats:
        """Draw features that are missing, (_N_DRAWS, n, k) in the units of the samples.

        Draws of a sample are always the same, whatever the samples beside it.
        """
        draws = [
            self.model.draw_missing(row[None], _N_DRAWS, np.random.default_rng(_SEED), Workers())
            for row in transformed
        ]
        drawn = np.concatenate(draws, axis=1)[..., features]
        return self.maps.take(features).backward(drawn)


@dataclass(frozen=True)
class TransformedDistributions:
    """Distributions of single features, read from those of the transformed features."""

    transformed: FeatureDistributions
    maps: ColumnMaps  # of the features
    volumes: Floats  # (n,) logs, of what each sample was conditioned on
    draw: Callable[[], Floats]  # draws, (m, n, k)

    @property
    def log_density(self) -> Floats:
        """Log density of what each sample was conditioned on, (n,)."""
        return self.transformed.log_density + self.volumes

    @cached_property
    def _draws(self) -> Floats:
        return self.draw()

    @property
    def mean(self) -> Floats:
        """Means, (n, k)."""
        return np.asarray(self._draws.mean(axis=0))

    @property
    def variance(self) -> Floats:
        """Variances, (n, k)."""
        return np.asarray(self._draws.var(axis=0))

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
