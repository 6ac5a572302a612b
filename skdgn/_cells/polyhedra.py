"""Cells of a three-dimensional latent space: convex polyhedra as lists of facets.

A facet is a plane with a right-handed frame (two axes in the plane, then the inward normal) and,
in that frame, a polygon as in `polygons`: a list of edges, ends at infinity allowed.  No vertex
is needed, so unbounded cells are like any other; cutting a polyhedron is cutting the polygons of
its facets, and the divergence theorem turns its moments into those of the same polygons.
"""

from __future__ import annotations

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
from skdgn._cells.polygons import (
    SMALLEST_ANGLE,
    copy_run,
    cut_polygon,
    interior_point,
)
from skdgn._jit import kernel


class WhitenedPolyhedra(NamedTuple):
    """Polyhedra in coordinates in which each region's conditional covariance is the identity."""

    start: Integers  # (R + 1,)
    planes: Floats  # (F, 10): normal (3), offset, first axis (3), second axis (3)
    edge_start: Integers  # (F + 1,)
    edges: Floats  # (E, 5) in the frame of their facet
    factors: Floats  # (R, 3, 3)


@dataclass(frozen=True)
class Polyhedra:
    """Convex polyhedra; cell r has the facets ``start[r]:start[r + 1]``.

    Facet f has the edges ``edge_start[f]:edge_start[f + 1]``, in the facet's own frame.
    """

    start: Integers
    planes: Floats  # (F, 10): normal (3), offset, first axis (3), second axis (3)
    edge_start: Integers
    edges: Floats  # (E, 5): normal (2), offset, begin, end

    @classmethod
    def whole_space(cls, n_dimensions: int) -> Polyhedra:
        """Return one cell: all of space."""
        if n_dimensions != 3:
            raise ValueError(f"polyhedra need three latent dimensions, got {n_dimensions}.")
        return cls(
            np.zeros(2, dtype=np.intp),
            np.empty((0, 10)),
            np.zeros(1, dtype=np.intp),
            np.empty((0, 5)),
        )

    def __len__(self) -> int:
        return len(self.start) - 1

    def take(self, indices: Integers) -> Polyhedra:
        """Return the cells with these indices."""
        facets = _ranges(self.start, np.asarray(indices, dtype=np.intp))
        edges = _ranges(self.edge_start, facets[1])
        return Polyhedra(facets[0], self.planes[facets[1]], edges[0], self.edges[edges[1]])

    def split(self, gradients: Floats, values: Floats) -> Pieces:
        """Cut cell r by the plane ``gradients[r] @ z + values[r] = 0``."""
        start, planes, edge_start, edges, parents, positive = _split(
            self.start, self.planes, self.edge_start, self.edges, gradients, values
        )
        return Pieces(Polyhedra(start, planes, edge_start, edges), parents, positive)

    def facets(self) -> Facets:
        """List the facets' planes."""
        return Facets(self.start, self.planes[:, :3], self.planes[:, 3])

    def corners(self) -> Corners:
        """List the vertices of every bounded polyhedron, once for each facet they lie on."""
        facet_of_edge = np.repeat(np.arange(len(self.planes)), np.diff(self.edge_start))
        cell_of_edge = np.repeat(np.arange(len(self)), np.diff(self.start))[facet_of_edge]
        bounded = np.diff(self.start) > 0
        bounded[cell_of_edge[~np.isfinite(self.edges[:, 3:]).all(axis=1)]] = False
        kept = bounded[cell_of_edge]
        planes, edges = self.planes[facet_of_edge[kept]], self.edges[kept]
        u = edges[:, 2] * edges[:, 0] + edges[:, 3] * edges[:, 1]
        v = edges[:, 2] * edges[:, 1] - edges[:, 3] * edges[:, 0]
        points = (
            planes[:, 3:4] * planes[:, :3]
            + u[:, None] * planes[:, 4:7]
            + v[:, None] * planes[:, 7:]
        )
        counts = np.bincount(cell_of_edge[kept], minlength=len(self))
        return Corners(np.concatenate([[0], np.cumsum(counts)]), points)

    def interior_points(self) -> Floats:
        """Return a point inside every polyhedron."""
        return _interior_points(self.start, self.planes, self.edge_start, self.edges)

    def whiten(self, factors: Floats) -> WhitenedPolyhedra:
        """Express cell r in coordinates y with ``z = factors[r] @ y`` (positive determinant)."""
        factors = np.ascontiguousarray(factors)
        planes, edges = _whiten(
            self.start, self.planes, self.edge_start, self.edges, factors, np.linalg.inv(factors)
        )
        return WhitenedPolyhedra(self.start, planes, self.edge_start, edges, factors)


def _ranges(start: Integers, indices: Integers) -> tuple[Integers, Integers]:
    """Start of each chosen block after compaction, and the positions of its members before."""
    sizes = start[indices + 1] - start[indices]
    new_start = np.concatenate([[0], np.cumsum(sizes)])
    members = np.arange(new_start[-1]) + np.repeat(start[indices] - new_start[:-1], sizes)
    return new_start, members


@kernel
def dot(x: Floats, y: Floats) -> float:
    """Scalar product in three dimensions."""
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]


@kernel
def copy_rows(source: Floats, n_rows: int, target: Floats, at: int) -> None:
    """Copy the first rows of one array to another (Numba compiles slices far more slowly)."""
    for i in range(n_rows):
        for j in range(source.shape[1]):
            target[at + i, j] = source[i, j]


@kernel
def fill_frame(plane: Floats) -> None:
    """Complete the normal ``plane[:3]`` by two axes to a right-handed frame."""
    smallest = 0
    for s in range(1, 3):
        if abs(plane[s]) < abs(plane[smallest]):
            smallest = s
    # The unit vector least like the normal, made orthogonal to it.
    square = 0.0
    for s in range(3):
        unit = 1.0 if s == smallest else 0.0
        plane[4 + s] = unit - plane[smallest] * plane[s]
        square += plane[4 + s] * plane[4 + s]
    length = np.sqrt(square)
    for s in range(3):
        plane[4 + s] /= length
    for s in range(3):
        t, u = (s + 1) % 3, (s + 2) % 3
        plane[7 + s] = plane[t] * plane[4 + u] - plane[u] * plane[4 + t]


@kernel
def clip(edges: Floats, n_edges: int, gx: float, gy: float, value: float, clipped: Floats) -> int:
    """Keep the part of a polygon where ``g . z + value >= 0``; return its number of edges.

    -1 stands for an empty polygon: no edges are the whole plane.
    """
    n_run, first, _, rise, fall, lowest, highest = cut_polygon(edges[:n_edges], gx, gy, value)
    if n_run == -1:
        return -1
    if n_run == -2:
        copy_rows(edges, n_edges, clipped, 0)
        return n_edges
    n_clipped = copy_run(edges[:n_edges], first, n_run, rise, fall, clipped, 0)
    clipped[n_clipped, 0] = gx
    clipped[n_clipped, 1] = gy
    clipped[n_clipped, 2] = -value
    clipped[n_clipped, 3] = lowest
    clipped[n_clipped, 4] = highest
    return n_clipped + 1


@kernel
def restrict(plane: Floats, gradient: Floats, value: float) -> tuple[float, float, float, float]:
    """Restrict ``gradient . z + value`` to a facet's plane: gradient (2) and value in its frame.

    The last result is the length of the gradient in the plane, by which the others were divided
    (unless it is too small to be anything but a parallel plane).
    """
    gx, gy = dot(gradient, plane[4:7]), dot(gradient, plane[7:])
    restricted = plane[3] * dot(gradient, plane[:3]) + value
    length = np.sqrt(gx * gx + gy * gy)
    if length < SMALLEST_ANGLE:
        return 0.0, 0.0, restricted, 0.0
    return gx / length, gy / length, restricted / length, length


@kernel
def _cut_polygon(
    planes: Floats, gradient: Floats, value: float, cut: Floats, polygon: Floats, spare: Floats
) -> int:
    """Fill the part of a plane inside a cell, a polygon in the frame of ``cut``; -1 if none.

    Returns its number of edges.
    """
    for s in range(3):
        cut[s] = gradient[s]
    cut[3] = -value
    fill_frame(cut)
    n_edges = 0
    for f in range(len(planes)):
        gx, gy, distance, length = restrict(cut, planes[f, :3], -planes[f, 3])
        if length == 0.0:
            if distance <= THINNEST_PIECE * (1.0 + abs(value)):
                return -1
            continue
        n_edges = clip(polygon, n_edges, gx, gy, distance, spare)
        if n_edges < 0:
            return -1
        copy_rows(spare, n_edges, polygon, 0)
    return n_edges


@kernel
def _interior_point(planes: Floats, edge_start: Integers, edges: Floats, first: int) -> Floats:
    """Average one point of every facet; inside, since no two facets of a cell are coplanar."""
    point = np.zeros(3)
    n_facets = len(planes)
    for f in range(n_facets):
        x, y = interior_point(edges[edge_start[first + f] : edge_start[first + f + 1]])
        for s in range(3):
            point[s] += (
                planes[f, 3] * planes[f, s] + x * planes[f, 4 + s] + y * planes[f, 7 + s]
            ) / n_facets
    if n_facets == 1:
        for s in range(3):
            point[s] += planes[0, s]
    return point


@kernel
def _interior_points(
    start: Integers, planes: Floats, edge_start: Integers, edges: Floats
) -> Floats:
    points = np.empty((start.size - 1, 3))
    for r in range(start.size - 1):
        points[r] = _interior_point(planes[start[r] : start[r + 1]], edge_start, edges, start[r])
    return points


@kernel
def _split(
    start: Integers,
    planes: Floats,
    edge_start: Integers,
    edges: Floats,
    gradients: Floats,
    values: Floats,
) -> tuple[Integers, Floats, Integers, Floats, Integers, Bools]:
    n_cells = start.size - 1
    n_facets = len(planes)
    new_start = np.zeros(2 * n_cells + 1, dtype=np.intp)
    new_planes = np.empty((2 * n_facets + 2 * n_cells, 10))
    new_edge_start = np.zeros(2 * n_facets + 2 * n_cells + 1, dtype=np.intp)
    # Every cut of a facet adds an edge to each piece; a new facet has an edge per old one.
    new_edges = np.empty((2 * len(edges) + 4 * n_facets, 5))
    parents = np.empty(2 * n_cells, dtype=np.intp)
    positive = np.empty(2 * n_cells, dtype=np.bool_)
    polygon, spare = np.empty((n_facets + 1, 5)), np.empty((n_facets + 1, 5))
    largest = 1
    for f in range(n_facets):
        largest = max(largest, edge_start[f + 1] - edge_start[f] + 1)
    piece = np.empty((largest, 5))
    cut = np.empty(10)
    n_new, n_planes, n_edges = 0, 0, 0
    for r in range(n_cells):
        cell = planes[start[r] : start[r + 1]]
        gradient, value = gradients[r], values[r]
        constant = gradient[0] == 0.0 and gradient[1] == 0.0 and gradient[2] == 0.0
        n_cut = -1
        if not constant:
            n_cut = _cut_polygon(cell, gradient, value, cut, polygon, spare)
        if n_cut < 0:
            for f in range(start[r], start[r + 1]):
                copy_rows(planes[f : f + 1], 1, new_planes, n_planes)
                size = edge_start[f + 1] - edge_start[f]
                copy_rows(edges[edge_start[f] :], size, new_edges, n_edges)
                n_edges += size
                n_planes += 1
                new_edge_start[n_planes] = n_edges
            if constant:
                positive[n_new] = value > 0.0
            else:
                point = _interior_point(cell, edge_start, edges, start[r])
                positive[n_new] = dot(gradient, point) + value > 0.0
            parents[n_new] = r
            n_new += 1
            new_start[n_new] = n_planes
            continue
        for side in (True, False):
            sign = 1.0 if side else -1.0
            for f in range(start[r], start[r + 1]):
                facet = edges[edge_start[f] : edge_start[f + 1]]
                gx, gy, restricted, length = restrict(planes[f], gradient, value)
                if length == 0.0:
                    size = -1
                    if sign * restricted > 0.0:
                        size = len(facet)
                        copy_rows(facet, size, piece, 0)
                else:
                    size = clip(facet, len(facet), sign * gx, sign * gy, sign * restricted, piece)
                if size >= 0:
                    copy_rows(planes[f : f + 1], 1, new_planes, n_planes)
                    copy_rows(piece, size, new_edges, n_edges)
                    n_edges += size
                    n_planes += 1
                    new_edge_start[n_planes] = n_edges
            # The new facet; seen from the other side, its second axis and its edges are mirrored.
            for i in range(10):
                new_planes[n_planes, i] = cut[i] if 4 <= i < 7 else sign * cut[i]
            for e in range(n_cut):
                new_edges[n_edges, 0] = polygon[e, 0]
                new_edges[n_edges, 1] = sign * polygon[e, 1]
                new_edges[n_edges, 2] = polygon[e, 2]
                new_edges[n_edges, 3] = polygon[e, 3] if side else -polygon[e, 4]
                new_edges[n_edges, 4] = polygon[e, 4] if side else -polygon[e, 3]
                n_edges += 1
            n_planes += 1
            new_edge_start[n_planes] = n_edges
            parents[n_new] = r
            positive[n_new] = side
            n_new += 1
            new_start[n_new] = n_planes
    return (
        new_start[: n_new + 1].copy(),
        new_planes[:n_planes].copy(),
        new_edge_start[: n_planes + 1].copy(),
        new_edges[:n_edges].copy(),
        parents[:n_new].copy(),
        positive[:n_new].copy(),
    )


@kernel
def _whiten_facet(
    plane: Floats,
    edges: Floats,
    first: int,
    last: int,
    factor: Floats,
    inverse: Floats,
    new_plane: Floats,
    new_edges: Floats,
    position: int,
) -> None:
    """Express a facet and its edges first to last in coordinates y with ``z = factor @ y``."""
    for s in range(3):
        new_plane[s] = 0.0
        for t in range(3):
            new_plane[s] += factor[t, s] * plane[t]
    length = np.sqrt(dot(new_plane[:3], new_plane[:3]))
    for s in range(3):
        new_plane[s] /= length
    new_plane[3] = plane[3] / length
    fill_frame(new_plane)
    for e in range(first, last):
        nx, ny, offset, begin, end = edges[e]
        # A point of the edge and its direction, in the new frame.
        px, py, dx, dy = 0.0, 0.0, 0.0, 0.0
        for s in range(3):
            point, direction = 0.0, 0.0
            for t in range(3):
                on_edge = plane[3] * plane[t] + offset * (nx * plane[4 + t] + ny * plane[7 + t])
                point += inverse[s, t] * on_edge
                direction += inverse[s, t] * (ny * plane[4 + t] - nx * plane[7 + t])
            px += point * new_plane[4 + s]
            py += point * new_plane[7 + s]
            dx += direction * new_plane[4 + s]
            dy += direction * new_plane[7 + s]
        stretch = np.sqrt(dx * dx + dy * dy)
        dx /= stretch
        dy /= stretch
        foot = px * dx + py * dy
        # The edge's normal is its direction turned to the left.
        new_edges[position, 0] = -dy
        new_edges[position, 1] = dx
        new_edges[position, 2] = dx * py - dy * px
        new_edges[position, 3] = foot + stretch * begin
        new_edges[position, 4] = foot + stretch * end
        position += 1


@kernel
def _whiten(
    start: Integers,
    planes: Floats,
    edge_start: Integers,
    edges: Floats,
    factors: Floats,
    inverses: Floats,
) -> tuple[Floats, Floats]:
    new_planes, new_edges = np.empty_like(planes), np.empty_like(edges)
    for r in range(start.size - 1):
        for f in range(start[r], start[r + 1]):
            first, last = edge_start[f], edge_start[f + 1]
            _whiten_facet(
                planes[f],
                edges,
                first,
                last,
                factors[r],
                inverses[r],
                new_planes[f],
                new_edges,
                first,
            )
    return new_planes, new_edges


@kernel
def _make_room(cells: Any) -> Any:
    most_facets, most_edges = 0, 0
    for r in range(cells.start.size - 1):
        first, last = cells.start[r], cells.start[r + 1]
        most_facets = max(most_facets, last - first)
        most_edges = max(most_edges, cells.edge_start[last] - cells.edge_start[first])
    return WhitenedPolyhedra(
        np.zeros(2, dtype=np.intp),
        np.empty((most_facets, 10)),
        np.zeros(most_facets + 1, dtype=np.intp),
        np.empty((most_edges, 5)),
        np.empty((1, 3, 3)),
    )


@kernel
def _whiten_polyhedron(cells: Any, region: int, factor: Floats, room: Any) -> None:
    inverse = np.empty((3, 3))
    determinant = 0.0
    for s in range(3):
        t, u = (s + 1) % 3, (s + 2) % 3
        for a in range(3):
            b, c = (a + 1) % 3, (a + 2) % 3
            inverse[a, s] = factor[t, b] * factor[u, c] - factor[t, c] * factor[u, b]
            room.factors[0, s, a] = factor[s, a]
        determinant += factor[s, 0] * inverse[0, s]
    for s in range(3):
        for a in range(3):
            inverse[s, a] /= determinant
    first_facet = cells.start[region]
    room.start[1] = cells.start[region + 1] - first_facet
    n_edges = 0
    for f in range(room.start[1]):
        first, last = cells.edge_start[first_facet + f], cells.edge_start[first_facet + f + 1]
        _whiten_facet(
            cells.planes[first_facet + f],
            cells.edges,
            first,
            last,
            factor,
            inverse,
            room.planes[f],
            room.edges,
            n_edges,
        )
        n_edges += last - first
        room.edge_start[f + 1] = n_edges


register_whitening(WhitenedPolyhedra, _make_room, _whiten_polyhedron)
