"""The paper's route to a Gaussian integral over a cell: simplices and signed cones.

Slow, for any latent dimension, of *absolute* accuracy only: sums of signed terms of order 1, so
masses far below 1e-15 (1e-6 in more than three dimensions) are lost.  It is the reference for the
fast routes, not one of them.

Sign convention: a cell is where ``normals @ z >= offsets`` (inward normals).

The route, with what had to be corrected:

1. Triangulate the cell.  The paper triangulates its vertices, but most cells are unbounded and more
   than the convex hull of their vertices.  Here some corners of a simplex may be at infinity.
2. Write the indicator of each simplex as a signed sum over intersections of at most S of its
   halfspaces.  The paper's lemma holds for bounded simplices only; see `_integrate_simplex`.
3. Each of these is a multivariate normal orthant probability.
4. Moments.  The paper's formulas (its F, G and H) mix up indices and signs.  By the divergence
   theorem moments are sums of integrals over the facets of the cell: the same problem in dimension
   S - 1.  See `_integrate_face`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from skdgn._cells.generators import Face, Vector, facets, find_generators, triangulate
from skdgn._cells.orthants import FAR, ROUNDING, Probability, orthant_probability

Floats = NDArray[np.float64]


class CellIntegral(NamedTuple):
    """Integrals of ``N(z)``, ``z N(z)`` and ``z z' N(z)`` over a cell (unnormalised moments).

    ``error`` estimates the absolute error of the mass.  That of the moments is of the same order,
    in units of the mean and deviations of the Gaussian.
    """

    mass: float
    first: Floats
    second: Floats
    error: float


def integrate(
    normals: ArrayLike, offsets: ArrayLike, mean: ArrayLike, covariance: ArrayLike
) -> CellIntegral:
    """Integrate a Gaussian and its first two moments over a convex polyhedral cell.

    Slow (milliseconds in two dimensions, tenths of a second in three, minutes in five), and of
    absolute accuracy only (about 1e-15 up to three dimensions, 1e-5 beyond).

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
    >>> from skdgn._cells.simplices import integrate
    >>> integrate(np.eye(2), np.zeros(2), mean=np.zeros(2), covariance=np.eye(2)).mass
    0.25
    """
    mean = np.asarray(mean, dtype=np.float64)
    dimension = len(mean)
    normals = np.asarray(normals, dtype=np.float64).reshape(-1, dimension)
    offsets = np.asarray(offsets, dtype=np.float64)
    factor = np.linalg.cholesky(np.asarray(covariance, dtype=np.float64))

    cone = find_generators(_homogenise(normals, offsets, mean))
    cell = frozenset(range(len(cone.rays)))
    if cell in cone.walls:  # no interior; on the wall at infinity: empty
        return CellIntegral(0.0, np.zeros(dimension), np.zeros((dimension, dimension)), 0.0)

    # In coordinates y with z = mean + factor @ y the Gaussian is standard.  Directions in which the
    # cell contains lines are independent of the others: leave them out, put their moments back.
    across = _complement(_standardise(cone.lines, factor)[:, :-1])
    corners = _project(_standardise(cone.rays, factor), across)
    inner = _integrate_face(cell, corners, cone.walls, order=2)
    first = across @ inner.first
    second = across @ inner.second @ across.T + inner.mass * (np.eye(dimension) - across @ across.T)

    shifted = factor @ first
    return CellIntegral(
        inner.mass,
        inner.mass * mean + shifted,
        inner.mass * np.outer(mean, mean)
        + np.outer(mean, shifted)
        + np.outer(shifted, mean)
        + factor @ second @ factor.T,
        inner.error,
    )


def _homogenise(normals: Floats, offsets: Floats, mean: Floats) -> list[list[Fraction]]:
    """Write the cell, moved by -mean, as a cone in one dimension more; the last is the height."""
    center = [Fraction(x) for x in mean.tolist()]
    inequalities = [[Fraction(0)] * len(center) + [Fraction(1)]]  # height >= 0
    for normal, offset in zip(normals.tolist(), offsets.tolist(), strict=True):
        row = [Fraction(x) for x in normal]
        constant = sum((a * b for a, b in zip(row, center, strict=True)), -Fraction(offset))
        if any(row) or constant:  # else 0 >= 0, which says nothing
            inequalities.append([*row, constant])
    return inequalities


def _standardise(vectors: Sequence[Vector], factor: Floats) -> Floats:
    """Turn generators into rows ``(y, height)`` of unit length, (n, S + 1)."""
    # Exact numbers may exceed all floating-point numbers; their ratios to the largest do not.
    scaled = [[float(Fraction(x, max(map(abs, v)))) for x in v] for v in vectors]
    rows = np.reshape(scaled, (-1, len(factor) + 1))
    rows[:, :-1] = solve_triangular(factor, rows[:, :-1].T, lower=True).T
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _complement(vectors: Floats) -> Floats:
    """Return an orthonormal basis of what is orthogonal to the n rows, (d, d - n)."""
    return np.asarray(np.linalg.qr(vectors.T, mode="complete").Q[:, len(vectors) :])


def _project(corners: Floats, basis: Floats) -> Floats:
    """Express corners ``(y, height)`` in the coordinates of a basis, heights kept."""
    return np.column_stack([corners[:, :-1] @ basis, corners[:, -1]])


def _integrate_face(face: Face, corners: Floats, walls: Sequence[Face], order: int) -> CellIntegral:
    """Integrate the standard Gaussian and its moments up to an order over a d-dimensional face.

    Parameters
    ----------
    face : Face
    corners : ndarray of shape (n, d + 1)
        All generators of the cell as ``(y, height)``, ``y`` measured in the space of the face from
        the point nearest to the Gaussian's centre.  Only those on the face are looked at.
    walls : sequence of Face
    order : {0, 1, 2}
        Moments of higher order are left at 0.

    Returns
    -------
    integral : CellIntegral

    Notes
    -----
    With ``phi`` the standard normal density, ``y phi = -grad phi``.  The divergence theorem gives,
    with ``m_f`` the inward unit normal of facet f and ``c_f`` its offset,

        int y phi    = sum_f m_f int_f phi                                                  (1)
        int y y' phi = I int phi + sum_f (int_f y phi) m_f'                                 (2)

    (facets at infinity contribute nothing).  On the facet ``y = c_f m_f + U_f u`` and ``phi(y) =
    phi(c_f) phi(u)``, where ``u`` has one dimension less:

        int_f phi    =  phi(c_f) mass_f
        int_f y phi  =  phi(c_f) (c_f m_f mass_f + U_f first_f)
    """
    d = corners.shape[1] - 1
    masses = [_integrate_simplex(corners[sorted(s)]) for s in triangulate(face, walls)]
    mass = sum(p.value for p in masses)
    error = sum(p.error for p in masses)
    first = np.zeros(d)
    second = mass * np.eye(d) if order == 2 else np.zeros((d, d))
    for facet in facets(face, walls) if order > 0 else []:
        normal, offset = _supporting_halfspace(corners, face, facet)
        if abs(offset) > FAR:
            continue
        basis = _complement(normal[np.newaxis])
        inner = _integrate_face(facet, _project(corners, basis), walls, order - 1)
        density = math.exp(-0.5 * offset**2) / math.sqrt(2 * math.pi)
        first += density * inner.mass * normal
        if order == 2:
            flux = density * (inner.mass * offset * normal + basis @ inner.first)
            second += np.outer(flux, normal)
    return CellIntegral(mass, first, 0.5 * (second + second.T), error)


def _supporting_halfspace(corners: Floats, face: Face, facet: Face) -> tuple[Floats, float]:
    """Find the halfspace that contains a face and has one of its facets on its boundary.

    Returns
    -------
    normal : ndarray of shape (d,)
    offset : float
        -inf for the facet at infinity.
    """
    # The functional that vanishes on the facet, as nearly as rounding errors allow.
    functional = np.asarray(np.linalg.svd(corners[sorted(facet)]).Vh[-1], dtype=np.float64)
    if corners[sorted(face - facet)].sum(axis=0) @ functional < 0:
        functional = -functional
    normals, offsets = _halfspaces(functional[np.newaxis])
    return normals[0], float(offsets[0])


def _halfspaces(functionals: Floats) -> tuple[Floats, Floats]:
    """Turn functionals ``f @ (y, 1) >= 0`` into unit normals and offsets (-inf at infinity)."""
    lengths = np.linalg.norm(functionals[:, :-1], axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return functionals[:, :-1] / lengths[:, np.newaxis], -functionals[:, -1] / lengths


def _integrate_simplex(corners: Floats) -> Probability:
    """Integrate the standard Gaussian over a simplex, some of whose corners may be at infinity.

    Parameters
    ----------
    corners : ndarray of shape (d + 1, d + 1)
        Corners ``(y, height)``, those at infinity with height 0.

    Returns
    -------
    mass : Probability

    Notes
    -----
    Let ``f_j`` be the functional that is 1 at corner j and 0 at the others, ``H_j`` its halfspace.
    The simplex is where all are positive.  The height is the sum of the ``f_j``, each times
    the height of its corner.  So somewhere in the sum over the *finite* corners a term is positive:
    their halfspaces cover all of space, and with v finite corners, inclusion and exclusion give

        1[simplex] = prod_(infinite i) 1[H_i]  sum_(J) (-1)^(|J| + v - 1) prod_(j in J) 1[H_j]

    over all proper subsets J of the finite corners, at most d halfspaces in each term.  For v = d +
    1 this is Lemma "integral_decomposition" of the paper.  (Its proof takes the covering for
    granted, and the lemma fails where halfspaces opposite to corners at infinity are treated like
    the others.)
    """
    try:
        functionals = np.asarray(np.linalg.inv(corners).T, dtype=np.float64)
    except np.linalg.LinAlgError:  # flat, to working accuracy
        return Probability(0.0, ROUNDING)
    normals, offsets = _halfspaces(functionals)
    if np.any(offsets > FAR):
        return Probability(0.0, ROUNDING)
    finite = np.flatnonzero(corners[:, -1] > 0).tolist()
    infinite = np.flatnonzero(corners[:, -1] == 0).tolist()
    mass = error = 0.0
    for size in range(len(finite)):
        for subset in itertools.combinations(finite, size):
            chosen = [*infinite, *subset]
            term = orthant_probability(normals[chosen], offsets[chosen])
            mass += (-1) ** (size + len(finite) - 1) * term.value
            error += term.error
    return Probability(mass, error)
