"""Gaussian noise around the generator: what every kind of it answers, and which kinds there are.

A kind of noise is a class: it says what users pass and see, how noise begins, what it asks of the
samples in the E-step, how it is found again from these sums in the M-step, and how it is divided
out.  Whoever needs noise asks for one of these; nothing else in the package tells kinds apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from skdgn._noise.covariances import Covariance, Dense
from skdgn._noise.floors import raise_matrix
from skdgn._noise.pooling import pool_covariances
from skdgn._runtime import LOG_SQRT_2PI, Bools, Floats, Integers, split_by_pattern


@dataclass(frozen=True)
class Noise(ABC):
    """A noise covariance N of D features; a kind of noise is a class derived from this one.

    Called in this order: `units_of` and `sets_unit` while samples are scaled; `from_residuals` or
    `from_gaussian` and `hand_over` for a start, `rescale` and `at_least` for one that was there
    before; in every E-step `whiten` and `log_determinant` or, for samples with missing values,
    `deviations` and `correlations`, and `collect`; in every M-step `scatter` and `maximize`, of the
    noise at which the E-step was run.

    What ``collect`` returns, the *squares*, has any shape in which it can be added up.
    """

    covariance: Floats  # in the kind's own shape
    factor: Floats  # standard deviations, or the lower Cholesky factor
    n_features: int

    covariance_type: ClassVar[str]
    # The kind of scikit-learn's Gaussian mixture that comes nearest.
    mixture_type: ClassVar[str] = "full"
    # Networks that must be there for their noise to tell how alike it is.
    fewest_to_compare: ClassVar[int] = 2
    # Whether the samples of a component tell what noise begins with, however few they are.
    begins_alone: ClassVar[bool] = False

    # What users pass, and see

    @staticmethod
    def from_covariance(covariance: ArrayLike, n_features: int) -> Noise:
        """Check a covariance as users pass it; its shape says of which kind it is."""
        for kind in KINDS.values():
            if kind.recognizes(covariance):
                return kind.read(covariance, n_features)
        try:
            values = np.array(covariance, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"noise_covariance must be an array of numbers, got {covariance!r}."
            ) from error
        shapes = {kind.shape(n_features): kind for kind in reversed(KINDS.values())}
        shapes.pop(None, None)
        if values.shape in shapes:
            return shapes[values.shape].read(values, n_features)
        wanted = " or ".join(str(shape) for shape in reversed(shapes) if shape)
        raise ValueError(
            f"noise_covariance must be a number, or have shape {wanted}, got shape {values.shape}."
        )

    @classmethod
    def recognizes(cls, covariance: Any) -> bool:
        """Tell whether what a user passes is noise of this kind, if that is not an array."""
        return False

    @classmethod
    def read(cls, values: Any, n_features: int) -> Self:
        """Turn what is `shown` into noise again; values of the right shape."""
        return cls.of(values, n_features)

    @classmethod
    def of(cls, covariance: Floats, n_features: int) -> Self:
        """Check a covariance of this kind; LinAlgError if a matrix is not positive definite."""
        if not np.all(np.isfinite(covariance)):
            bad = covariance[~np.isfinite(covariance)].flat[0]
            raise ValueError(f"noise_covariance must be finite, got {bad}.")
        checked = cls.check(covariance)
        return cls(checked, cls.factorize(checked), n_features)

    @classmethod
    @abstractmethod
    def shape(cls, n_features: int) -> tuple[int, ...] | None:
        """Shape of what is `shown`, if it is an array."""

    @classmethod
    @abstractmethod
    def check(cls, covariance: Floats) -> Floats:
        """Refuse finite numbers that are no covariance; return one without rounding errors."""

    @classmethod
    @abstractmethod
    def factorize(cls, covariance: Floats) -> Floats:
        """Return standard deviations, or the lower Cholesky factor, if there is one."""

    @property
    def shown(self) -> float | Floats | tuple[Floats, Floats]:
        """What users see as ``noise_covariance_``."""
        return self.covariance

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of an estimator that say of which kind this noise is."""
        return {"covariance_type": self.covariance_type}

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """Number of free parameters."""

    # Units

    @classmethod
    def units_of(cls, variances: Floats) -> Floats:
        """Squares of the units (D,) in which features of these variances are to be measured."""
        return variances

    @classmethod
    def sets_unit(cls, spreads: Floats) -> Bools:
        """Tell which features (D,) with such ranges of values set the unit of their noise."""
        return np.ones(spreads.shape, dtype=bool)

    @abstractmethod
    def rescale(self, factors: Floats) -> Self:
        """Return the noise of features multiplied by factors (D,), if `units_of` allows them."""

    @abstractmethod
    def restrict(self, features: Integers) -> Noise:
        """Return the noise of some of the features, in this order."""

    # Starts, and floors

    @classmethod
    @abstractmethod
    def from_variances(cls, variances: Floats) -> Self:
        """Begin with noise of variances (D,), or as near to them as this kind gets."""

    @classmethod
    def from_residuals(cls, residuals: Floats, variances: Floats, n_factors: int) -> Self:
        """Begin with noise of variances (D,), given residuals (n, D) around a network.

        ``n_factors`` is for noise of low rank; other kinds have none.
        """
        return cls.from_variances(variances)

    @classmethod
    @abstractmethod
    def from_gaussian(
        cls, covariance: Covariance, n_components: int, floors: Floats, n_factors: int
    ) -> tuple[Floats, Self]:
        """Write a covariance as that of a linear network: slopes (D, S), and noise.

        What is below the floors (D,) is raised; ``n_factors`` as in `from_residuals`.
        """

    def hand_over(self, slopes: Floats, floors: Floats) -> tuple[Floats, Self]:
        """Leave what latent variables can explain to a network of these slopes that may bend."""
        return slopes, self

    @classmethod
    @abstractmethod
    def bound_below(cls, covariance: Floats, floors: Floats) -> Floats:
        """Return the likeliest covariance not below floors (D,), given that of the samples."""

    def at_least(self, floors: Floats) -> Self:
        """Return this noise, raised to the floors (D,)."""
        return self.of(self.bound_below(self.covariance, floors), self.n_features)

    @abstractmethod
    def at_floor(self, floors: Floats) -> Bools:
        """Tell which features (D,) have noise at the floor."""

    # Statistics, and the M-step

    @abstractmethod
    def collect(self, samples: Floats, weights: Floats) -> Floats:
        """Sum what is asked of complete samples (n, D) over them."""

    @abstractmethod
    def squares_of(self, covariance: Covariance) -> Floats:
        """Squares of a sample that stands for others, of mean zero and this covariance."""

    @classmethod
    @abstractmethod
    def take_squares(cls, squares: Floats, features: Integers) -> Floats:
        """Return the squares of some of the features, in this order."""

    @abstractmethod
    def scatter(self, squares: Floats, remainder: Floats, output: Floats) -> Floats:
        """Turn what was collected of samples into the same of their residuals.

        Residuals have the squares ``x x' + remainder output'``, summed over regions and symmetrized
        (the paper's are not); remainder and output are of shape (R, D, S + 1).
        """

    def maximize(self, scatter: Floats, total_weight: float, floors: Floats) -> Self:
        """Raise the expected log-likelihood, to its maximum over noise not below the floors (D,).

        Of noise with latent variables of its own, by a step of EM instead.
        """
        return self.of(self.bound_below(scatter / total_weight, floors), len(floors))

    # What networks have in common

    @classmethod
    def pool(cls, counts: Floats, covariances: Sequence[Covariance], floors: Floats) -> Noise:
        """Return what noises of networks with so many samples (K,) have in common."""
        pooled = pool_covariances(counts, np.array([own.matrix for own in covariances]))
        return KINDS["full"].of(raise_matrix(pooled, floors), len(floors))

    @classmethod
    @abstractmethod
    def log_evidence(
        cls, counts: Floats, scatters: Sequence[Covariance], common: Covariance, weight: float
    ) -> float:
        """Log density of sums of squares of so many samples (K,) each.

        Their covariances are integrated out, with a prior of this weight and of the mean
        ``common``.  Terms without the prior are left out.
        """

    def without(self, common: Covariance, more: float, floors: Floats) -> Covariance:
        """Take samples of another covariance away again, which weighed so much more than 1."""
        matrix = self.matrix
        return Dense(raise_matrix(matrix + more * (matrix - common.matrix), floors))

    @abstractmethod
    def expected_square(self, other: Covariance) -> float:
        """Trace of the product of the inverse covariance with another one."""

    # Density and whitening

    @property
    @abstractmethod
    def matrix(self) -> Floats:
        """The covariance as a matrix (D, D)."""

    @property
    @abstractmethod
    def variances(self) -> Floats:
        """Diagonal of that matrix, (D,)."""

    @property
    def loadings(self) -> Floats:
        """Loadings (D, k) of the factors that features share; (D, 0) if there are none."""
        return np.empty((self.n_features, 0))

    @property
    def errors(self) -> Floats:
        """Variances (D,) of what features do not share by factors."""
        return self.variances

    @property
    def gains(self) -> Floats:
        """What turns residuals into expected factors, (k, D)."""
        return np.empty((0, self.n_features))

    @property
    def n_factors(self) -> int:
        """Number of factors."""
        return 0

    @property
    def principal_loadings(self) -> Floats:
        """Loadings (D, k), rotated to where factors are independent given a residual."""
        return self.loadings

    def principal_factors(self, residuals: Floats) -> Floats:
        """Return the expected factors, with the principal loadings, given residuals (n, D)."""
        return np.empty((len(residuals), 0))

    @abstractmethod
    def multiply(self, directions: Floats) -> Floats:
        """Multiply directions (D, q) by the covariance."""

    @cached_property
    @abstractmethod
    def log_determinant(self) -> float:
        """Log of the determinant of the (D, D) covariance."""

    @property
    def log_constant(self) -> float:
        """Log density of the noise at zero, its largest."""
        return -self.n_features * LOG_SQRT_2PI - 0.5 * self.log_determinant

    @abstractmethod
    def whiten(self, samples: Floats) -> Floats:
        """Multiply samples (..., D) by the inverse factor, so that the noise becomes N(0, I)."""

    def whiten_maps(self, maps: Floats) -> Floats:
        """Multiply matrices (..., D, k) by the inverse factor."""
        return np.swapaxes(self.whiten(np.swapaxes(maps, -2, -1)), -2, -1)

    @abstractmethod
    def color(self, samples: Floats) -> Floats:
        """Multiply samples (..., D) by the factor: N(0, I) becomes the noise."""

    # Missing values

    @property
    @abstractmethod
    def deviations(self) -> Floats:
        """Standard deviations of the features, (D,)."""

    @property
    @abstractmethod
    def correlations(self) -> Floats:
        """Correlations of the features, (D, D); (D, 0) if factors are all that they share."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """Largest eigenvalue of the correlations, hence of any part of them."""

    def predict(
        self, slopes: Floats, offsets: Floats, samples: Floats, features: Integers
    ) -> tuple[Floats, Floats, Floats]:
        """Predict features from z and observed ones of samples (v, D), each on its own affine map.

        Returns slopes (v, k, S), offsets (v, k), and the deviations (v, k) of what is left of the
        noise: that of what was observed may tell something of that of the features.
        """
        own_slopes, own_offsets = slopes[:, features], offsets[:, features]
        deviations = np.empty(own_offsets.shape)
        for chosen, known in split_by_pattern(samples):
            if known.size == 0:  # older versions of LAPACK know no matrices without rows
                deviations[chosen] = self.deviations[features]
                continue
            gains, deviations[chosen] = self.regress(known, features)
            own_slopes[chosen] -= gains @ slopes[chosen][:, known]
            residuals = samples[np.ix_(chosen, known)] - offsets[np.ix_(chosen, known)]
            own_offsets[chosen] += residuals @ gains.T
        return own_slopes, own_offsets, deviations

    @abstractmethod
    def regress(self, known: Integers, features: Integers) -> tuple[Floats, Floats]:
        """Regress the noise of features on that of others: gains (k, o), deviations of the rest."""


# By the name that users ask for them by; the package fills it.
KINDS: dict[str, type[Noise]] = {}
