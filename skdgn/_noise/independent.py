"""Noise without correlations: one variance for all features, or one for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Self

import numpy as np
from scipy.special import gammaln

from skdgn._noise.covariances import Covariance
from skdgn._noise.floors import is_at, raise_matrix
from skdgn._noise.gaussian import Noise
from skdgn._runtime import Bools, Floats, Integers

_FACTOR_ITERATIONS = 20
# What is smaller has fewer digits, and an infinite inverse.
_SMALLEST = np.finfo(np.float64).tiny


class Independent(Noise):
    """Noise of which every feature has its own; squares are sums of ``x^2``, of shape (1, D)."""

    @classmethod
    def average(cls, values: Floats) -> Floats:
        """Turn what belongs to each of the features (D,) into the shape of the covariance."""
        return values

    @classmethod
    def check(cls, covariance: Floats) -> Floats:
        if not np.all(covariance > 0):
            raise ValueError(
                f"noise_covariance must be positive, got a variance of {covariance.min()}."
            )
        if not np.all(covariance >= _SMALLEST):
            raise ValueError(
                f"noise_covariance must be at least {_SMALLEST:.3g}, whose inverse is a number, "
                f"got a variance of {covariance.min()}. Rescale the samples."
            )
        return covariance

    @classmethod
    def factorize(cls, covariance: Floats) -> Floats:
        return np.asarray(np.sqrt(covariance))

    @property
    def n_parameters(self) -> int:
        return int(self.covariance.size)

    @property
    def deviations(self) -> Floats:
        return np.broadcast_to(self.factor, (self.n_features,))

    @property
    def correlations(self) -> Floats:
        return np.empty((self.n_features, 0))

    @property
    def spread(self) -> float:
        return 1.0

    @property
    def matrix(self) -> Floats:
        return np.diag(self.variances)

    @property
    def variances(self) -> Floats:
        return np.broadcast_to(self.covariance, (self.n_features,))

    def multiply(self, directions: Floats) -> Floats:
        return np.asarray(self.variances[:, None] * directions)

    @cached_property
    def log_determinant(self) -> float:
        return float(2.0 * np.log(self.deviations).sum())

    def whiten(self, samples: Floats) -> Floats:
        with np.errstate(over="ignore"):  # so far out that the density is zero
            return np.asarray(samples / self.factor)

    def color(self, samples: Floats) -> Floats:
        return samples * self.factor

    def regress(self, known: Integers, features: Integers) -> tuple[Floats, Floats]:
        return np.zeros((features.size, known.size)), self.deviations[features]

    def rescale(self, factors: Floats) -> Self:
        return self.of(self.covariance * self.average(factors**2), self.n_features)

    @classmethod
    def from_variances(cls, variances: Floats) -> Self:
        return cls.of(cls.average(variances), len(variances))

    @classmethod
    def bound_below(cls, covariance: Floats, floors: Floats) -> Floats:
        return np.maximum(covariance, cls.average(floors))

    def at_floor(self, floors: Floats) -> Bools:
        return np.broadcast_to(is_at(self.covariance, self.average(floors)), floors.shape)

    def collect(self, samples: Floats, weights: Floats) -> Floats:
        return np.einsum("nd,nd->d", samples, weights[:, None] * samples)[None]

    def squares_of(self, covariance: Covariance) -> Floats:
        return covariance.variances[None]

    @classmethod
    def take_squares(cls, squares: Floats, features: Integers) -> Floats:
        return squares[:, features]

    def scatter(self, squares: Floats, remainder: Floats, output: Floats) -> Floats:
        return self.average(squares[0] + np.einsum("rds,rds->rd", remainder, output).sum(axis=0))

    @classmethod
    def log_evidence(
        cls, counts: Floats, scatters: Sequence[Covariance], common: Covariance, weight: float
    ) -> float:
        squares = np.array([own.variances for own in scatters])
        return _log_evidence(counts, squares, common.variances, weight)

    def expected_square(self, other: Covariance) -> float:
        return float((other.variances / self.variances).sum())

    @classmethod
    def from_gaussian(
        cls, covariance: Covariance, n_components: int, floors: Floats, n_factors: int
    ) -> tuple[Floats, Self]:
        """Fit slopes (D, S) and noise to a covariance (D, D) by factor analysis.

        At least as likely as a Gaussian without covariances.
        """
        return cls._analyze(raise_matrix(covariance.matrix, floors), n_components, floors)

    @classmethod
    def _analyze(cls, covariance: Floats, n_components: int, floors: Floats) -> tuple[Floats, Self]:
        n_features = len(covariance)
        diagonal = np.diagonal(covariance)
        values, vectors = np.linalg.eigh(covariance)
        kept = min(n_components, n_features)
        rest = values[:-kept].mean() if kept < n_features else 0.5 * values[0]
        slopes = np.zeros((n_features, n_components))
        signal = np.sqrt(np.maximum(values[::-1][:kept] - rest, 0.0))
        slopes[:, :kept] = vectors[:, ::-1][:, :kept] * signal
        noise = cls._above(diagonal - (slopes**2).sum(axis=1), floors)
        for _ in range(_FACTOR_ITERATIONS):
            scaled = slopes / np.broadcast_to(noise.covariance, n_features)[:, None]
            spread = np.linalg.inv(np.eye(n_components) + slopes.T @ scaled)
            cross = covariance @ scaled @ spread  # E[x z']
            second = spread + (scaled @ spread).T @ cross
            slopes = np.linalg.solve(second, cross.T).T
            noise = cls._above(diagonal - (slopes * cross).sum(axis=1), floors)
        plain = np.zeros_like(slopes), cls._above(diagonal, floors)
        return max((slopes, noise), plain, key=lambda parts: _log_likelihood(covariance, *parts))

    @classmethod
    def _above(cls, variances: Floats, floors: Floats) -> Self:
        """Return noise of these variances (D,), which may be negative, not below the floors."""
        return cls.of(cls.bound_below(cls.average(variances), floors), len(floors))


def _log_likelihood(covariance: Floats, slopes: Floats, noise: Noise) -> float:
    """Expected log density of samples with this covariance, but for a constant."""
    model = slopes @ slopes.T + noise.matrix
    _, log_determinant = np.linalg.slogdet(model)
    return float(-0.5 * (log_determinant + np.trace(np.linalg.solve(model, covariance))))


def _log_evidence(counts: Floats, squares: Floats, common: Floats, weight: float) -> float:
    """Log density of sums of squares (K, D), of so many samples (K,) each."""
    freedom = weight + 2.0  # the mean of the prior is the common variance
    before, more = weight * common, (freedom + counts)[:, None]
    total = 0.5 * (freedom * np.log(before) - more * np.log(before + squares))
    return float(np.sum(total + gammaln(0.5 * more) - gammaln(0.5 * freedom)))


class Spherical(Independent):
    """One variance for all features, which are therefore measured in one unit."""

    covariance_type = mixture_type = "spherical"

    @classmethod
    def shape(cls, n_features: int) -> tuple[int, ...]:
        return ()

    @classmethod
    def average(cls, values: Floats) -> Floats:
        """Mean over the features."""
        return np.asarray(values.mean())

    @property
    def shown(self) -> float:
        return float(self.covariance)

    @classmethod
    def units_of(cls, variances: Floats) -> Floats:
        return np.full_like(variances, variances.mean())

    @classmethod
    def sets_unit(cls, spreads: Floats) -> Bools:
        return np.asarray(spreads == spreads.max())

    def restrict(self, features: Integers) -> Noise:
        return Spherical(self.covariance, self.factor, features.size)

    @classmethod
    def log_evidence(
        cls, counts: Floats, scatters: Sequence[Covariance], common: Covariance, weight: float
    ) -> float:
        size = len(common.variances)  # so many squares of each sample tell of the variance
        squares = size * np.array([own.variances[:1] for own in scatters])
        return _log_evidence(size * counts, squares, common.variances[:1], size * weight)


class Diagonal(Independent):
    """A variance for each feature."""

    covariance_type = mixture_type = "diag"

    @classmethod
    def shape(cls, n_features: int) -> tuple[int, ...]:
        return (n_features,)

    def restrict(self, features: Integers) -> Noise:
        return Diagonal(self.covariance[features], self.factor[features], features.size)
