"""What a row with holes says: the noise restricted to what was observed.

Missing values are NaN.  The features of such a row are put in an order of their own, those observed
first.  The Cholesky factor of the noise covariance in that order,

    [ L_oo   0   ]
    [ L_mo  L_mm ]

holds all there is to know: ``L_oo`` whitens what was observed, ``L_mo L_oo^-1 e_o`` is the expected
noise of what is missing, and ``L_mm L_mm'`` its covariance.  Features are measured in units of
their noise deviations, so that the covariance is a correlation matrix; without correlations the
factor is the identity, and nothing is computed.

Where regions have noises of their own, units are those of the reference (`skdgn._regional_noise`),
and every region has its covariance in these units, and its factor.

Shapes: ``K`` noises, one or one per region; ``M`` entries per feature: D for a matrix, 1 for its
diagonal, 0 for the identity.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdgn._jit import LOG_SQRT_2PI, kernel
from skdgn._network import Floats
from skdgn._regional_noise import AnyNoise, RegionalNoise

Integers = NDArray[np.intp]


class NoiseUnits(NamedTuple):
    """Deviations of the reference noise, and the covariances of all noises in these units."""

    deviations: Floats  # (D,)
    covariances: Floats  # (K, D, M)
    log_determinants: Floats  # (K,) of the covariances
    spreads: Floats  # (K,) largest eigenvalues of the covariances, hence of any part of them

    @classmethod
    def of(cls, noise: AnyNoise) -> NoiseUnits:
        """Divide covariances by the deviations of the reference."""
        reference, n_features = noise.reference, noise.n_features
        variances = reference.covariance
        if variances.ndim == 2:
            variances = np.diagonal(variances)
        variances = np.broadcast_to(variances, (n_features,))
        deviations = np.sqrt(variances)
        if isinstance(noise, RegionalNoise):
            covariances = noise.covariance
        elif noise.covariance.ndim == 2:
            covariances = noise.covariance[None]
        else:
            return cls(deviations, np.empty((1, n_features, 0)), np.zeros(1), np.ones(1))
        if covariances.ndim == 3:
            covariances = covariances / np.outer(deviations, deviations)
            values = np.linalg.eigvalsh(covariances)
        else:
            values = covariances.reshape(len(covariances), -1) / variances
            covariances = values[:, :, None]
        return cls(
            deviations,
            np.ascontiguousarray(covariances),
            np.log(values).sum(axis=1),
            values.max(axis=1, initial=0.0),
        )


class Holes(NamedTuple):
    """Where the holes of one row are, and the noise seen from there."""

    order: Integers  # (D,) features, those observed first
    factors: Floats  # (K, D, M) lower Cholesky factors of the covariances in that order
    log_constants: Floats  # (K,) largest log densities of what was observed
    counts: Integers  # (2 + K,) observed features; holes so far; those each factor is of


@kernel
def make_holes(units: NoiseUnits) -> Holes:
    """Make room for the holes of a row."""
    n_noises, n_features, n_entries = units.covariances.shape
    counts = np.zeros(2 + n_noises, dtype=np.intp)
    counts[0] = -1
    return Holes(
        np.empty(n_features, dtype=np.intp),
        np.zeros((n_noises, n_features, n_entries)),
        np.empty(n_noises),
        counts,
    )


@kernel
def find_holes(row: Floats, holes: Holes) -> int:
    """Order the features of a row; return how many were observed.

    Rows that follow each other often have the same holes: factors are then kept.
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
    if changed:
        holes.counts[1] += 1
    return n_observed


@kernel
def noise_of_region(region: int, units: NoiseUnits, holes: Holes) -> int:
    """Find the noise of a region, and its factor if these holes are new to it."""
    noise = region if len(holes.factors) > 1 else 0
    if holes.counts[2 + noise] != holes.counts[1]:
        holes.counts[2 + noise] = holes.counts[1]
        n_observed = holes.counts[0]
        order, factor = holes.order, holes.factors[noise]
        _factorize(units.covariances[noise], order, factor)
        log_constant = -n_observed * LOG_SQRT_2PI
        for i in range(n_observed):
            log_constant -= math.log(units.deviations[order[i]])
            if factor.size > 0:
                log_constant -= math.log(factor[i, i if factor.shape[1] > 1 else 0])
        holes.log_constants[noise] = log_constant
    return noise


@kernel
def _factorize(covariance: Floats, order: Integers, factor: Floats) -> None:
    """Lower Cholesky factor of a matrix whose rows and columns are reordered."""
    for i in range(order.size):
        if covariance.shape[1] == 1:
            factor[i, 0] = math.sqrt(covariance[order[i], 0])
        elif covariance.size > 0:
            for j in range(i + 1):
                rest = covariance[order[i], order[j]]
                for k in range(j):
                    rest -= factor[i, k] * factor[j, k]
                factor[i, j] = math.sqrt(rest) if i == j else rest / factor[j, j]


@kernel
def largest_log_constant(units: NoiseUnits, holes: Holes) -> float:
    """Bound the log density of what was observed, for the noises of all regions.

    The determinant of a part of a matrix is at least that of the whole over the product of the
    other diagonal entries (Fischer's inequality).
    """
    if len(holes.factors) == 1:
        return holes.log_constants[noise_of_region(0, units, holes)]
    n_observed = holes.counts[0]
    smallest = math.inf
    for noise in range(len(holes.factors)):
        covariance = units.covariances[noise]
        log_determinant = units.log_determinants[noise]
        for i in range(n_observed, holes.order.size):
            d = holes.order[i]
            log_determinant -= math.log(covariance[d, d if covariance.shape[1] > 1 else 0])
        smallest = min(smallest, log_determinant)
    log_constant = -n_observed * LOG_SQRT_2PI - 0.5 * smallest
    for i in range(n_observed):
        log_constant -= math.log(units.deviations[holes.order[i]])
    return log_constant


@kernel
def whiten_observed(factor: Floats, n_observed: int, values: Floats) -> None:
    """Multiply observed values, in order and in units of the deviations, by ``L_oo^-1``."""
    if factor.shape[1] == 1:
        for i in range(n_observed):
            values[i] /= factor[i, 0]
    elif factor.size > 0:
        for i in range(n_observed):
            rest = values[i]
            for j in range(i):
                rest -= factor[i, j] * values[j]
            values[i] = rest / factor[i, i]


@kernel
def fill_holes(
    row: Floats, generated: Floats, region: int, units: NoiseUnits, holes: Holes, filled: Floats
) -> None:
    """Fill in what is missing by its expectation, given what was observed and g(z).

    ``generated`` holds g(z) on a region or, since everything is linear in it, its posterior mean
    there.  With a draw of the noise added to it, the row is completed by a draw: what is observed
    then tells by how much that draw of the noise was wrong.
    """
    n_observed = find_holes(row, holes)
    noise = noise_of_region(region, units, holes)
    order, factor = holes.order, holes.factors[noise]
    residuals = np.empty(n_observed if factor.shape[1] > 1 else 0)
    for i in range(residuals.size):
        d = order[i]
        residuals[i] = (row[d] - generated[d]) / units.deviations[d]
    whiten_observed(factor, residuals.size, residuals)
    for i in range(row.size):
        d = order[i]
        filled[d] = row[d]
        if i >= n_observed:
            expected = 0.0
            for j in range(residuals.size):
                expected += factor[i, j] * residuals[j]
            filled[d] = generated[d] + units.deviations[d] * expected
