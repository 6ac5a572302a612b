"""Vertices, rays, faces and triangulations of a polyhedron, by cddlib or in exact arithmetic.

A polyhedron of dimension S is handled as a cone of dimension S + 1, by a further coordinate, the
height: the polyhedron is the cone at height 1.  Its generators are then all of one kind: a vertex
is a generator of positive height, a ray (a vertex at infinity) one of height 0.

cddlib works in floating point and takes 1e-7 for zero.  A face lattice, however, is a matter of
yes or no: whether four planes meet in one vertex or in two decides what the facets are.  Where
some wall passes a generator too closely to tell, and where cddlib finds nothing at all, generators
are found again in rational arithmetic, by trying all sets of walls: slow and obvious.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import cdd
import numpy as np

# A vector of the cone's space, scaled to integers without common divisor.
Vector = tuple[int, ...]

# A face: the indices of the generators that lie on it.
Face = frozenset[int]

# Distances of generators from walls, of unit vectors from unit normals, are rounding errors below
# the first and no rounding errors above the second.  cddlib decides at 1e-7; between the two bounds
# it may be wrong.
_ROUNDING, _CLEAR = 1e-13, 1e-4


class Cone(NamedTuple):
    """The cone of all ``sum_i a_i rays[i] + sum_j b_j lines[j]`` with ``a >= 0``.

    ``walls[k]`` is the face on which the k-th inequality is an equality.
    """

    rays: list[Vector]
    lines: list[Vector]
    walls: list[Face]


def find_generators(inequalities: Sequence[Sequence[Fraction]]) -> Cone:
    """Find the generators of the cone ``{x : a @ x >= 0 for every inequality a}``.

    Parameters
    ----------
    inequalities : sequence of n sequences of d fractions
        None of them zero, and at least one.

    Returns
    -------
    cone : Cone
    """
    return find_by_cddlib(inequalities) or find_exactly(inequalities)


def find_by_cddlib(inequalities: Sequence[Sequence[Fraction]]) -> Cone | None:
    """Find the generators in floating point; None where that cannot tell what they are."""
    # Fractions may be larger and smaller than all floating-point numbers; their ratios may not.
    rows = np.array([[float(x / max(map(abs, row))) for x in row] for row in inequalities])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    # The cone's apex is the only vertex; the constant of every inequality is zero.
    matrix = cdd.matrix_from_array(
        np.column_stack([np.zeros(len(rows)), rows]), rep_type=cdd.RepType.INEQUALITY
    )
    try:
        generators = cdd.copy_generators(cdd.polyhedron_from_matrix(matrix))
    except RuntimeError:  # "inconsistent": rounding errors, since a cone is never empty
        return None
    found = np.array(generators.array).reshape(-1, rows.shape[1] + 1)
    directions = [i for i, (apex, *_) in enumerate(found) if apex < 0.5]
    rays = found[[i for i in directions if i not in generators.lin_set], 1:]
    lines = found[[i for i in directions if i in generators.lin_set], 1:]
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)
    distances = np.abs(np.concatenate([rays, lines]) @ rows.T)
    is_flat = np.any(np.all(distances[: len(rays)] <= _CLEAR, axis=0))
    if is_flat or np.any((distances > _ROUNDING) & (distances < _CLEAR)):
        return None
    walls = [frozenset(np.flatnonzero(column).tolist()) for column in (distances < _ROUNDING).T]
    return Cone(
        [reduce_to_integers([Fraction(x) for x in ray]) for ray in rays.tolist()],
        [reduce_to_integers([Fraction(x) for x in line]) for line in lines.tolist()],
        [wall & frozenset(range(len(rays))) for wall in walls],
    )


def find_exactly(inequalities: Sequence[Sequence[Fraction]]) -> Cone:
    """Find the generators by trying all sets of walls that may meet in one."""
    rows = [reduce_to_integers(row) for row in inequalities]
    lines = find_null_space(rows)
    # Orthogonal to the lines, every generator is where as many walls meet as leave one dimension.
    n_walls = len(rows[0]) - len(lines) - 1
    rays: dict[Vector, None] = {}  # a set that keeps its order
    for chosen in itertools.combinations(rows, n_walls):
        directions = find_null_space([*chosen, *lines], len(rows[0]))
        if len(directions) == 1:
            for ray in (directions[0], tuple(-x for x in directions[0])):
                if all(_dot(row, ray) >= 0 for row in rows):
                    rays[ray] = None
    walls = [frozenset(i for i, ray in enumerate(rays) if _dot(row, ray) == 0) for row in rows]
    return Cone(list(rays), lines, walls)


def triangulate(face: Face, walls: Sequence[Face]) -> Iterator[Face]:
    """Cut a face into simplices whose corners are generators of the face.

    The paper takes the Delaunay triangulation of the vertices.  Any will do for its lemma, and this
    one needs incidences only, no coordinates: join one corner to the simplices of every facet that
    it does not lie on.

    Parameters
    ----------
    face : Face
    walls : sequence of Face

    Yields
    ------
    corners : Face
        One more than the face has dimensions, lines apart.
    """
    if len(face) == 1:
        yield face
        return
    apex = min(face)
    proper = {face & wall for wall in walls} - {face}
    facets = [a for a in proper if not any(a < b for b in proper)]
    for facet in facets:
        if apex not in facet:
            for simplex in triangulate(facet, walls):
                yield simplex | {apex}


def find_dual_basis(vectors: Sequence[Vector]) -> list[Vector]:
    """Find functionals, one a vector, positive on their own vector and zero on the others.

    Parameters
    ----------
    vectors : sequence of d vectors of length d
        Linearly independent.

    Returns
    -------
    functionals : list of d vectors
    """
    d = len(vectors)
    rows = [
        [*map(Fraction, vector), *(Fraction(int(i == j)) for j in range(d))]
        for i, vector in enumerate(vectors)
    ]
    for i in range(d):  # Gauss and Jordan
        pivot = next(j for j in range(i, d) if rows[j][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(d):
            if j != i and rows[j][i] != 0:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i], strict=True)]
    return [reduce_to_integers([row[d + i] for row in rows]) for i in range(d)]


def find_null_space(rows: Sequence[Vector], dimension: int | None = None) -> list[Vector]:
    """Find a basis of all x with ``row @ x = 0`` for every row.

    Parameters
    ----------
    rows : sequence of n vectors of length d
    dimension : int, default=length of the first row

    Returns
    -------
    basis : list of vectors
    """
    dimension = len(rows[0]) if dimension is None else dimension
    reduced: list[list[Fraction]] = []
    pivots: list[int] = []
    for row in rows:  # Gauss and Jordan
        rest = [Fraction(x) for x in row]
        for pivot, other in zip(pivots, reduced, strict=True):
            rest = [x - rest[pivot] * y for x, y in zip(rest, other, strict=True)]
        place = next((i for i, x in enumerate(rest) if x != 0), None)
        if place is None:
            continue
        rest = [x / rest[place] for x in rest]
        reduced = [
            [x - other[place] * y for x, y in zip(other, rest, strict=True)] for other in reduced
        ]
        reduced.append(rest)
        pivots.append(place)
    basis = []
    for free in sorted(set(range(dimension)) - set(pivots)):
        vector = [Fraction(int(i == free)) for i in range(dimension)]
        for pivot, row in zip(pivots, reduced, strict=True):
            vector[pivot] = -row[free]
        basis.append(reduce_to_integers(vector))
    return basis


def reduce_to_integers(vector: Sequence[Fraction | int]) -> Vector:
    """Scale a vector to integers without common divisor."""
    multiple = math.lcm(*(x.denominator for x in vector))
    integers = [int(x * multiple) for x in vector]
    divisor = math.gcd(*integers)
    return tuple(x // divisor for x in integers)


def _dot(a: Vector, b: Vector) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))
