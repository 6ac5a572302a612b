"""Noise with a full covariance matrix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Self

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dtrtrs

from skdgn._noise.covariances import Covariance
from skdgn._noise.floors import is_at, raise_matrix
from skdgn._noise.gaussian import Noise
from skdgn._noise.independent import Diagonal
from skdgn._noise.pooling import log_wishart_evidence
from skdgn._runtime import Bools, Floats, Integers

# Share of the variance along the leading directions that latent variables take over at a start;
# the noise keeps the rest.
_EXPLAINED = 0.9


class Full(Noise):
    """A full covariance matrix; squares are sums of ``x x'``, of shape (D, D)."""

    covariance_type = "full"
    fewest_to_compare = 1  # correlations can be compared with none

    @classmethod
    def shape(cls, n_features: int) -> tuple[int, ...]:
        return (n_features, n_features)

    @classmethod
    def check(cls, covariance: Floats) -> Floats:
        """Refuse a matrix that is not symmetric; `factorize` one that is not definite."""
        asymmetry = np.abs(covariance - covariance.T).max()
        if asymmetry > 1e-8 * np.abs(covariance).max():
            raise ValueError(
                "noise_covariance must be symmetric, "
                f"got entries that differ from their mirror image by up to {asymmetry}."
            )
        return 0.5 * (covariance + covariance.T)

    @classmethod
    def factorize(cls, covariance: Floats) -> Floats:
        """Return the lower Cholesky factor; LinAlgError unless the matrix is positive definite."""
        try:
            return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        except np.linalg.LinAlgError:
            smallest = np.linalg.eigvalsh(covariance)[0]
            # A ValueError for users; what asks for a step of EM looks for this kind.
            raise np.linalg.LinAlgError(
                "noise_covariance must be positive definite, "
                f"got a matrix with smallest eigenvalue {smallest}."
            ) from None

    @property
    def matrix(self) -> Floats:
        return self.covariance

    @property
    def n_parameters(self) -> int:
        return self.n_features * (self.n_features + 1) // 2

    @cached_property
    def log_determinant(self) -> float:
        return float(2.0 * np.log(np.diagonal(self.factor)).sum())

    def rescale(self, factors: Floats) -> Self:
        return self.of(self.covariance * np.outer(factors, factors), self.n_features)

    def restrict(self, features: Integers) -> Noise:
        if features.size == 0:  # LAPACK does not know matrices without rows
            return Diagonal(np.empty(0), np.empty(0), 0)
        return Full.of(self.covariance[np.ix_(features, features)], features.size)

    def whiten(self, samples: Floats) -> Floats:
        flat = samples.reshape(-1, self.n_features)
        # LAPACK's own: SciPy's checks of the arguments take longer than small systems do.
        whitened, _ = dtrtrs(self.factor, flat.T, lower=1)
        return np.ascontiguousarray(whitened.T).reshape(samples.shape)

    def color(self, samples: Floats) -> Floats:
        return samples @ self.factor.T

    @property
    def variances(self) -> Floats:
        return np.diagonal(self.covariance)

    def multiply(self, directions: Floats) -> Floats:
        return np.asarray(self.covariance @ directions)

    @property
    def deviations(self) -> Floats:
        return np.sqrt(self.variances)

    @property
    def correlations(self) -> Floats:
        return self.covariance / np.outer(self.deviations, self.deviations)

    @property
    def spread(self) -> float:
        return float(np.linalg.eigvalsh(self.correlations)[-1])

    def regress(self, known: Integers, features: Integers) -> tuple[Floats, Floats]:
        # A Cholesky factor of the noise of both holds both, without differences of squares.
        order = np.concatenate([known, features])
        units = self.deviations[order]
        correlations = self.covariance[np.ix_(order, order)] / np.outer(units, units)
        factor = np.linalg.cholesky(correlations)
        n_known = len(known)
        gains = scipy.linalg.solve_triangular(
            factor[:n_known, :n_known], factor[n_known:, :n_known].T, lower=True, trans=1
        ).T
        deviations = np.linalg.norm(factor[n_known:, n_known:], axis=1)
        return gains * units[n_known:, None] / units[:n_known], deviations * units[n_known:]

    @classmethod
    def bound_below(cls, covariance: Floats, floors: Floats) -> Floats:
        return raise_matrix(covariance, floors)

    def at_floor(self, floors: Floats) -> Bools:
        """Tell which features (D,) belong, for the most part, to directions at their floor."""
        values, vectors = np.linalg.eigh(self.covariance / np.sqrt(np.outer(floors, floors)))
        lowest = vectors[:, is_at(values, 1.0)]
        return np.asarray(np.square(lowest).sum(axis=1) > 0.5)

    @classmethod
    def from_variances(cls, variances: Floats) -> Self:
        return cls.of(np.diag(variances), len(variances))

    @classmethod
    def from_gaussian(
        cls, covariance: Covariance, n_components: int, floors: Floats, n_factors: int
    ) -> tuple[Floats, Self]:
        """Let noise explain everything: with a latent variable EM would be slower, for nothing."""
        noise = cls.of(raise_matrix(covariance.matrix, floors), len(floors))
        return np.zeros((len(floors), n_components)), noise

    def hand_over(self, slopes: Floats, floors: Floats) -> tuple[Floats, Self]:
        """Take slopes A along the leading directions, such that N - A A' is above the floors."""
        covariance, n_components = self.covariance, slopes.shape[1]
        values, vectors = np.linalg.eigh(covariance)
        slopes = np.zeros((len(covariance), n_components))
        for component in range(min(n_components, len(values))):
            direction, value = vectors[:, -1 - component], values[-1 - component]
            # What is left along it is not below the floors; whether all is not, is checked below.
            explained = min(_EXPLAINED * value, value - float(direction**2 @ floors))
            slopes[:, component] = np.sqrt(max(explained, 0.0)) * direction
        units = np.sqrt(np.outer(floors, floors))
        # Raised to 1 before; rounding may have taken a little away.
        while slopes.any() and (
            np.linalg.eigvalsh((covariance - slopes @ slopes.T) / units)[0] < 1.0 - 1e-9
        ):
            slopes = 0.5 * slopes if np.abs(slopes).max() > 1e-6 else 0.0 * slopes
        return slopes, self.of(covariance - slopes @ slopes.T, self.n_features)

    def collect(self, samples: Floats, weights: Floats) -> Floats:
        return samples.T @ (weights[:, None] * samples)

    def squares_of(self, covariance: Covariance) -> Floats:
        return covariance.matrix

    @classmethod
    def take_squares(cls, squares: Floats, features: Integers) -> Floats:
        return squares[np.ix_(features, features)]

    def scatter(self, squares: Floats, remainder: Floats, output: Floats) -> Floats:
        products = np.tensordot(remainder, output, axes=((0, 2), (0, 2)))
        return squares + 0.5 * (products + products.T)

    @classmethod
    def log_evidence(
        cls, counts: Floats, scatters: Sequence[Covariance], common: Covariance, weight: float
    ) -> float:
        prior = weight * common.matrix
        _, before = np.linalg.slogdet(prior)
        _, after = np.linalg.slogdet(prior + np.array([own.matrix for own in scatters]))
        return log_wishart_evidence(counts, before, after, len(prior), weight)

    def expected_square(self, other: Covariance) -> float:
        return float(np.trace(self.whiten(self.whiten(other.matrix).T)))
