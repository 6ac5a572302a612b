"""Polygons clipped by half-planes, one at a time: sections of polyhedra.

A section is an intersection of half-planes and nothing else: no other polygon has to agree with it
about its vertices, so edges are decided one by one, and lines as good as parallel are parallel.
"""

from __future__ import annotations

import math

from skdgn._geometry.interface import THINNEST_PIECE
from skdgn._geometry.polygons import SMALLEST_ANGLE, edge_middle, interior_point, project
from skdgn._runtime import Floats, kernel


@kernel
def copy_rows(source: Floats, n_rows: int, target: Floats, at: int) -> None:
    """Copy the first rows of one array to another (Numba compiles slices far more slowly)."""
    for i in range(n_rows):
        for j in range(source.shape[1]):
            target[at + i, j] = source[i, j]


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
        lowest = project(edges[first], _edge_root(edges[first], gx, gy, value), dx, dy)
    if last >= 0:
        highest = project(edges[last], _edge_root(edges[last], gx, gy, value), dx, dy)
    return longer_than_rounding(lowest, highest, abs(value)), lowest, highest, first, last


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
    if offset * (gx * nx + gy * ny) + value + rate * edge_middle(begin, end) > 0.0:
        return begin, end, 0.0, 0.0
    return 0.0, 0.0, begin, end


@kernel
def clip(edges: Floats, n_edges: int, gx: float, gy: float, value: float, clipped: Floats) -> int:
    """Keep the part of a polygon where ``g . z + value >= 0``; return its number of edges.

    -1 stands for an empty polygon: no edges are the whole plane.
    """
    crossed, lowest, highest, first, last = chord(edges[:n_edges], gx, gy, value)
    if not crossed:
        x, y = interior_point(edges[:n_edges])
        if gx * x + gy * y + value <= 0.0:
            return -1
        copy_rows(edges, n_edges, clipped, 0)
        return n_edges
    n_clipped = 0
    for e in range(n_edges):
        begin, end, _, _ = edge_part(edges[e], e in (first, last), gx, gy, value)
        if longer_than_rounding(begin, end, abs(edges[e, 2])):
            clipped[n_clipped, 0] = edges[e, 0]
            clipped[n_clipped, 1] = edges[e, 1]
            clipped[n_clipped, 2] = edges[e, 2]
            clipped[n_clipped, 3] = begin
            clipped[n_clipped, 4] = end
            n_clipped += 1
    clipped[n_clipped, 0] = gx
    clipped[n_clipped, 1] = gy
    clipped[n_clipped, 2] = -value
    clipped[n_clipped, 3] = lowest
    clipped[n_clipped, 4] = highest
    return n_clipped + 1
