"""What a row with holes says: the noise restricted to what was observed.

Missing values are NaN.  The features of such a row are put in an order of their own, those observed
first.  The Cholesky factor of the noise covariance in that order,

    [ L_oo   0   ]
    [ L_mo  L_mm ]

holds all there is to know: ``L_oo`` whitens what was observed, ``L_mo L_oo^-1 e_o`` is the expected
noise of what is missing, and ``L_mm L_mm'`` its covariance.  Features are measured in units of
their noise deviations, so that the covariance is a correlation matrix; without correlations the
factor is the identity, and nothing is computed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdgn._jit import kernel
from skdgn._network import Floats
from skdgn._noise import Noise

Integers = NDArray[np.intp]


class NoiseUnits(NamedTuple):
    """Deviations of the noise, and its correlations if it has any."""

    deviations: Floats  # (D,)
    correlations: Floats  # (D, D), or (0, 0) for independent noise

    @classmethod
    def of(cls, noise: Noise) -> NoiseUnits:
        """Split a covariance into deviations and correlations."""
        if noise.covariance.ndim < 2:
            deviations = np.broadcast_to(noise.factor, (noise.n_features,))
            return cls(np.ascontiguousarray(deviations), np.empty((0, 0)))
        deviations = np.sqrt(np.diagonal(noise.covariance))
        return cls(deviations, noise.covariance / np.outer(deviations, deviations))

    @property
    def largest_spread(self) -> float:
        """Largest eigenvalue of the correlation matrix, hence of any part of it."""
        if self.correlations.size == 0:
            return 1.0
        return float(np.linalg.eigvalsh(self.correlations)[-1])


class Holes(NamedTuple):
    """Where the holes of one row are, and the noise seen from there (filled by `find_holes`)."""

    order: Integers  # (D,) features, those observed first
    factor: Floats  # (D, D) lower Cholesky factor of the correlations in that order; or (0, 0)
    counts: Integers  # (1,) number of observed features; -1 before the first row


@kernel
def make_holes(units: NoiseUnits) -> Holes:
    """Make room for the holes of a row."""
    n_features = units.deviations.size
    n_correlated = len(units.correlations)
    return Holes(
        np.empty(n_features, dtype=np.intp),
        np.zeros((n_correlated, n_correlated)),
        np.full(1, -1, dtype=np.intp),
    )


@kernel
def find_holes(row: Floats, units: NoiseUnits, holes: Holes) -> int:
    """Order the features of a row; return how many were observed.

    Rows that follow each other often have the same holes: the factor is then kept.
    """
    order = holes.order
    n_observed = 0
    for d in range(row.size):
        if not math.isnan(row[d]):
            n_observed += 1
    changed = holes.counts[0] != n_observed
    observed, missing = 0, n_observed
    for d in range(row.size):
        if math.isnan(row[d]):
            place = missing
            missing += 1
        else:
            place = observed
            observed += 1
        changed = changed or order[place] != d
        order[place] = d
    holes.counts[0] = n_observed
    if changed and holes.factor.size > 0:
        _factorize(units.correlations, order, holes.factor)
    return n_observed


@kernel
def _factorize(correlations: Floats, order: Integers, factor: Floats) -> None:
    """Lower Cholesky factor of a matrix whose rows and columns are reordered."""
    for i in range(order.size):
        for j in range(i + 1):
            rest = correlations[order[i], order[j]]
            for k in range(j):
                rest -= factor[i, k] * factor[j, k]
            factor[i, j] = math.sqrt(rest) if i == j else rest / factor[j, j]


@kernel
def whiten_observed(holes: Holes, n_observed: int, values: Floats) -> None:
    """Multiply observed values, in order and in units of the deviations, by ``L_oo^-1``."""
    factor = holes.factor
    if factor.size > 0:
        for i in range(n_observed):
            rest = values[i]
            for j in range(i):
                rest -= factor[i, j] * values[j]
            values[i] = rest / factor[i, i]


@kernel
def log_deviation(units: NoiseUnits, holes: Holes, n_observed: int) -> float:
    """Half the log determinant of the observed block of the noise covariance."""
    total = 0.0
    for i in range(n_observed):
        total += math.log(units.deviations[holes.order[i]])
        if holes.factor.size > 0:
            total += math.log(holes.factor[i, i])
    return total


@kernel
def fill_holes(row: Floats, generated: Floats, units: NoiseUnits, holes: Holes) -> None:
    """Replace what is missing by its expectation, given what was observed and g(z).

    ``generated`` holds g(z) or, since everything is linear in it, its posterior mean.  With a draw
    of the noise added to it, the row is completed by a draw: what is observed then tells by how
    much that draw of the noise was wrong.
    """
    order, factor = holes.order, holes.factor
    n_observed = find_holes(row, units, holes)
    residuals = np.empty(n_observed if factor.size > 0 else 0)
    for i in range(residuals.size):
        d = order[i]
        residuals[i] = (row[d] - generated[d]) / units.deviations[d]
    whiten_observed(holes, residuals.size, residuals)
    for i in range(n_observed, row.size):
        d = order[i]
        expected = 0.0
        for j in range(residuals.size):
            expected += factor[i, j] * residuals[j]
        row[d] = generated[d] + units.deviations[d] * expected
