"""Noise of low rank: linear factors that the features share, and a variance for each of them.

``x - g(z) = F f + e`` with factors ``f ~ N(0, I_k)`` and independent errors of variances psi, so
that ``N = F F' + diag(psi)``.  With ``F~ = diag(psi)^-1/2 F = U diag(s) V'``,

    N^-1/2 = (I - U diag(1 - (1 + s^2)^-1/2) U') diag(psi)^-1/2,

and nothing of shape (D, D) appears: memory is linear in D, and so is time.

The M-step is one of EM in which the factors are latent, too.  Given residuals r, they are Gaussian
with mean ``B r`` and covariance ``(I + F~' F~)^-1``.  With S the sum of ``r r'`` over samples, the
sums of ``E[f r'] = B S`` and ``E[f f']`` follow from products of the samples with k directions,
which is what the E-step collects beside the squares.  That the factors may have any covariance
while all is maximized, and are rescaled afterwards, makes steps longer (parameter-expanded EM: Liu,
Rubin and Wu, 1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.linalg

from skdgn._noise.covariances import Covariance, OfSamples, Sum
from skdgn._noise.floors import is_at
from skdgn._noise.gaussian import Noise
from skdgn._noise.independent import Diagonal
from skdgn._noise.pooling import log_wishart_evidence, pool_factors
from skdgn._runtime import Bools, Floats, Integers

# Steps of EM for the factors of a start, and of the power method before them.
_ITERATIONS = 20
_POWER_STEPS = 4
# Directions more than are wanted, for the power method.
_MORE_DIRECTIONS = 5
# Share of its variance that every feature keeps for itself at a start.
_OWN_SHARE = 1e-2


class Factor(Noise):
    """Loadings F (D, k) and variances psi (D,), held as ``[psi F]``.

    Squares are sums of ``x^2`` and of ``B x x'``, of shape (1 + k, D).
    """

    covariance_type = "factor"
    mixture_type = "diag"
    fewest_to_compare = 1  # correlations can be compared with none
    # Of samples alone, nothing is known of the factors that components have in common: as if there
    # were none, a prior would take them for noise of single features.
    begins_alone = True

    @classmethod
    def shape(cls, n_features: int) -> None:
        """Return None: a pair has no shape."""
        return

    @classmethod
    def recognizes(cls, covariance: Any) -> bool:
        """Tell whether this is a pair of a matrix and something else."""
        return (
            isinstance(covariance, tuple | list)
            and len(covariance) == 2
            and (_n_axes(covariance[0]) == 2 and _n_axes(covariance[1]) == 1)
        )

    @classmethod
    def read(cls, values: Any, n_features: int) -> Self:
        loadings, variances = (np.array(part, dtype=np.float64) for part in values)
        if len(loadings) != n_features or variances.shape != (n_features,):
            raise ValueError(
                "noise_covariance must be a pair of loadings of shape "
                f"({n_features}, n_factors) and variances of shape ({n_features},), "
                f"got shapes {loadings.shape} and {variances.shape}."
            )
        return cls.join(loadings, variances)

    @classmethod
    def join(cls, loadings: Floats, variances: Floats) -> Self:
        """Put together loadings (D, k) and variances (D,)."""
        return cls.of(np.column_stack([variances, loadings]), len(variances))

    @classmethod
    def check(cls, covariance: Floats) -> Floats:
        Diagonal.check(covariance[:, 0])
        return covariance

    @classmethod
    def factorize(cls, covariance: Floats) -> Floats:
        return np.sqrt(covariance[:, 0])

    @property
    def shown(self) -> tuple[Floats, Floats]:
        return self.loadings, self.errors

    @property
    def parameters(self) -> dict[str, Any]:
        return {**super().parameters, "n_factors": self.n_factors}

    @property
    def loadings(self) -> Floats:
        return self.covariance[:, 1:]

    @property
    def errors(self) -> Floats:
        """Variances psi."""
        return self.covariance[:, 0]

    @property
    def n_parameters(self) -> int:
        """Rotations of the factors leave the noise as it is."""
        n_features, k = self.n_features, self.n_factors
        most = n_features * (n_features + 1) // 2
        return min(n_features * (1 + k) - k * (k - 1) // 2, most) if k < n_features else most

    # Units

    def rescale(self, factors: Floats) -> Self:
        return self.join(factors[:, None] * self.loadings, factors**2 * self.errors)

    def restrict(self, features: Integers) -> Noise:
        if features.size == 0:  # LAPACK does not know matrices without rows
            return Diagonal(np.empty(0), np.empty(0), 0)
        return Factor.of(self.covariance[features], features.size)

    # Starts, and floors

    @classmethod
    def from_variances(cls, variances: Floats) -> Self:
        return cls.join(np.empty((len(variances), 0)), variances)

    @classmethod
    def from_residuals(cls, residuals: Floats, variances: Floats, n_factors: int) -> Self:
        """Begin with the principal directions of the residuals, in units of the variances."""
        shares = np.full(len(residuals), 1.0 / len(residuals))
        loadings, _ = analyze_factors(
            OfSamples(residuals, shares), n_factors, _OWN_SHARE * variances
        )
        own = variances - np.square(loadings).sum(axis=1)
        return cls.join(loadings, np.maximum(own, _OWN_SHARE * variances))

    @classmethod
    def from_gaussian(
        cls, covariance: Covariance, n_components: int, floors: Floats, n_factors: int
    ) -> tuple[Floats, Self]:
        """Share factors out: the leading ones are slopes (D, S), the others are those of the noise.

        By factor analysis.
        """
        loadings, variances = analyze_factors(covariance, n_components + n_factors, floors)
        return loadings[:, :n_components], cls.join(loadings[:, n_components:], variances)

    @classmethod
    def bound_below(cls, covariance: Floats, floors: Floats) -> Floats:
        """Raise what features do not share: given the loadings, that is the likeliest."""
        variances = np.maximum(covariance[:, 0], floors)
        return np.column_stack([variances, covariance[:, 1:]])

    def at_floor(self, floors: Floats) -> Bools:
        return is_at(self.errors, floors)

    # Statistics, and the M-step

    def collect(self, samples: Floats, weights: Floats) -> Floats:
        weighted = weights[:, None] * samples
        squares = np.einsum("nd,nd->d", samples, weighted)
        return np.concatenate([squares[None], (samples @ self.gains.T).T @ weighted])

    def squares_of(self, covariance: Covariance) -> Floats:
        products = covariance.multiply(self.gains.T)
        return np.concatenate([covariance.variances[None], products.T])

    @classmethod
    def take_squares(cls, squares: Floats, features: Integers) -> Floats:
        return squares[:, features]

    def scatter(self, squares: Floats, remainder: Floats, output: Floats) -> Floats:
        own = np.einsum("rds,rds->rd", remainder, output).sum(axis=0)
        flat = [
            part.transpose(1, 0, 2).reshape(self.n_features, -1) for part in (remainder, output)
        ]
        along = [self.gains @ part for part in flat]
        products = 0.5 * (along[0] @ flat[1].T + along[1] @ flat[0].T)
        return squares + np.concatenate([own[None], products])

    def maximize(self, scatter: Floats, total_weight: float, floors: Floats) -> Self:
        """Make one step of EM with latent factors."""
        squares, products = scatter[0] / total_weight, scatter[1:] / total_weight
        moments = self._factor_covariance + products @ self.gains.T  # of the factors
        loadings = scipy.linalg.solve(moments, products, assume_a="pos").T
        variances = squares - np.einsum("dk,kd->d", loadings, products)
        # Factors of this covariance become independent, of unit variance.
        root = np.linalg.cholesky(0.5 * (moments + moments.T))
        return self.join(loadings @ root, np.maximum(variances, floors))

    @classmethod
    def pool(cls, counts: Floats, covariances: Sequence[Covariance], floors: Floats) -> Self:
        loadings, variances = pool_factors(counts, covariances)
        return cls.join(loadings, np.maximum(variances, floors))

    @classmethod
    def log_evidence(
        cls, counts: Floats, scatters: Sequence[Covariance], common: Covariance, weight: float
    ) -> float:
        """Of covariances as they are of full noise, which these are not far from."""
        n_features = len(common.variances)
        before = _log_determinant(Sum([weight], [common]))
        after = np.array([_log_determinant(Sum([weight, 1.0], [common, own])) for own in scatters])
        return log_wishart_evidence(counts, before, after, n_features, weight)

    def without(self, common: Covariance, more: float, floors: Floats) -> Covariance:
        """Leave it as it is: less of others would not be of low rank."""
        return self

    # Density and whitening

    @property
    def matrix(self) -> Floats:
        return np.diag(self.errors) + self.loadings @ self.loadings.T

    @property
    def variances(self) -> Floats:
        return np.asarray(self.errors + np.square(self.loadings).sum(axis=1))

    def multiply(self, directions: Floats) -> Floats:
        own = self.errors[:, None] * directions
        return np.asarray(own + self.loadings @ (self.loadings.T @ directions))

    @cached_property
    def _axes(self) -> tuple[Floats, Floats, Floats]:
        """Principal directions in units of the errors: U (D, q), s (q,), V' (q, k)."""
        left, sizes, right = np.linalg.svd(
            self.loadings / self.factor[:, None], full_matrices=False
        )
        return left, sizes, right

    @cached_property
    def _stretches(self) -> Floats:
        """By how much the factors stretch their principal directions, (q,)."""
        return np.sqrt(1.0 + self._axes[1] ** 2)

    @cached_property
    def gains(self) -> Floats:
        """B of the formulas above."""
        left, sizes, right = self._axes
        return np.asarray(
            right.T @ ((sizes / self._stretches**2)[:, None] * (left / self.factor[:, None]).T)
        )

    @cached_property
    def _factor_covariance(self) -> Floats:
        """Covariance of the factors, given a residual: (k, k)."""
        _, sizes, right = self._axes
        explained = (sizes / self._stretches) ** 2
        return np.asarray(np.eye(self.n_factors) - (right.T * explained) @ right)

    @cached_property
    def log_determinant(self) -> float:
        return float(2.0 * (np.log(self.factor).sum() + np.log(self._stretches).sum()))

    def whiten(self, samples: Floats) -> Floats:
        left, sizes, _ = self._axes
        scaled = samples / self.factor
        # 1 - 1 / h, without a difference: h^2 = 1 + s^2.
        shrunk = sizes**2 / (self._stretches * (1.0 + self._stretches))
        return np.asarray(scaled - ((scaled @ left) * shrunk) @ left.T)

    def color(self, samples: Floats) -> Floats:
        left, sizes, _ = self._axes
        grown = sizes**2 / (1.0 + self._stretches)
        return np.asarray((samples + ((samples @ left) * grown) @ left.T) * self.factor)

    def expected_square(self, other: Covariance) -> float:
        left, sizes, _ = self._axes
        directions = left / self.factor[:, None]
        along = np.einsum("dq,dq->q", directions, other.multiply(directions))
        explained = (sizes / self._stretches) ** 2
        return float((other.variances / self.errors).sum() - explained @ along)

    # Missing values

    @property
    def deviations(self) -> Floats:
        return np.sqrt(self.variances)

    @property
    def correlations(self) -> Floats:
        return np.empty((self.n_features, 0))

    @property
    def spread(self) -> float:
        """Bound it by the sum of what the errors and what the factors have."""
        errors = self.errors / self.variances
        sizes = np.linalg.svd(self.loadings / self.deviations[:, None], compute_uv=False)
        return float(errors.max() + sizes.max(initial=0.0) ** 2)

    def regress(self, known: Integers, features: Integers) -> tuple[Floats, Floats]:
        loadings, (factors, covariance) = self.loadings[features], self._infer(known)
        squares = np.einsum("dk,kl,dl->d", loadings, covariance, loadings)
        return loadings @ factors, np.sqrt(self.errors[features] + squares)

    def _infer(self, known: Integers) -> tuple[Floats, Floats]:
        """What turns known residuals into expected factors, (k, o), and their covariance (k, k)."""
        if known.size == 0:
            return np.zeros((self.n_factors, 0)), np.eye(self.n_factors)
        part = Factor.of(self.covariance[known], known.size)
        return part.gains, part._factor_covariance

    # Factors

    @property
    def n_factors(self) -> int:
        return self.loadings.shape[1]

    @cached_property
    def principal_loadings(self) -> Floats:
        """Loadings (D, k), rotated such that the factors are independent given a residual.

        The one that the residuals tell most of comes first; the largest loading of each, in units
        of the errors, is positive.
        """
        left, sizes, _ = self._axes
        loadings = np.zeros_like(self.loadings)
        loadings[:, : len(sizes)] = self.factor[:, None] * left * sizes * self._signs
        return loadings

    @property
    def _signs(self) -> Floats:
        left, _, _ = self._axes
        largest = np.abs(left).argmax(axis=0)
        return np.where(left[largest, np.arange(left.shape[1])] < 0.0, -1.0, 1.0)

    def principal_factors(self, residuals: Floats) -> Floats:
        """Return the expected factors, with the principal loadings, given residuals (n, D)."""
        left, sizes, _ = self._axes
        factors = np.zeros((len(residuals), self.n_factors))
        scales = self._signs * sizes / self._stretches**2
        factors[:, : len(sizes)] = ((residuals / self.factor) @ left) * scales
        return factors


def _log_determinant(covariance: Covariance) -> float:
    """Log determinant of factors, and of what is not explained by them as if independent."""
    loadings = covariance.loadings
    own = covariance.variances - np.square(loadings).sum(axis=1)
    return Factor.join(loadings, own).log_determinant


def _n_axes(values: Any) -> int:
    """Return the number of axes of an array, or of lists; -1 of something else."""
    try:
        return int(np.ndim(values))
    except ValueError:  # ragged lists
        return -1


def analyze_factors(
    covariance: Covariance, n_factors: int, floors: Floats
) -> tuple[Floats, Floats]:
    """Fit loadings (D, k) and variances (D,), not below the floors, to a covariance.

    Factor analysis by a few steps of EM from the principal directions; those of which the samples
    tell most come first.
    """
    n_features = len(floors)
    total = covariance.variances
    kept = min(n_factors, n_features)
    loadings = np.zeros((n_features, n_factors))
    if kept == 0:
        return loadings, np.maximum(total, floors)
    # Directions in units of the deviations: a feature of large variance is not the first of them.
    units = np.sqrt(np.maximum(total, floors))
    vectors, values = _leading_directions(covariance, units, kept)
    rest = max(float((total / units**2).sum()) - float(values.sum()), 0.0)
    rest = rest / (n_features - kept) if kept < n_features else 0.5 * float(values[-1])
    loadings[:, :kept] = units[:, None] * vectors * np.sqrt(np.maximum(values - rest, 0.0))
    variances = np.maximum(total - np.square(loadings).sum(axis=1), floors)
    noise = Factor.join(loadings, np.maximum(variances, _OWN_SHARE * units**2))
    for _ in range(_ITERATIONS):
        noise = noise.maximize(noise.squares_of(covariance), 1.0, floors)
    return noise.principal_loadings, noise.errors


def _leading_directions(
    covariance: Covariance, units: Floats, n_directions: int
) -> tuple[Floats, Floats]:
    """Eigenvectors (D, k) and eigenvalues (k,), largest first, of a covariance in these units.

    By the power method, which need not be accurate here.
    """
    n_features = len(units)
    n_tried = min(n_directions + _MORE_DIRECTIONS, n_features)
    start = np.random.default_rng(0).standard_normal((n_features, n_tried))
    basis, _ = np.linalg.qr(start)

    def multiply(directions: Floats) -> Floats:
        return covariance.multiply(directions / units[:, None]) / units[:, None]

    for _ in range(_POWER_STEPS):
        basis, _ = np.linalg.qr(multiply(basis))
    inner = basis.T @ multiply(basis)
    values, vectors = np.linalg.eigh(0.5 * (inner + inner.T))
    chosen = np.argsort(values)[::-1][:n_directions]
    return basis @ vectors[:, chosen], np.maximum(values[chosen], 0.0)
