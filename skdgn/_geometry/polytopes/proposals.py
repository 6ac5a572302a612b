"""How to draw points of a polytope, coordinate after coordinate, each in view of what follows.

The Gaussian truncated to the polytope is approximated by expectation propagation: every facet
becomes a *site*, a Gaussian factor across it.  Coordinates are chosen along the normals of the
facets that cut most; each is drawn within the facets that it decides, and facets that only later
ones will decide are represented by their sites.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from skdgn._geometry.polytopes.quadratic_program import DEPENDENT, dot, orthogonalize
from skdgn._geometry.truncated_normal import truncate_below
from skdgn._runtime import Floats, Integers, kernel

# Expectation propagation ends when no site's precision changes by more than this, relative to the
# approximation's, or after so many sweeps.  It only has to give good proposals.
_SITE_CHANGE = 0.01
_MOST_SWEEPS = 50
# A site that cuts off less than 1e-9 is left out.
_NO_CUT = -6.0
# Share of the sites' precision that proposals have.  With all of it, their tails would be lighter
# than what they are to stand for.  (Measured: 0.5 to 1 make little difference, less is worse.)
_DAMPING = 0.7


class Proposals(NamedTuple):
    """How to draw points of a cell, coordinate after coordinate.

    Coordinates are displacements v from the cell's nearest point, along an orthonormal basis.
    Facet k is ``coefficients[k] @ v >= -gaps[k]``; its coefficients beyond ``decided[k]`` are
    zero. The Gaussian is ``exp(-pull @ v - v @ v / 2)``, up to a factor; coordinate i is drawn
    from ``exp(slope v[i] - precisions[i] v[i]^2 / 2)``, ``slope = slopes[i, :i] @ v[:i] +
    slopes[i, i]``, truncated to the facets that it decides.
    """

    coefficients: Floats  # (k, d)
    gaps: Floats  # (k,)
    decided: Integers  # (k,)
    pull: Floats  # (d,)
    slopes: Floats  # (d, d)
    precisions: Floats  # (d,)


@kernel
def approximate(
    normals: Floats,
    gaps: Floats,
    slopes: Floats,
    precisions: Floats,
    location: Floats,
) -> None:
    """Approximate a truncated Gaussian by expectation propagation.

    The density is ``exp(-p . v - v . v / 2)`` where all ``normals @ v >= -gaps``.  Each of the
    halfspaces is replaced by ``exp(slope t - precision t^2 / 2)`` of its ``t = normal . v`` (its
    *site*) such that mean and variance of ``t`` do not change when any one site is replaced by
    its halfspace.

    Parameters
    ----------
    normals, gaps : ndarray of shape (k, S) and (k,)
    slopes, precisions : ndarray of shape (k,)
        The sites.  On entry, slopes are the multipliers of the nearest point, ``p = slopes @
        normals``, which is what they are in the far tail; precisions need no value.
    location : ndarray of shape (S,)
        Filled with the mean of the approximation.
    """
    n_facets, n_dimensions = normals.shape
    spread = np.zeros((n_dimensions, n_dimensions))  # covariance
    product = np.empty(n_dimensions)
    for s in range(n_dimensions):
        location[s] = 0.0
        spread[s, s] = 1.0
    for k in range(n_facets):
        precisions[k] = 0.0
    for _ in range(_MOST_SWEEPS):
        largest_change = 0.0
        for k in range(n_facets):
            for s in range(n_dimensions):
                product[s] = dot(spread[s], normals[k])
            mean, variance = dot(location, normals[k]), dot(product, normals[k])
            # Without this site ...
            precision = 1.0 / variance - precisions[k]
            if not precision > 0.0:
                continue  # rounding
            slope = mean / variance - slopes[k]
            deviation = 1.0 / math.sqrt(precision)
            # ... but with its halfspace.
            cut = (-gaps[k] - slope / precision) / deviation
            new_slope, new_precision = 0.0, 0.0
            if cut > _NO_CUT:
                excess, share = truncate_below(cut)
                new_precision = max(0.0, precision / share - precision)
                new_slope = (excess * deviation - gaps[k]) * (precision + new_precision) - slope
            change = new_precision - precisions[k]
            shift = new_slope - slopes[k] - change * mean
            precisions[k], slopes[k] = new_precision, new_slope
            scale = 1.0 / (1.0 + change * variance)
            largest_change = max(largest_change, abs(change) * variance)
            for s in range(n_dimensions):
                location[s] += scale * shift * product[s]
                for t in range(n_dimensions):
                    spread[s, t] -= scale * change * product[s] * product[t]
        if largest_change < _SITE_CHANGE:
            break


@kernel
def choose_axes(normals: Floats, urgencies: Floats, decided: Integers) -> tuple[Floats, Floats]:
    """Orthogonalize the normals of the facets, the most urgent first.

    Returns orthonormal axes, as many as the facets depend on, and the coefficients of the normals
    along them; fills the last axis that each facet depends on.
    """
    n_facets, n_dimensions = normals.shape
    axes = np.empty((n_dimensions, n_dimensions))
    coefficients = np.zeros((n_facets, n_dimensions))
    rest = normals.copy()
    scratch = np.empty(n_dimensions)
    for k in range(n_facets):
        decided[k] = -1
    rank = 0
    while rank < n_dimensions:
        most, chosen = -1.0, -1
        for k in range(n_facets):
            score = urgencies[k] * math.sqrt(dot(rest[k], rest[k]))
            if decided[k] < 0 and score > most:
                most, chosen = score, k
        if chosen < 0:
            break
        length = orthogonalize(normals[chosen], axes, rank, scratch, axes[rank])
        for s in range(n_dimensions):
            axes[rank, s] /= length
        for k in range(n_facets):
            if decided[k] < 0:
                along = dot(axes[rank], normals[k])
                coefficients[k, rank] = along
                for s in range(n_dimensions):
                    rest[k, s] -= along * axes[rank, s]
                if k == chosen or dot(rest[k], rest[k]) < DEPENDENT * DEPENDENT:
                    decided[k] = rank
        rank += 1
    for k in range(n_facets):
        if decided[k] < 0:
            decided[k] = rank - 1
    return axes[:rank].copy(), coefficients[:, :rank].copy()


@kernel
def look_ahead(
    proposals: Proposals, site_slopes: Floats, site_precisions: Floats, location: Floats
) -> None:
    """Fill slopes and precisions of the proposals.

    A coordinate is drawn within the facets that it decides.  Those decided later are represented by
    their sites, and the coordinates drawn later are integrated out.
    """
    n_facets, rank = proposals.coefficients.shape
    matrix = np.empty((rank, rank))
    vector = np.empty(rank)
    for i in range(rank):
        for a in range(rank):
            vector[a] = -proposals.pull[a]
            for b in range(rank):
                matrix[a, b] = 1.0 if a == b else 0.0
        for k in range(n_facets):
            if proposals.decided[k] > i:
                for a in range(rank):
                    along = proposals.coefficients[k, a]
                    vector[a] += site_slopes[k] * along
                    for b in range(rank):
                        matrix[a, b] += site_precisions[k] * along * proposals.coefficients[k, b]
        for last in range(rank - 1, i, -1):
            for a in range(last):
                ratio = matrix[a, last] / matrix[last, last]
                vector[a] -= ratio * vector[last]
                for b in range(last):
                    matrix[a, b] -= ratio * matrix[last, b]
        # Less curvature, with the same slope at the mean.
        removed = (1.0 - _DAMPING) * (matrix[i, i] - 1.0)
        proposals.precisions[i] = max(1.0, matrix[i, i] - removed)  # but for rounding
        proposals.slopes[i, i] = vector[i] - removed * location[i]
        for a in range(i):
            proposals.slopes[i, a] = -matrix[i, a]
