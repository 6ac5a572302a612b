"""What a row with holes says: the noise restricted to what was observed.

Missing values are NaN.  The features of such a row are put in an order of their own, those observed
first.  The Cholesky factor of the noise covariance in that order,

    [ L_oo   0   ]
    [ L_mo  L_mm ]

holds all there is to know: ``L_oo`` whitens what was observed, ``L_mo L_oo^-1 e_o`` is the expected
noise of what is missing, and ``L_mm L_mm'`` its covariance.  Features are measured in units of
their noise deviations, so that the covariance is a correlation matrix; without correlations the
factor is the identity, and nothing is stored or computed: then ``M`` is 0 in the shapes below, and
otherwise the number of features D.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdgn._noise.gaussian import Noise
from skdgn._runtime import LOG_SQRT_2PI, Floats, kernel

Integers = NDArray[np.intp]


class NoiseUnits(NamedTuple):
    """Deviations of the noise, and its correlations."""

    deviations: Floats  # (D,)
    correlations: Floats  # (D, M)
    spread: float  # largest eigenvalue of the correlations, hence of any part of them

    @classmethod
    def of(cls, noise: Noise) -> NoiseUnits:
        """Divide the covariance by the deviations."""
        return cls(noise.deviations, noise.correlations, noise.spread)

    @classmethod
    def for_nobody(cls, n_features: int) -> NoiseUnits:
        """Return what kernels are given where all rows are complete: nobody looks."""
        return cls(np.ones(n_features), np.empty((n_features, 0)), 1.0)


class Holes(NamedTuple):
    """Where the holes of one row are, and the noise seen from there."""

    order: Integers  # (D,) features, those observed first
    n_observed: Integers  # (1,) how many were
    factor: Floats  # (D, M) lower Cholesky factor of the correlations in that order
    log_constant: Floats  # (1,) largest log density of what was observed
    is_correlated: bool  # a value, not a type: one compiled kernel does for all kinds of noise


@kernel
def make_holes(units: NoiseUnits) -> Holes:
    """Make room for the holes of a row."""
    return Holes(
        np.empty(units.deviations.size, dtype=np.intp),
        np.full(1, -1, dtype=np.intp),
        np.zeros(units.correlations.shape),
        np.empty(1),
        units.correlations.size > 0,
    )


@kernel
def find_holes(row: Floats, units: NoiseUnits, holes: Holes) -> int:
    """Order the features of a row, and factorize; return how many were observed.

    Rows that follow each other often have the same holes: the factor is then kept.
    """
    order = holes.order
    n_observed = 0
    for d in range(row.size):
        if not math.isnan(row[d]):
            n_observed += 1
    changed = holes.n_observed[0] != n_observed
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
    if changed:
        holes.n_observed[0] = n_observed
        if holes.is_correlated:
            _factorize(units.correlations, order, holes.factor)
        log_constant = -n_observed * LOG_SQRT_2PI
        for i in range(n_observed):
            log_constant -= math.log(units.deviations[order[i]])
            if holes.is_correlated:
                log_constant -= math.log(holes.factor[i, i])
        holes.log_constant[0] = log_constant
    return n_observed


@kernel
def _factorize(correlations: Floats, order: Integers, factor: Floats) -> None:
    """Lower Cholesky factor of a matrix whose rows and columns are reordered."""
    for i in range(len(order)):
        for j in range(i + 1):
            rest = correlations[order[i], order[j]]
            for k in range(j):
                rest -= factor[i, k] * factor[j, k]
            factor[i, j] = math.sqrt(rest) if i == j else rest / factor[j, j]


@kernel
def predict_missing(holes: Holes, noise: Floats) -> None:
    """Fill in the expected noise of what is missing, given that of what was observed.

    All in order, and in units of the deviations; that of what was observed is whitened.
    """
    factor, n_observed = holes.factor, holes.n_observed[0]
    for i in range(len(noise)):
        rest = noise[i] if i < n_observed else 0.0
        for j in range(min(i, n_observed)):
            rest -= factor[i, j] * noise[j]
        noise[i] = rest / factor[i, i] if i < n_observed else -rest


@kernel
def fill_holes(
    row: Floats, generated: Floats, units: NoiseUnits, holes: Holes, filled: Floats
) -> None:
    """Fill in what is missing by its expectation, given what was observed and g(z).

    ``generated`` holds g(z) or, since everything is linear in it, its posterior mean on a region.
    With a draw of the noise added to it, the row is completed by a draw: what is observed
    then tells by how much that draw of the noise was wrong.
    """
    n_observed = find_holes(row, units, holes)
    order = holes.order
    noise = np.zeros(row.size)
    if holes.is_correlated:
        for i in range(n_observed):
            d = order[i]
            noise[i] = (row[d] - generated[d]) / units.deviations[d]
        predict_missing(holes, noise)
    for i in range(row.size):
        d = order[i]
        filled[d] = row[d] if i < n_observed else generated[d] + units.deviations[d] * noise[i]
