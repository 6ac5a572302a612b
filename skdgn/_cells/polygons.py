"""Cells of a two-dimensional latent space: convex polygons as lists of edges.

An edge has an inward unit normal ``n``, an offset (the edge lies on ``n . z = offset``) and an
interval ``[begin, end]`` along its direction ``d``, counter-clockwise around the cell, measured
from the foot of the perpendicular from the origin.  Ends may be infinite: a half-plane is one
edge without ends, a strip is two, the plane none; no vertex is needed anywhere.

Integrals over polygons are in `boundaries`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skdgn._cells._interface import (
    THINNEST_PIECE,
    Bools,
    Corners,
    Facets,
    Floats,
    Integers,
    Pieces,
    register_whitening,
)
from skdgn._jit import kernel

# Lines at a smaller angle are parallel: deep layers compute equal lines with different roundings.
SMALLEST_ANGLE = 1e-12


class WhitenedPolygons(NamedTuple):
    """Polygons in coordinates in which each region's conditional covariance is the identity."""

    start: Integers  # (R + 1,)
    edges: Floats  # (E, 5): normal (2), offset, begin, end
    factors: Floats  # (R, 2, 2)


@dataclass(frozen=True)
class Polygons:
    """Convex polygons; the edges of cell r are ``start[r]:start[r + 1]``."""

    start: Integers
    edges: Floats  # (E, 5): normal (2), offset, begin, end

    @classmethod
    def whole_space(cls, n_dimensions: int) -> Polygons:
        """Return one cell: the whole plane."""
        if n_dimensions != 2:
            raise ValueError(f"polygons need two latent dimensions, got {n_dimensions}.")
        return cls(np.zeros(2, dtype=np.intp), np.empty((0, 5)))

    def __len__(self) -> int:
        return len(self.start) - 1

    def take(self, indices: Integers) -> Polygons:
        """Return the cells with these indices."""
        return Polygons(*_take(self.start, self.edges, np.asarray(indices, dtype=np.intp)))

    def split(self, gradients: Floats, values: Floats) -> Pieces:
        """Cut cell r by the line ``gradients[r] @ z + values[r] = 0``."""
        start, edges, parents, positive = _split(self.start, self.edges, gradients, values)
        # Copies, to let go of the space that was not needed.
        return Pieces(Polygons(start.copy(), edges.copy()), parents.copy(), positive.copy())

    def facets(self) -> Facets:
        """List the edges' lines."""
        return Facets(self.start, self.edges[:, :2], self.edges[:, 2])

    def corners(self) -> Corners:
        """List the vertices of every bounded polygon: where its edges begin."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.start))
        unbounded = ~np.isfinite(self.edges[:, 3:]).all(axis=1)
        bounded = np.diff(self.start) > 0
        bounded[owner[unbounded]] = False
        edges = self.edges[bounded[owner]]
        start = np.concatenate([[0], np.cumsum(np.where(bounded, np.diff(self.start), 0))])
        directions = np.stack([edges[:, 1], -edges[:, 0]], axis=1)
        return Corners(start, edges[:, 2:3] * edges[:, :2] + edges[:, 3:4] * directions)

    def interior_points(self) -> Floats:
        """Return a point inside every polygon."""
        return _interior_points(self.start, self.edges)

    def whiten(self, factors: Floats) -> WhitenedPolygons:
        """Express cell r in coordinates y with ``z = factors[r] @ y`` (positive determinant)."""
        factors = np.ascontiguousarray(factors)
        return WhitenedPolygons(self.start, _whiten(self.start, self.edges, factors), factors)


@kernel
def _copy_edges(source: Floats, first: int, last: int, target: Floats, position: int) -> int:
    """Copy some edges (loops compile in a tenth of the time); return the position behind them."""
    for e in range(first, last):
        for k in range(5):
            target[position, k] = source[e, k]
        position += 1
    return position


@kernel
def _take(start: Integers, edges: Floats, indices: Integers) -> tuple[Integers, Floats]:
    new_start = np.zeros(indices.size + 1, dtype=np.intp)
    for i in range(indices.size):
        new_start[i + 1] = new_start[i] + start[indices[i] + 1] - start[indices[i]]
    new_edges = np.empty((new_start[-1], 5))
    for i in range(indices.size):
        r = indices[i]
        _copy_edges(edges, start[r], start[r + 1], new_edges, new_start[i])
    return new_start, new_edges


@kernel
def _edge_middle(begin: float, end: float) -> float:
    """Position between the ends of an edge, either of which may be infinite."""
    if begin > -math.inf and end < math.inf:
        return 0.5 * (begin + end)
    if begin > -math.inf:
        return begin + 1.0 + abs(begin)
    if end < math.inf:
        return end - 1.0 - abs(end)
    return 0.0


@kernel
def interior_point(edges: Floats) -> tuple[float, float]:
    """Average one point of every edge; inside, since no two edges of a cell are collinear."""
    x, y = 0.0, 0.0
    for e in range(len(edges)):
        nx, ny, offset, begin, end = edges[e]
        t = _edge_middle(begin, end)
        x += offset * nx + t * ny
        y += offset * ny - t * nx
    if len(edges) == 0:
        return 0.0, 0.0
    if len(edges) == 1:
        step = 1.0 + abs(edges[0, 2])
        return x + step * edges[0, 0], y + step * edges[0, 1]
    return x / len(edges), y / len(edges)


@kernel
def _interior_points(start: Integers, edges: Floats) -> Floats:
    points = np.empty((start.size - 1, 2))
    for r in range(start.size - 1):
        points[r, 0], points[r, 1] = interior_point(edges[start[r] : start[r + 1]])
    return points


@kernel
def longer_than_rounding(begin: float, end: float, distance: float) -> bool:
    """Tell whether part of a line, at this distance, is longer than the rounding of its ends."""
    if math.isinf(begin) or math.isinf(end):
        return begin < end
    return end - begin > THINNEST_PIECE * (1.0 + distance + min(abs(begin), abs(end)))


@kernel
def _edge_root(edge: Floats, gx: float, gy: float, value: float) -> float:
    """Position on an edge where ``g . z + value`` changes its sign, or the end nearest to it."""
    nx, ny, offset, begin, end = edge
    root = -(offset * (gx * nx + gy * ny) + value) / (gx * ny - gy * nx)
    return min(max(root, begin), end)


@kernel
def chord(edges: Floats, gx: float, gy: float, value: float) -> tuple[bool, float, float, int, int]:
    """Part of the line ``g . z + value = 0`` inside a cell, along ``d`` of an edge with normal g.

    The first result tells whether the line cuts the cell in two pieces worth telling apart, the
    last two are the edges at which the chord begins and ends, or -1.

    Where lines are nearly parallel, rounding moves their common point along both of them.  That
    does no harm as long as both have the same point: it is computed once, on the edge.
    """
    px, py = -value * gx, -value * gy
    dx, dy = gy, -gx
    lowest, highest = -math.inf, math.inf
    first, last = -1, -1
    thin = THINNEST_PIECE * (1.0 + abs(value))
    for e in range(len(edges)):
        nx, ny = edges[e, 0], edges[e, 1]
        rate = nx * dx + ny * dy
        distance = nx * px + ny * py - edges[e, 2]
        if abs(rate) < SMALLEST_ANGLE:
            if distance <= thin:
                return False, 0.0, 0.0, -1, -1
        elif rate > 0.0:
            if -distance / rate > lowest:
                lowest, first = -distance / rate, e
        elif -distance / rate < highest:
            highest, last = -distance / rate, e
    if first >= 0:
        lowest = _project(edges[first], _edge_root(edges[first], gx, gy, value), dx, dy)
    if last >= 0:
        highest = _project(edges[last], _edge_root(edges[last], gx, gy, value), dx, dy)
    return longer_than_rounding(lowest, highest, abs(value)), lowest, highest, first, last


@kernel
def _project(edge: Floats, t: float, dx: float, dy: float) -> float:
    """Coordinate along d of the point of an edge at position t."""
    nx, ny, offset = edge[0], edge[1], edge[2]
    return offset * (nx * dx + ny * dy) + t * (ny * dx - nx * dy)


@kernel
def edge_part(
    edge: Floats, is_cut: bool, gx: float, gy: float, value: float
) -> tuple[float, float, float, float]:
    """Parts of an edge where ``g . z + value`` is positive, and where it is negative.

    ``is_cut`` tells whether the chord begins or ends at this edge.
    """
    nx, ny, offset, begin, end = edge
    rate = gx * ny - gy * nx
    if is_cut:
        root = _edge_root(edge, gx, gy, value)
        if rate > 0.0:
            return root, end, begin, root
        return begin, root, root, end
    if offset * (gx * nx + gy * ny) + value + rate * _edge_middle(begin, end) > 0.0:
        return begin, end, 0.0, 0.0
    return 0.0, 0.0, begin, end


@kernel
def _split(
    start: Integers, edges: Floats, gradients: Floats, values: Floats
) -> tuple[Integers, Floats, Integers, Bools]:
    n_cells = start.size - 1
    most_cells = 2 * n_cells
    new_start = np.zeros(most_cells + 1, dtype=np.intp)
    new_edges = np.empty((2 * len(edges) + 2 * n_cells, 5))
    parents = np.empty(most_cells, dtype=np.intp)
    positive = np.empty(most_cells, dtype=np.bool_)
    n_new, n_edges = 0, 0
    for r in range(n_cells):
        cell = edges[start[r] : start[r + 1]]
        gx, gy = gradients[r]
        constant = gx == 0.0 and gy == 0.0
        crossed, lowest, highest, first, last = False, 0.0, 0.0, -1, -1
        if not constant:
            crossed, lowest, highest, first, last = chord(cell, gx, gy, values[r])
        if crossed:
            for side in (True, False):
                for e in range(len(cell)):
                    parts = edge_part(cell[e], e in (first, last), gx, gy, values[r])
                    begin, end = (parts[0], parts[1]) if side else (parts[2], parts[3])
                    if longer_than_rounding(begin, end, abs(cell[e, 2])):
                        n_edges = _copy_edges(cell, e, e + 1, new_edges, n_edges)
                        new_edges[n_edges - 1, 3] = begin
                        new_edges[n_edges - 1, 4] = end
                sign = 1.0 if side else -1.0
                new_edges[n_edges, 0] = sign * gx
                new_edges[n_edges, 1] = sign * gy
                new_edges[n_edges, 2] = -sign * values[r]
                new_edges[n_edges, 3] = lowest if side else -highest
                new_edges[n_edges, 4] = highest if side else -lowest
                n_edges += 1
                parents[n_new] = r
                positive[n_new] = side
                n_new += 1
                new_start[n_new] = n_edges
        else:
            n_edges = _copy_edges(cell, 0, len(cell), new_edges, n_edges)
            if constant:
                positive[n_new] = values[r] > 0.0
            else:
                x, y = interior_point(cell)
                positive[n_new] = gx * x + gy * y + values[r] > 0.0
            parents[n_new] = r
            n_new += 1
            new_start[n_new] = n_edges
    return new_start[: n_new + 1], new_edges[:n_edges], parents[:n_new], positive[:n_new]


@kernel
def _whiten_edges(
    edges: Floats, first: int, last: int, factor: Floats, target: Floats, position: int
) -> None:
    """Express the edges first to last in coordinates y with ``z = factor @ y``."""
    # The factor may be any invertible matrix [[a, b], [c, d]] of positive determinant.
    a, b, c, d = factor[0, 0], factor[0, 1], factor[1, 0], factor[1, 1]
    determinant = a * d - b * c
    for e in range(first, last):
        nx, ny, offset, begin, end = edges[e]
        mx, my = a * nx + c * ny, b * nx + d * ny
        length = math.sqrt(mx * mx + my * my)
        mx /= length
        my /= length
        # The edge's foot and direction, multiplied by the inverse factor, along (my, -mx).
        foot = offset * ((d * nx - b * ny) * my - (a * ny - c * nx) * mx) / determinant
        stretch = ((d * ny + b * nx) * my + (a * nx + c * ny) * mx) / determinant
        target[position, 0] = mx
        target[position, 1] = my
        target[position, 2] = offset / length
        target[position, 3] = foot + stretch * begin
        target[position, 4] = foot + stretch * end
        position += 1


@kernel
def _whiten(start: Integers, edges: Floats, factors: Floats) -> Floats:
    whitened = np.empty_like(edges)
    for r in range(start.size - 1):
        _whiten_edges(edges, start[r], start[r + 1], factors[r], whitened, start[r])
    return whitened


@kernel
def _make_room(cells: Any) -> Any:
    most_edges = 0
    for r in range(cells.start.size - 1):
        most_edges = max(most_edges, cells.start[r + 1] - cells.start[r])
    return WhitenedPolygons(
        np.zeros(2, dtype=np.intp), np.empty((most_edges, 5)), np.empty((1, 2, 2))
    )


@kernel
def _whiten_polygon(cells: Any, region: int, factor: Floats, room: Any) -> None:
    first, last = cells.start[region], cells.start[region + 1]
    _whiten_edges(cells.edges, first, last, factor, room.edges, 0)
    room.start[1] = last - first
    for s in range(2):
        for t in range(2):
            room.factors[0, s, t] = factor[s, t]


register_whitening(WhitenedPolygons, _make_room, _whiten_polygon)
