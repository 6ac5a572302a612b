"""The Gaussian noise around the generator: spherical, diagonal or full covariance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.lapack import dtrtrs

from skdgn._runtime import Floats

COVARIANCE_TYPES = ("spherical", "diag", "full")


@dataclass(frozen=True)
class Noise:
    """A noise covariance and its Cholesky factor.

    ``covariance`` is a scalar array (spherical), (D,) variances (diag) or (D, D) (full); ``factor``
    has the same shape and holds standard deviations or the lower Cholesky factor.
    """

    covariance: Floats
    factor: Floats
    n_features: int

    @classmethod
    def from_covariance(cls, covariance: ArrayLike, n_features: int) -> Noise:
        """Check a covariance given as a number, as variances (D,) or as a matrix (D, D)."""
        try:
            values = np.array(covariance, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"noise_covariance must be an array of numbers, got {covariance!r}."
            ) from error
        if values.shape not in ((), (n_features,), (n_features, n_features)):
            raise ValueError(
                "noise_covariance must be a number, or have shape "
                f"({n_features},) or ({n_features}, {n_features}), got shape {values.shape}."
            )
        if not np.all(np.isfinite(values)):
            bad = values[~np.isfinite(values)].flat[0]
            raise ValueError(f"noise_covariance must be finite, got {bad}.")
        if values.ndim < 2:
            if not np.all(values > 0):
                raise ValueError(
                    f"noise_covariance must be positive, got a variance of {values.min()}."
                )
            return cls(values, np.sqrt(values), n_features)
        asymmetry = np.abs(values - values.T).max()
        if asymmetry > 1e-8 * np.abs(values).max():
            raise ValueError(
                "noise_covariance must be symmetric, "
                f"got entries that differ from their mirror image by up to {asymmetry}."
            )
        values = 0.5 * (values + values.T)
        try:
            factor: Floats = np.asarray(np.linalg.cholesky(values), dtype=np.float64)
        except np.linalg.LinAlgError:
            smallest = np.linalg.eigvalsh(values)[0]
            # A ValueError for users; what asks for a step of EM looks for this kind.
            raise np.linalg.LinAlgError(
                "noise_covariance must be positive definite, "
                f"got a matrix with smallest eigenvalue {smallest}."
            ) from None
        return cls(values, factor, n_features)

    @property
    def covariance_type(self) -> str:
        """Return ``"spherical"``, ``"diag"`` or ``"full"``."""
        return COVARIANCE_TYPES[self.covariance.ndim]

    @property
    def matrix(self) -> Floats:
        """The covariance as a matrix (D, D)."""
        if self.covariance.ndim == 2:
            return self.covariance
        return np.diag(np.broadcast_to(self.covariance, self.n_features))

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        return (1, self.n_features, self.n_features * (self.n_features + 1) // 2)[
            self.covariance.ndim
        ]

    @cached_property
    def log_determinant(self) -> float:
        """Log of the determinant of the (D, D) covariance."""
        if self.factor.ndim == 0:
            return float(2.0 * self.n_features * np.log(self.factor))
        diagonal = self.factor if self.factor.ndim == 1 else np.diagonal(self.factor)
        return float(2.0 * np.log(diagonal).sum())

    def restrict(self, features: NDArray[np.intp]) -> Noise:
        """Return the noise of some of the features."""
        covariance = self.covariance
        if covariance.ndim == 1:
            covariance = covariance[features]
        elif covariance.ndim == 2:
            covariance = covariance[np.ix_(features, features)]
        if features.size == 0:  # no feature has no covariance
            covariance = np.array(1.0)
        return Noise.from_covariance(covariance, features.size)

    def rescale(self, factors: Floats) -> Noise:
        """Return the noise of features multiplied by factors (D,), equal ones if spherical."""
        squares = (factors[0] ** 2, factors**2, np.outer(factors, factors))[self.covariance.ndim]
        return Noise.from_covariance(self.covariance * squares, self.n_features)

    def whiten(self, rows: Floats) -> Floats:
        """Multiply rows (..., D) by the inverse factor, so that the noise becomes N(0, I)."""
        if self.factor.ndim < 2:
            return rows / self.factor
        flat = rows.reshape(-1, self.n_features)
        # LAPACK's own: SciPy's checks of the arguments take longer than small systems do.
        whitened, _ = dtrtrs(self.factor, flat.T, lower=1)
        return np.ascontiguousarray(whitened.T).reshape(rows.shape)

    def whiten_maps(self, maps: Floats) -> Floats:
        """Multiply matrices (..., D, k) by the inverse factor."""
        return np.swapaxes(self.whiten(np.swapaxes(maps, -2, -1)), -2, -1)

    def color(self, rows: Floats) -> Floats:
        """Multiply rows (..., D) by the factor: N(0, I) becomes the noise."""
        if self.factor.ndim < 2:
            return rows * self.factor
        return rows @ self.factor.T
