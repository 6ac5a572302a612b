"""The point of a polyhedron that is nearest to the origin: one small quadratic program."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from skdgn._geometry.interface import THINNEST_PIECE
from skdgn._runtime import Floats, Integers, kernel

# A row nearer to the span of other rows depends on them: ten times less than what counts as a
# piece, a hundred times more than rounding.
DEPENDENT = 0.1 * THINNEST_PIECE
# A halfspace is violated by more than this, relative to the terms of its inequality, or not at all.
_ROUNDING = 1e-14
# Each step of the quadratic program adds a row or replaces some: a handful per dimension.  Only
# rounding errors could make it go round in circles.
_MOST_STEPS = 1000


@kernel
def dot(x: Floats, y: Floats) -> float:
    total = 0.0
    for s in range(x.size):
        total += x[s] * y[s]
    return total


@kernel
def orthogonalize(
    row: Floats, basis: Floats, n_basis: int, coordinates: Floats, across: Floats
) -> float:
    """Write row = ``coordinates @ basis[:n_basis] + across``; return the length of the latter."""
    for s in range(row.size):
        across[s] = row[s]
    for i in range(n_basis):
        coordinates[i] = 0.0
    for _ in range(2):  # the second time removes what rounding left
        for i in range(n_basis):
            along = dot(basis[i], across)
            coordinates[i] += along
            for s in range(row.size):
                across[s] -= along * basis[i, s]
    return math.sqrt(dot(across, across))


@kernel
def nearest_point(
    rows: Floats, bounds: Floats, farthest: float, point: Floats, multipliers: Floats
) -> float:
    """Find the point with ``rows @ point >= bounds`` that is nearest to the origin.

    Goldfarb and Idnani's dual method: start at the origin, step to the most violated
    halfspace, keep those that hold the point where it is.  The distance grows with each step, so
    the search can end as soon as it is too large.

    Parameters
    ----------
    rows : ndarray of shape (k, n)
        Unit normals of the halfspaces.
    bounds : ndarray of shape (k,)
    farthest : float
        Largest distance of interest.
    point, multipliers : ndarray of shape (n,) and (k,)
        Filled with the point and with numbers >= 0 such that ``point = multipliers @ rows``;
        those of halfspaces with the point in their interior are zero.

    Returns
    -------
    distance : float
        Infinite if there is no such point, or none as near as ``farthest``.

    References
    ----------
    Goldfarb and Idnani, *A numerically stable dual method for solving strictly convex quadratic
    programs*, 1983.
    """
    n = point.size
    active = _ActiveRows(
        np.empty(n, dtype=np.intp), np.empty(n), np.empty((n, n)), np.empty((n, n))
    )
    along, across = np.empty(n), np.empty(n)
    n_active = np.intp(0)  # not a literal, for which Numba would compile `orthogonalize` apart
    for s in range(n):
        point[s] = 0.0
    for k in range(len(rows)):
        multipliers[k] = 0.0
    distance = 0.0
    for _ in range(_MOST_STEPS):
        distance = math.sqrt(dot(point, point))
        if distance > farthest:
            return math.inf
        entering, violation = _most_violated(rows, bounds, point, distance)
        if entering < 0:
            break
        weight = 0.0
        while True:
            length = _direction(rows[entering], active, n_active, along, across)
            step, leaving = math.inf, -1
            if length > 0.0:
                step = violation / (length * length)
            for i in range(n_active):
                if along[i] > 0.0 and active.weights[i] < step * along[i]:
                    step, leaving = active.weights[i] / along[i], i
            if step == math.inf:
                return math.inf
            weight += step
            for i in range(n_active):
                active.weights[i] -= step * along[i]
            if length > 0.0:
                violation -= step * length * length
                for s in range(n):
                    point[s] += step * across[s]
            if leaving < 0:
                active.places[n_active], active.weights[n_active] = entering, weight
                for s in range(n):
                    active.basis[n_active, s] = across[s] / length
                n_active += 1
                break
            # A multiplier has become zero: its row holds the point no longer.
            n_active -= 1
            _remove(rows, active, n_active, leaving, across)
    for i in range(n_active):
        multipliers[active.places[i]] = active.weights[i]
    return distance


class _ActiveRows(NamedTuple):
    """The rows that hold the point where it is."""

    places: Integers  # (n,)
    weights: Floats  # (n,) their multipliers
    basis: Floats  # (n, n) the rows orthogonalized: row i is triangle[i, :i + 1] @ basis
    triangle: Floats  # (n, n)


@kernel
def _most_violated(
    rows: Floats, bounds: Floats, point: Floats, distance: float
) -> tuple[int, float]:
    """Find the halfspace that a point is farthest from, or -1, and how far that is."""
    violation, entering = 0.0, -1
    for k in range(len(rows)):
        missing = bounds[k] - dot(rows[k], point)
        if missing > max(violation, _ROUNDING * (abs(bounds[k]) + distance)):
            violation, entering = missing, k
    return entering, violation


@kernel
def _direction(
    row: Floats, active: _ActiveRows, n_active: int, along: Floats, across: Floats
) -> float:
    """Find where to move the point, and how multipliers change with it.

    Moving it along the row's part across the active rows keeps it on these; their multipliers then
    change by minus the row's coordinates in terms of them.  Returns the length of that part, 0 if
    the row depends on the active ones.
    """
    triangle = active.triangle
    length = orthogonalize(row, active.basis, n_active, along, across)
    if length > DEPENDENT and n_active < row.size:
        for i in range(n_active):
            triangle[n_active, i] = along[i]
        triangle[n_active, n_active] = length
    else:
        length = 0.0
    for i in range(n_active - 1, -1, -1):
        for j in range(i + 1, n_active):
            along[i] -= triangle[j, i] * along[j]
        along[i] /= triangle[i, i]
    return length


@kernel
def _remove(rows: Floats, active: _ActiveRows, n_left: int, leaving: int, across: Floats) -> None:
    """Remove an active row: those after it are orthogonalized again."""
    for i in range(leaving, n_left):
        active.places[i], active.weights[i] = active.places[i + 1], active.weights[i + 1]
        row = rows[active.places[i]]
        length = orthogonalize(row, active.basis, i, active.triangle[i], across)
        active.triangle[i, i] = length
        for s in range(across.size):
            active.basis[i, s] = across[s] / length
