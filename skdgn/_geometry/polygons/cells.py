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

from skdgn._geometry.interface import (
    THINNEST_PIECE,
    Corners,
    Facets,
    Pieces,
    register_whitening,
)
from skdgn._runtime import Bools, Floats, Integers, inlined_kernel, kernel

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
        sizes = np.diff(self.start)[indices]
        start = np.concatenate([[0], np.cumsum(sizes)])
        places = np.repeat(self.start[indices] - start[:-1], sizes) + np.arange(start[-1])
        return Polygons(start, self.edges[places])

    def split(self, gradients: Floats, values: Floats) -> Pieces:
        """Cut cell r by the line ``gradients[r] @ z + values[r] = 0``."""
        start, edges, parents, positive = _split(self.start, self.edges, gradients, values)
        # Copies, to let go of the space that was not needed.
        return Pieces(Polygons(start.copy(), edges.copy()), parents.copy(), positive.copy())

    def facets(self) -> Facets:
        """List the lines of all edges that are longer than a piece must be thick."""
        long = long_edges(self.edges)
        start = np.concatenate([[0], np.cumsum(long)])[self.start]
        return Facets(start, self.edges[long, :2], self.edges[long, 2])

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


def long_edges(edges: Floats) -> Bools:
    """Tell which edges are longer than a piece must be thick."""
    begin, end = edges[:, 3], edges[:, 4]
    distance = 1.0 + np.abs(edges[:, 2]) + np.minimum(np.abs(begin), np.abs(end))
    long: Bools = end > begin + THINNEST_PIECE * np.where(np.isfinite(distance), distance, 0.0)
    return long


@inlined_kernel
def read_edge(edges: Floats, e: int) -> tuple[float, float, float, float, float]:
    """Return normal (2), offset, begin and end (to unpack an array takes long to compile)."""
    return edges[e, 0], edges[e, 1], edges[e, 2], edges[e, 3], edges[e, 4]


@kernel
def _copy_edges(source: Floats, first: int, last: int, target: Floats, position: int) -> int:
    """Copy some edges (loops compile in a tenth of the time); return the position behind them."""
    for e in range(first, last):
        for k in range(5):
            target[position, k] = source[e, k]
        position += 1
    return position


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
    n_points = 0
    for e in range(len(edges)):
        nx, ny, offset, begin, end = read_edge(edges, e)
        if begin < math.inf:  # (a facet of a polyhedron may have an edge at infinity)
            t = _edge_middle(begin, end)
            x += offset * nx + t * ny
            y += offset * ny - t * nx
            n_points += 1
    if n_points == 0:
        return 0.0, 0.0
    if len(edges) == 1:
        step = 1.0 + abs(edges[0, 2])
        return x + step * edges[0, 0], y + step * edges[0, 1]
    return x / n_points, y / n_points


@kernel
def _interior_points(start: Integers, edges: Floats) -> Floats:
    points = np.empty((start.size - 1, 2))
    for r in range(start.size - 1):
        points[r, 0], points[r, 1] = interior_point(edges[start[r] : start[r + 1]])
    return points


@kernel
def _outward(edges: Floats, e: int) -> tuple[float, float]:
    """Bisector of the directions in which a polygon is unbounded, from an edge to the next."""
    nx, ny = edges[e, 0], edges[e, 1]
    mx, my = edges[(e + 1) % len(edges), 0], edges[(e + 1) % len(edges), 1]
    # Of length 2 (sin + cos) of half the angle between them, which is pi for a half-plane.
    x, y = nx + mx + ny - my, ny + my - nx + mx
    length = math.sqrt(x * x + y * y)
    return x / length, y / length


@kernel
def _fill_node_values(edges: Floats, gx: float, gy: float, value: float, values: Floats) -> None:
    """Fill ``g . z + value`` around a polygon, at four nodes per edge, NaN where none is.

    The nodes of an edge are the point where it begins and, if it is unbounded: the foot of the
    perpendicular (if neither end is finite), the point at infinity where it ends, and a point at
    infinity between there and the beginning of the next edge.  What two edges have in common is
    evaluated once, so that both are told the same.

    Values are relative to 1 + the distance from the origin; at infinity, they are slopes.
    """
    n_edges = len(edges)
    any_parallel = False
    for e in range(n_edges):
        nx, ny, offset, begin, end = read_edge(edges, e)
        rate = gx * ny - gy * nx
        at_foot = offset * (gx * nx + gy * ny) + value
        any_parallel = any_parallel or abs(rate) < SMALLEST_ANGLE
        values[4 * e], values[4 * e + 1] = -rate, math.nan
        if begin > -math.inf:
            values[4 * e] = (at_foot + rate * begin) / (1.0 + abs(offset) + abs(begin))
        elif end == math.inf:
            values[4 * e + 1] = at_foot / (1.0 + abs(offset))
        values[4 * e + 2], values[4 * e + 3] = math.nan, math.nan
        if end == math.inf:
            x, y = _outward(edges, e)
            values[4 * e + 2], values[4 * e + 3] = rate, gx * x + gy * y
    if any_parallel:
        for e in range(n_edges):
            nx, ny, offset, begin, end = read_edge(edges, e)
            rate = gx * ny - gy * nx
            if abs(rate) < SMALLEST_ANGLE:
                # All of the edge is on one side, its ends too, also at infinity: that of its point
                # next to the origin, where rounding errors are smallest.
                t = min(max(0.0, begin), end)
                at_foot = offset * (gx * nx + gy * ny) + value
                near = (at_foot + rate * t) / (1.0 + abs(offset) + abs(t))
                values[4 * e] = near
                if end < math.inf:
                    values[4 * ((e + 1) % n_edges)] = near
                else:
                    values[4 * e + 2] = near


@kernel
def _root(edges: Floats, e: int, gx: float, gy: float, value: float) -> float:
    """Position on an edge where ``g . z + value`` changes its sign, or the end nearest to it."""
    nx, ny, offset, begin, end = read_edge(edges, e)
    rate = gx * ny - gy * nx
    at_foot = offset * (gx * nx + gy * ny) + value
    if rate == 0.0:
        return begin if begin > -math.inf else end
    return min(max(-at_foot / rate, begin), end)


@kernel
def _project(edges: Floats, e: int, t: float, dx: float, dy: float) -> float:
    """Coordinate along d of the point of an edge at position t."""
    nx, ny, offset = edges[e, 0], edges[e, 1], edges[e, 2]
    return offset * (nx * dx + ny * dy) + t * (ny * dx - nx * dy)


@kernel
def cut_polygon(
    edges: Floats, gx: float, gy: float, value: float, thinnest: float, values: Floats
) -> tuple[int, int, int, float, float, float, float]:
    """Find where the line ``g . z + value = 0`` cuts a polygon, but for pieces as thin as given.

    The last argument has space for four values per edge.

    The sides of vertices are decided once for all edges, and around a convex polygon they change
    twice: from the clearest positive node, the walk in either direction ends at the first one that
    is not.  So the pieces are closed polygons, whatever rounding makes of single signs.

    Returns
    -------
    n_positive : int
        Number of edges of which a part is on the positive side; -1 if there is no such side, and
        -2 if there is no negative side.
    first, last : int
        The first and the last of them, in the order around the cell.
    rise, fall : float
        Position on the first edge where the positive side begins, and on the last edge where it
        ends; NaN if that is at infinity, between two edges.
    lowest, highest : float
        Ends of the chord along ``d`` of an edge with normal g: the points of fall and rise.

    Notes
    -----
    Where lines are nearly parallel, rounding moves their common point along both of them.  That
    does no harm as long as both have the same point: it is computed once, on the edge.
    """
    n_edges = len(edges)
    if n_edges == 0:
        return 0, 0, -1, math.nan, math.nan, -math.inf, math.inf
    _fill_node_values(edges, gx, gy, value, values)
    n_nodes = 4 * n_edges
    top, bottom = 0, 0
    for i in range(n_nodes):
        if values[i] > values[top]:
            top = i
        if values[i] < values[bottom]:
            bottom = i
    if values[top] <= thinnest or values[bottom] >= -thinnest:
        # Of a piece too thin to be cut off, the larger part decides.
        n_positive = -2 if values[top] > -values[bottom] else -1
        return n_positive, 0, 0, math.nan, math.nan, 0.0, 0.0
    # The first and the last node of the positive side, and the nodes before and behind them.
    start, before = top, top
    while values[before] > 0.0 or math.isnan(values[before]):
        if values[before] > 0.0:
            start = before
        before = before - 1 if before > 0 else n_nodes - 1
    stop, behind = top, top
    while values[behind] > 0.0 or math.isnan(values[behind]):
        if values[behind] > 0.0:
            stop = behind
        behind = behind + 1 if behind + 1 < n_nodes else 0
    # At the nodes 2 and 3 an edge has come to its end.
    first = (before // 4 + (before % 4 >= 2)) % n_edges
    last = stop // 4
    dx, dy = gy, -gx
    rise, fall, lowest, highest = math.nan, math.nan, -math.inf, math.inf
    turned = False
    if before % 4 < 2:
        rise = _root(edges, first, gx, gy, value)
        highest = _project(edges, first, rise, dx, dy)
    else:
        x, y = _outward(edges, before // 4)
        turned = dx * x + dy * y < -0.5
    if stop % 4 < 2:
        fall = _root(edges, last, gx, gy, value)
        lowest = _project(edges, last, fall, dx, dy)
    else:
        x, y = _outward(edges, last)
        turned = turned or -dx * x - dy * y < -0.5
    if turned:
        # A strip hardly wider than rounding, left at its wrong end.
        n_positive = -2 if values[top] > -values[bottom] else -1
        return n_positive, 0, 0, math.nan, math.nan, 0.0, 0.0
    n_positive = (last - first) % n_edges + 1
    if start == stop and start % 4 == 3:
        n_positive = 0  # nothing of any edge, but only what is between two at infinity
    return n_positive, first, last, rise, fall, lowest, highest


@kernel
def copy_run(
    edges: Floats, first: int, n_run: int, begin: float, end: float, target: Floats, position: int
) -> int:
    """Copy a run of edges, with new ends of the first and the last unless these are NaN.

    Returns the position behind them; an edge without length is left out.
    """
    for i in range(n_run):
        e = first + i if first + i < len(edges) else first + i - len(edges)
        _copy_edges(edges, e, e + 1, target, position)
        if i == 0 and not math.isnan(begin):
            target[position, 3] = begin
        if i == n_run - 1 and not math.isnan(end):
            target[position, 4] = end
        if target[position, 3] < target[position, 4]:
            position += 1
    return position


@kernel
def _split(
    start: Integers, edges: Floats, gradients: Floats, values: Floats
) -> tuple[Integers, Floats, Integers, Bools]:
    n_cells = start.size - 1
    most_cells = 2 * n_cells
    new_start = np.zeros(most_cells + 1, dtype=np.intp)
    new_edges = np.empty((2 * len(edges) + 4 * n_cells, 5))
    parents = np.empty(most_cells, dtype=np.intp)
    positive = np.empty(most_cells, dtype=np.bool_)
    most_edges = 0
    for r in range(n_cells):
        most_edges = max(most_edges, start[r + 1] - start[r])
    node_values = np.empty(4 * most_edges)
    n_new, n_edges = 0, 0
    for r in range(n_cells):
        cell = edges[start[r] : start[r + 1]]
        gx, gy = gradients[r]
        n_positive = -2 if values[r] > 0.0 else -1
        first, last, rise, fall, lowest, highest = 0, 0, 0.0, 0.0, 0.0, 0.0
        if gx != 0.0 or gy != 0.0:
            n_positive, first, last, rise, fall, lowest, highest = cut_polygon(
                cell, gx, gy, values[r], THINNEST_PIECE, node_values
            )
        if n_positive < 0:
            n_edges = _copy_edges(cell, 0, len(cell), new_edges, n_edges)
            positive[n_new] = n_positive == -2
            parents[n_new] = r
            n_new += 1
            new_start[n_new] = n_edges
            continue
        n_negative = len(cell) - n_positive
        if not math.isnan(rise):
            n_negative += 1
        behind = last + 1
        if not math.isnan(fall):
            n_negative += 1
            behind = last
        for side in (True, False):
            sign = 1.0 if side else -1.0
            if side:
                n_edges = copy_run(cell, first, n_positive, rise, fall, new_edges, n_edges)
            else:
                n_edges = copy_run(cell, behind, n_negative, fall, rise, new_edges, n_edges)
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
        nx, ny, offset, begin, end = read_edge(edges, e)
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


def _make_room(cells: Any) -> Any:
    most_edges = np.diff(cells.start).max(initial=0)
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
