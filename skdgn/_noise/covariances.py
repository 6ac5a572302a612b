"""Covariances of which nobody needs all entries: their variances, and products with directions.

A covariance of D features has D^2 entries, which is too many where features are thousands.  What
is asked of it here takes memory that is linear in D; ``matrix`` is for those who can afford it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from skdgn._runtime import Floats


class Covariance(Protocol):
    """What is asked of a covariance of D features."""

    @property
    def matrix(self) -> Floats:
        """All its entries, (D, D)."""
        ...

    @property
    def variances(self) -> Floats:
        """Its diagonal, (D,)."""
        ...

    @property
    def loadings(self) -> Floats:
        """Loadings (D, k) of factors that are known to be part of it; (D, 0) if none are."""
        ...

    def multiply(self, directions: Floats) -> Floats:
        """Return its product with directions (D, q)."""
        ...


@dataclass(frozen=True)
class Dense:
    """A matrix."""

    matrix: Floats  # (D, D)

    @property
    def variances(self) -> Floats:
        """The diagonal of the matrix."""
        return np.diagonal(self.matrix)

    @property
    def loadings(self) -> Floats:
        """Nothing is known of factors."""
        return np.empty((len(self.matrix), 0))

    def multiply(self, directions: Floats) -> Floats:
        """Multiply by the matrix."""
        return np.asarray(self.matrix @ directions)


@dataclass(frozen=True)
class OfSamples:
    """The second moments of deviations, each of which counts for its share."""

    deviations: Floats  # (n, D)
    shares: Floats  # (n,) that add up to 1

    @property
    def matrix(self) -> Floats:
        """Sum of all products."""
        return np.asarray((self.shares[:, None] * self.deviations).T @ self.deviations)

    @property
    def variances(self) -> Floats:
        """Sum of all squares."""
        return np.einsum("n,nd,nd->d", self.shares, self.deviations, self.deviations)

    @property
    def loadings(self) -> Floats:
        """Nothing is known of factors."""
        return np.empty((self.deviations.shape[1], 0))

    def multiply(self, directions: Floats) -> Floats:
        """Multiply all samples by the directions first."""
        along = self.shares[:, None] * (self.deviations @ directions)
        return np.asarray(self.deviations.T @ along)


@dataclass(frozen=True)
class Sum:
    """A weighted sum of covariances."""

    weights: Sequence[float]
    parts: Sequence[Covariance]

    @property
    def matrix(self) -> Floats:
        """Sum of the matrices."""
        return self._add([part.matrix for part in self.parts])

    @property
    def variances(self) -> Floats:
        """Sum of the variances."""
        return self._add([part.variances for part in self.parts])

    @property
    def loadings(self) -> Floats:
        """Loadings of all factors side by side."""
        pairs = zip(self.weights, self.parts, strict=True)
        return np.concatenate([np.sqrt(weight) * part.loadings for weight, part in pairs], axis=1)

    def multiply(self, directions: Floats) -> Floats:
        """Sum of the products."""
        return self._add([part.multiply(directions) for part in self.parts])

    def _add(self, values: Sequence[Floats]) -> Floats:
        pairs = zip(self.weights, values, strict=True)
        return np.asarray(sum(weight * value for weight, value in pairs))
