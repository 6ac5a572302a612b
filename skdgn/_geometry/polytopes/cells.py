"""Cells of a latent space of any dimension, made for four and more: convex polytopes as halfspaces.

Vertices are of no use here: their number explodes with the dimension, and whether two of them are
one cannot be decided in floating point.  All geometry is one question instead, answered by one
small quadratic program (`nearest_point`): which point with ``rows @ x >= bounds`` is nearest to the
origin?

A cell ``{z : n . z >= o}`` is the slice at height 1 of a cone in one dimension more,
``{(z, h) : n . z - o h >= 0, h >= 0}``.  With rows scaled to unit length, the shortest ``x`` with
``rows @ x >= 1`` points to the center of the widest ball in the cone, and the ball's radius is
``1 / |x|``, as a share of the distance of its center from the apex.  What contains no ball of
radius `THINNEST_PIECE` counts as empty, and that is all there is to it: a hyperplane crosses a cell
if neither side is empty; a facet is redundant if nothing lies beyond it and within the others.
Hence the guarantee, whatever the degeneracies (parallel, equal or concurrent hyperplanes, unbounded
cells, cells that contain lines): every piece that contains such a ball is found, no piece is found
twice, none is empty, and what is thinner stays with its neighbor.  (cddlib in floating point
takes 1e-7 for zero, and a hundred times as long.)

The apex is below a point inside the cell, its *center*, and the unit of length is 1 + the center's
distance from the origin of latent space: cells far out are split as well as those near.
(Seen from an apex below the origin, parallel facets far out would look like one.)

Integrals over polytopes are in `conditioning`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skdgn._geometry.interface import THINNEST_PIECE, Corners, Facets, Pieces, register_whitening
from skdgn._geometry.polytopes.quadratic_program import dot, nearest_point
from skdgn._runtime import Bools, Floats, Integers, kernel

# As many dimensions as there are good lattices for; memory is gone long before.
MOST_DIMENSIONS = 33


class WhitenedPolytopes(NamedTuple):
    """Polytopes in coordinates in which each region's conditional covariance is the identity."""

    start: Integers  # (R + 1,)
    normals: Floats  # (F, S)
    offsets: Floats  # (F,)
    factors: Floats  # (R, S, S)


@dataclass(frozen=True)
class Polytopes:
    """Convex polytopes; the facets of cell r are ``start[r]:start[r + 1]``."""

    start: Integers
    normals: Floats  # (F, S) inward, unit length
    offsets: Floats  # (F,)
    centers: Floats  # (R, S) of a ball in each cell, the widest as seen from its parent's

    @classmethod
    def whole_space(cls, n_dimensions: int) -> Polytopes:
        """Return one cell: all of space."""
        if not 1 <= n_dimensions <= MOST_DIMENSIONS:
            raise ValueError(
                f"n_components must be between 1 and {MOST_DIMENSIONS}, got {n_dimensions}."
            )
        return cls(
            np.zeros(2, dtype=np.intp),
            np.empty((0, n_dimensions)),
            np.empty(0),
            np.zeros((1, n_dimensions)),
        )

    def __len__(self) -> int:
        return len(self.start) - 1

    def take(self, indices: Integers) -> Polytopes:
        """Return the cells with these indices."""
        indices = np.asarray(indices, dtype=np.intp)
        sizes = self.start[indices + 1] - self.start[indices]
        start = np.concatenate([[0], np.cumsum(sizes)])
        members = np.arange(start[-1]) + np.repeat(self.start[indices] - start[:-1], sizes)
        return Polytopes(start, self.normals[members], self.offsets[members], self.centers[indices])

    def split(self, gradients: Floats, values: Floats) -> Pieces:
        """Cut cell r by the hyperplane ``gradients[r] @ z + values[r] = 0``."""
        cells = (self.start, self.normals, self.offsets, self.centers)
        has_positive, has_negative, centers = _find_sides(*cells, gradients, values)
        crossed = has_positive & has_negative
        parents = np.repeat(np.arange(len(self)), 1 + crossed)
        positive = has_positive[parents]
        positive[1:] &= parents[1:] != parents[:-1]  # of two pieces, the second is negative
        new_centers = np.where(
            crossed[parents, None],
            centers[parents, np.where(positive, 0, 1)],
            self.centers[parents],
        )
        start, normals, offsets = _cut(
            *cells[:3], gradients, values, parents, positive, crossed, new_centers
        )
        return Pieces(Polytopes(start, normals, offsets, new_centers), parents, positive)

    def facets(self) -> Facets:
        """List the facets of every polytope."""
        return Facets(self.start, self.normals, self.offsets)

    def corners(self) -> Corners:
        """List no vertices: all polytopes count as unbounded."""
        return Corners(np.zeros(len(self) + 1, dtype=np.intp), np.empty((0, self.normals.shape[1])))

    def interior_points(self) -> Floats:
        """Return the center of every polytope."""
        return self.centers

    def whiten(self, factors: Floats) -> WhitenedPolytopes:
        """Express cell r in coordinates y with ``z = factors[r] @ y``."""
        regions = np.repeat(np.arange(len(self)), np.diff(self.start))
        normals = np.einsum("fts,ft->fs", factors[regions], self.normals)
        lengths = np.linalg.norm(normals, axis=1)
        return WhitenedPolytopes(
            self.start,
            normals / lengths[:, None],
            self.offsets / lengths,
            np.ascontiguousarray(factors),
        )


@kernel
def _length_unit(center: Floats) -> float:
    """Unit of length of a cell with this center."""
    return 1.0 + math.sqrt(dot(center, center))


@kernel
def _fill_row(row: Floats, normal: Floats, offset: float, center: Floats, sign: float) -> None:
    """Write the halfspace ``sign * (normal . z - offset) >= 0`` as a unit row of the cone."""
    offset = (offset - dot(normal, center)) / _length_unit(center)
    scale = sign / math.sqrt(1.0 + offset * offset)
    for s in range(normal.size):
        row[s] = scale * normal[s]
    row[normal.size] = -scale * offset


@kernel
def _fill_cone(
    normals: Floats, offsets: Floats, first: int, last: int, center: Floats, rows: Floats
) -> int:
    """Fill the rows of a cell's cone: the height, then some facets; return their number."""
    n_dimensions = normals.shape[1]
    for s in range(n_dimensions):
        rows[0, s] = 0.0
    rows[0, n_dimensions] = 1.0
    for f in range(first, last):
        _fill_row(rows[f - first + 1], normals[f], offsets[f], center, 1.0)
    return last - first + 1


@kernel
def _widest_ball(rows: Floats, n_rows: int, point: Floats) -> float:
    """Radius of the widest ball ``rows @ x >= radius`` about a unit vector; 0 if it is too small.

    Fills the center of the ball, not scaled.
    """
    reach = nearest_point(
        rows[:n_rows], np.ones(n_rows), 1.0 / THINNEST_PIECE, point, np.empty(n_rows)
    )
    return 1.0 / reach


@kernel
def _largest_size(start: Integers) -> int:
    largest = 0
    for r in range(start.size - 1):
        largest = max(largest, start[r + 1] - start[r])
    return largest


@kernel
def _find_sides(
    start: Integers,
    normals: Floats,
    offsets: Floats,
    centers: Floats,
    gradients: Floats,
    values: Floats,
) -> tuple[Bools, Bools, Floats]:
    """Tell which sides of its cut each cell has points on: one of them, or both.

    The third result holds the centers of the pieces on either side, where there are two.
    """
    n_cells, n_dimensions = gradients.shape
    cone = np.empty((_largest_size(start) + 2, n_dimensions + 1))
    point = np.empty(n_dimensions + 1)
    has_side = np.zeros((2, n_cells), dtype=np.bool_)
    new_centers = np.empty((n_cells, 2, n_dimensions))
    for r in range(n_cells):
        if dot(gradients[r], gradients[r]) == 0.0:
            has_side[0, r] = values[r] > 0.0
            has_side[1, r] = not has_side[0, r]
            continue
        center = centers[r]
        last = _fill_cone(normals, offsets, start[r], start[r + 1], center, cone)
        for side in range(2):
            _fill_row(cone[last], gradients[r], -values[r], center, 1.0 - 2.0 * side)
            has_side[side, r] = _widest_ball(cone, last + 1, point) > 0.0
            if has_side[side, r]:
                scale = _length_unit(center) / point[n_dimensions]
                for s in range(n_dimensions):
                    new_centers[r, side, s] = center[s] + scale * point[s]
        if not (has_side[0, r] or has_side[1, r]):
            # The cell is hardly wider than what counts as empty: it is where its center is.
            has_side[0, r] = dot(gradients[r], center) + values[r] > 0.0
            has_side[1, r] = not has_side[0, r]
    return has_side[0], has_side[1], new_centers


@kernel
def _cut(
    start: Integers,
    normals: Floats,
    offsets: Floats,
    gradients: Floats,
    values: Floats,
    parents: Integers,
    positive: Bools,
    crossed: Bools,
    centers: Floats,
) -> tuple[Integers, Floats, Floats]:
    """List the facets of every piece: of the parent's those that are not redundant, and the cut."""
    n_pieces, n_dimensions = parents.size, normals.shape[1]
    most_facets = 0
    for i in range(n_pieces):
        most_facets += start[parents[i] + 1] - start[parents[i]] + 1
    new_start = np.zeros(n_pieces + 1, dtype=np.intp)
    new_normals = np.empty((most_facets, n_dimensions))
    new_offsets = np.empty(most_facets)
    cone = np.empty((_largest_size(start) + 2, n_dimensions + 1))
    point = np.empty(n_dimensions + 1)
    n_facets = 0
    for i in range(n_pieces):
        r = parents[i]
        center = centers[i]
        sign = 1.0 if positive[i] else -1.0
        n_rows = 0
        if crossed[r]:
            n_rows = _fill_cone(normals, offsets, start[r], start[r + 1], center, cone)
            _fill_row(cone[n_rows], gradients[r], -values[r], center, sign)
            n_rows += 1
        k = 1  # rows before are the height and the facets found so far
        for f in range(start[r], start[r + 1]):
            if crossed[r]:
                # A facet is redundant if nothing is left beyond it and within the others.
                _fill_row(cone[k], normals[f], offsets[f], center, -1.0)
                if _widest_ball(cone, n_rows, point) == 0.0:
                    n_rows -= 1
                    for j in range(k, n_rows):
                        for s in range(n_dimensions + 1):
                            cone[j, s] = cone[j + 1, s]
                    continue
                _fill_row(cone[k], normals[f], offsets[f], center, 1.0)
                k += 1
            for s in range(n_dimensions):
                new_normals[n_facets, s] = normals[f, s]
            new_offsets[n_facets] = offsets[f]
            n_facets += 1
        if crossed[r]:
            for s in range(n_dimensions):
                new_normals[n_facets, s] = sign * gradients[r, s]
            new_offsets[n_facets] = -sign * values[r]
            n_facets += 1
        new_start[i + 1] = n_facets
    return new_start, new_normals[:n_facets].copy(), new_offsets[:n_facets].copy()


def _make_room(cells: Any) -> Any:
    most_facets, n_dimensions = np.diff(cells.start).max(initial=0), cells.normals.shape[1]
    return WhitenedPolytopes(
        np.zeros(2, dtype=np.intp),
        np.empty((most_facets, n_dimensions)),
        np.empty(most_facets),
        np.empty((1, n_dimensions, n_dimensions)),
    )


@kernel
def _whiten_polytope(cells: Any, region: int, factor: Floats, room: Any) -> None:
    n_dimensions = len(factor)
    first = cells.start[region]
    room.start[1] = cells.start[region + 1] - first
    for k in range(room.start[1]):
        square = 0.0
        for s in range(n_dimensions):
            room.normals[k, s] = 0.0
            for t in range(n_dimensions):
                room.normals[k, s] += factor[t, s] * cells.normals[first + k, t]
            square += room.normals[k, s] * room.normals[k, s]
        length = math.sqrt(square)
        for s in range(n_dimensions):
            room.normals[k, s] /= length
        room.offsets[k] = cells.offsets[first + k] / length
    for s in range(n_dimensions):
        for t in range(n_dimensions):
            room.factors[0, s, t] = factor[s, t]


register_whitening(WhitenedPolytopes, _make_room, _whiten_polytope)
