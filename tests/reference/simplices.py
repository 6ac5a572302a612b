"""The paper's route to a Gaussian integral over a cell: simplices and signed cones.

Slow, for any latent dimension, of *absolute* accuracy only: sums of signed terms of order 1, so
masses far below 1e-15 (1e-5 in more than three dimensions) are lost.  It is the reference for the
fast routes, not one of them.

Sign convention: a cell is where ``normals @ z >= offsets`` (inward normals).

The route, with what had to be corrected:

1. Triangulate the cell.  The paper triangulates its vertices, but most cells are unbounded and more
   than the convex hull of their vertices.  Here some corners of a simplex may be at infinity.
2. Write the indicator of each simplex as a signed sum over intersections of at most S of its
   halfspaces.  The paper's lemma holds for bounded simplices only; see `_integrate_simplex`.
3. Each of these is a multivariate normal orthant probability.
4. Moments.  The paper's formulas (its F, G and H) mix up indices and signs.  Here the divergence
   theorem turns moments into integrals over the facets of the simplices, which are simplices too.

Halfspaces are rational numbers down to step 3, so nearly parallel facets meet in the same place,
however far out it is, in whichever facet's plane one looks at them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tests.reference.generators import (
    Vector,
    find_dual_basis,
    find_generators,
    reduce_to_integers,
    triangulate,
)
from tests.reference.orthants import FAR, orthant_probability

Floats = NDArray[np.float64]


class CellIntegral(NamedTuple):
    """Integrals of ``N(z)``, ``z N(z)`` and ``z z' N(z)`` over a cell (unnormalized moments).

    ``error`` estimates the absolute error of the mass.  That of the moments is of the same order,
    in units of the mean and deviations of the Gaussian.
    """

    mass: float
    first: Floats
    second: Floats
    error: float


class _Side(NamedTuple):
    """One facet of a simplex.

    ``functional @ (y, 1)`` is 0 on the facet and positive at the corner opposite to it, which is at
    infinity or is not.
    """

    functional: Vector
    corner_is_finite: bool


def integrate(
    normals: ArrayLike, offsets: ArrayLike, mean: ArrayLike, covariance: ArrayLike
) -> CellIntegral:
    """Integrate a Gaussian and its first two moments over a convex polyhedral cell.

    Slow (hundredths of a second in two dimensions, tenths in three, seconds beyond), and of
    absolute accuracy only (about 1e-15 up to three dimensions, 1e-4 beyond).

    Parameters
    ----------
    normals : array-like of shape (k, S)
        Inward normals, of any length.  There may be none at all (the cell is then the whole
        space), some may be redundant, some may occur twice.
    offsets : array-like of shape (k,)
        The cell is where ``normals @ z >= offsets``.  It may be unbounded; if it is empty or has no
        interior, its mass is 0.
    mean : array-like of shape (S,)
    covariance : array-like of shape (S, S)
        Symmetric positive definite.

    Returns
    -------
    integral : CellIntegral

    Examples
    --------
    A quarter of the plane:

    >>> import numpy as np
    >>> from tests.reference.simplices import integrate
    >>> integrate(np.eye(2), np.zeros(2), mean=np.zeros(2), covariance=np.eye(2)).mass
    0.25
    """
    mean = np.asarray(mean, dtype=np.float64)
    normals = np.asarray(normals, dtype=np.float64).reshape(-1, len(mean))
    offsets = np.asarray(offsets, dtype=np.float64)
    if not (np.all(np.isfinite(normals)) and np.all(np.isfinite(offsets))):
        raise ValueError("normals and offsets must be finite; leave out what is always satisfied.")
    # In coordinates y with z = mean + factor @ y the Gaussian is standard.
    factor = np.linalg.cholesky(np.asarray(covariance, dtype=np.float64))

    mass = error = 0.0
    first, second = np.zeros(len(mean)), np.zeros((len(mean), len(mean)))
    for simplex in _find_simplices(_homogenize(normals, offsets, mean), factor):
        piece = _integrate_simplex(simplex, order=2)
        mass += piece.mass
        first += piece.first
        second += piece.second
        error += piece.error

    shift = factor @ first
    return CellIntegral(
        max(mass, 0.0),
        mass * mean + shift,
        mass * np.outer(mean, mean)
        + np.outer(mean, shift)
        + np.outer(shift, mean)
        + factor @ (0.5 * (second + second.T)) @ factor.T,
        error,
    )


def _homogenize(normals: Floats, offsets: Floats, mean: Floats) -> list[list[Fraction]]:
    """Write the cell, moved by -mean, as a cone in one dimension more; the last is the height."""
    center = [Fraction(x) for x in mean.tolist()]
    inequalities = [[Fraction(0)] * len(center) + [Fraction(1)]]  # height >= 0
    for normal, offset in zip(normals.tolist(), offsets.tolist(), strict=True):
        row = [Fraction(x) for x in normal]
        constant = sum((a * b for a, b in zip(row, center, strict=True)), -Fraction(offset))
        if any(row) or constant:  # else 0 >= 0, which says nothing
            inequalities.append([*row, constant])
    return inequalities


def _find_simplices(
    inequalities: Sequence[Sequence[Fraction]], factor: Floats
) -> Iterator[list[_Side]]:
    """Cut a cell into simplices, given by their facets in coordinates y."""
    cone = find_generators(inequalities)
    cell = frozenset(range(len(cone.rays)))
    if cell in cone.walls:  # no interior; in the wall at infinity: no points at all
        return
    columns = [[Fraction(x) for x in column] for column in factor.T.tolist()]
    for simplex in triangulate(cell, cone.walls):
        corners = [cone.rays[i] for i in sorted(simplex)]
        # If there are lines in the cell, functionals are constant along them; those that belong to
        # the lines themselves come last and are not needed.
        functionals = find_dual_basis([*corners, *cone.lines])[: len(corners)]
        sides = []
        for corner, (*normal, constant) in zip(corners, functionals, strict=True):
            turned = [sum(a * b for a, b in zip(normal, c, strict=True)) for c in columns]
            functional = reduce_to_integers([*turned, constant])
            sides.append(_Side(functional, corner_is_finite=corner[-1] > 0))
        yield sides


def _integrate_simplex(sides: Sequence[_Side], order: int) -> CellIntegral:
    """Integrate the standard Gaussian and its moments up to an order over a simplex.

    Parameters
    ----------
    sides : sequence of d + 1 _Side
        The facets of a simplex of dimension d, possibly with corners at infinity, possibly times
        all of space in directions orthogonal to their normals.
    order : {0, 1, 2}
        Moments of higher order are left at 0.

    Returns
    -------
    integral : CellIntegral

    Notes
    -----
    *Mass.*  Let ``H_j`` be the halfspace where the functional ``f_j`` of side j is positive.  The
    simplex is the intersection of all.  Scale each ``f_j`` to be 1 at its corner; then the sum over
    the *finite* corners is 1 at every finite corner and does not change toward infinite ones: it
    is 1 everywhere.  So at any point one of these ``f_j`` is positive, their halfspaces cover all
    of space, and with v finite corners inclusion and exclusion give

        1[simplex] = prod_(infinite i) 1[H_i]  sum_(J) (-1)^(|J| + v - 1) prod_(j in J) 1[H_j]

    over the proper subsets J of the finite corners, at most d halfspaces in each term.  If all
    corners are finite, v = d + 1, this is Lemma "integral_decomposition" of the paper, whose proof
    takes the covering for granted.

    *Moments.*  With ``phi`` the standard normal density, ``grad phi = -y phi``, so the divergence
    theorem gives, with ``m_f`` the inward unit normal of facet f and ``c_f`` its offset,

        int y phi    = sum_f m_f int_f phi
        int y y' phi = I int phi + sum_f (int_f y phi) m_f'

    On the facet ``y = c_f m_f + u`` with u orthogonal to ``m_f``, and ``phi(y) = phi(c_f) phi(u)``:

        int_f phi    =  phi(c_f) mass_f
        int_f y phi  =  phi(c_f) (c_f m_f mass_f + first_f)

    where ``mass_f`` and ``first_f`` are those of a simplex with one dimension less.  A facet shared
    by two simplices cancels.
    """
    normals, offsets = _unit_normals([side.functional for side in sides])
    d = normals.shape[1]
    mass = error = 0.0
    first, second = np.zeros(d), np.zeros((d, d))
    if np.any(offsets > FAR):
        return CellIntegral(mass, first, second, error)

    finite = [j for j, side in enumerate(sides) if side.corner_is_finite]
    infinite = [j for j, side in enumerate(sides) if not side.corner_is_finite]
    for size in range(len(finite)):
        for subset in itertools.combinations(finite, size):
            chosen = [*infinite, *subset]
            term = orthant_probability(normals[chosen], offsets[chosen])
            mass += (-1) ** (size + len(finite) - 1) * term.value
            error += term.error

    if order == 2:
        second += mass * np.eye(d)
    for f in np.flatnonzero(np.abs(offsets) < FAR).tolist() if order > 0 else []:
        others = [_restrict(side, sides[f]) for side in sides if side is not sides[f]]
        inner = _integrate_simplex(others, order - 1)
        density = math.exp(-0.5 * offsets[f] ** 2) / math.sqrt(2 * math.pi)
        first += density * inner.mass * normals[f]
        if order == 2:
            flux = density * (inner.mass * offsets[f] * normals[f] + inner.first)
            second += np.outer(flux, normals[f])
    return CellIntegral(mass, first, second, error)


def _restrict(side: _Side, facet: _Side) -> _Side:
    """Make a functional's normal orthogonal to that of a facet, without changing it there."""
    (*n, _), (*m, _) = side.functional, facet.functional
    n_m = sum(a * b for a, b in zip(n, m, strict=True))
    m_m = sum(a * a for a in m)
    restricted = [m_m * a - n_m * b for a, b in zip(side.functional, facet.functional, strict=True)]
    return _Side(reduce_to_integers(restricted), side.corner_is_finite)


def _unit_normals(functionals: Sequence[Vector]) -> tuple[Floats, Floats]:
    """Turn functionals ``n @ y + b >= 0`` into ``m @ y >= c`` with unit normals m.

    Offsets are -inf where the normal is zero: the facet at infinity.
    """
    # Large integers may exceed all floating-point numbers; their ratios to the largest do not.
    ratios = [[float(Fraction(x, max(map(abs, f)))) for x in f] for f in functionals]
    normals, constants = np.split(np.array(ratios), [-1], axis=1)
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    with np.errstate(divide="ignore", over="ignore"):
        offsets = -constants / lengths
    return normals / np.where(lengths > 0, lengths, 1.0), offsets[:, 0]
