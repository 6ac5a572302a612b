"""Vertices, rays, faces and triangulations of a polyhedron, in exact arithmetic.

A polyhedron of dimension S is handled as a cone of dimension S + 1, by a further coordinate, the
height: the polyhedron is the cone at height 1.  Its generators are then all of one kind: a vertex
is a generator of positive height, a ray (a vertex at infinity) one of height 0.

Arithmetic is exact because a face lattice cannot be computed approximately: whether four planes
meet in one vertex or in two decides what the facets are.  (cddlib in floating point takes 1e-7 for
zero, and so loses every cell thinner than that.)  Floating-point input is exact, as far as this
module is concerned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

# A vector of the cone's space, scaled to integers without common divisor.
Vector = tuple[int, ...]

# A face: the indices of the generators that lie on it.
Face = frozenset[int]


class Cone(NamedTuple):
    """The cone of all ``sum_i a_i rays[i] + sum_j b_j lines[j]`` with ``a >= 0``.

    ``walls[k]`` is the face on which the k-th inequality is an equality.
    """

    rays: list[Vector]
    lines: list[Vector]
    walls: list[Face]


def find_generators(inequalities: Sequence[Sequence[Fraction]]) -> Cone:
    """Find the generators of the cone ``{x : a @ x >= 0 for every inequality a}``.

    The double description method: start from all of space, add one inequality at a time.

    Parameters
    ----------
    inequalities : sequence of n sequences of d fractions
        None of them zero, and at least one.

    Returns
    -------
    cone : Cone

    References
    ----------
    Fukuda and Prodon, *Double description method revisited*, 1996.
    """
    dimension = len(inequalities[0])
    rows = [reduce_to_integers(row) for row in inequalities]
    lines = [tuple(int(i == j) for j in range(dimension)) for i in range(dimension)]
    # Per ray, the inequalities so far that it satisfies with equality.
    tight: dict[Vector, frozenset[int]] = {}

    for index, row in enumerate(rows):
        crossing = next((line for line in lines if _dot(row, line) != 0), None)
        if crossing is not None:
            # Half of this line survives; everything else is moved along it, onto the new wall.
            half = crossing if _dot(row, crossing) > 0 else tuple(-x for x in crossing)
            lines = [_move(line, half, row) for line in lines if line is not crossing]
            tight = {_move(ray, half, row): on | {index} for ray, on in tight.items()}
            tight[half] = frozenset(range(index))
            continue
        sides = {ray: _dot(row, ray) for ray in tight}
        inside = {
            r: on | {index} if sides[r] == 0 else on for r, on in tight.items() if sides[r] >= 0
        }
        for kept in tight:
            for cut in tight:
                if sides[kept] > 0 > sides[cut]:
                    shared = tight[kept] & tight[cut]
                    # They span an edge unless a third ray lies on every wall they share.
                    if not any(shared <= on for r, on in tight.items() if r not in (kept, cut)):
                        inside[_move(cut, kept, row)] = shared | {index}
        tight = inside

    rays = list(tight)
    walls = [frozenset(i for i, r in enumerate(rays) if k in tight[r]) for k in range(len(rows))]
    return Cone(rays, lines, walls)


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


def reduce_to_integers(vector: Sequence[Fraction | int]) -> Vector:
    """Scale a vector to integers without common divisor."""
    multiple = math.lcm(*(x.denominator for x in vector))
    integers = [int(x * multiple) for x in vector]
    divisor = math.gcd(*integers)
    return tuple(x // divisor for x in integers)


def _dot(a: Vector, b: Vector) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _move(vector: Vector, along: Vector, row: Vector) -> Vector:
    """Move a vector onto a wall, along one that points to the wall's inner side."""
    a, b = _dot(row, along), _dot(row, vector)
    return reduce_to_integers([a * x - b * y for x, y in zip(vector, along, strict=True)])
