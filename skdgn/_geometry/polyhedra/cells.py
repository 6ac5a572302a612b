"""Cells of a three-dimensional latent space: convex polyhedra.

Cutting works on their skeletons, see `skeletons`.  For integrals, a facet is a plane with a
right-handed frame (two axes in the plane, then the inward normal) and, in that frame, a polygon as
in `polygons`: a list of edges, ends at infinity allowed.  The divergence theorem turns the moments
of a polyhedron into those of its facets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skdgn._geometry.interface import Corners, Facets, Pieces, register_whitening
from skdgn._geometry.polygons import interior_point, long_edges, read_edge
from skdgn._geometry.polyhedra import skeletons
from skdgn._geometry.polyhedra.facet_polygons import facet_polygons, fill_frame
from skdgn._geometry.polyhedra.nodes import dot
from skdgn._runtime import Floats, Integers, kernel

# Planes farther from the origin than this do not cut.  Nodes are as exact as their distance allows:
# from those of a plane at 1e11, it can no longer be told where planes near the origin are.
_FARTHEST_PLANE = 1e10


class FacetPolygons(NamedTuple):
    """Facets of all cells: those of cell r are ``start[r]:start[r + 1]``."""

    start: Integers  # (R + 1,)
    planes: Floats  # (F, 10): normal (3), offset, first axis (3), second axis (3)
    edge_start: Integers  # (F + 1,)
    edges: Floats  # (E, 5) in the frame of their facet: normal (2), offset, begin, end


class WhitenedPolyhedra(NamedTuple):
    """Polyhedra in coordinates in which each region's conditional covariance is the identity."""

    start: Integers  # (R + 1,)
    planes: Floats  # (F, 10): normal (3), offset, first axis (3), second axis (3)
    edge_start: Integers  # (F + 1,)
    edges: Floats  # (E, 5) in the frame of their facet
    factors: Floats  # (R, 3, 3)


@dataclass(frozen=True)
class Polyhedra:
    """Convex polyhedra; the arrays are those of `skeletons.split_skeletons`."""

    start: Integers
    planes: Floats
    cycle_start: Integers
    cycles: Integers
    across: Integers
    node_start: Integers
    nodes: Floats

    @classmethod
    def whole_space(cls, n_dimensions: int) -> Polyhedra:
        """Return one cell: all of space."""
        if n_dimensions != 3:
            raise ValueError(f"polyhedra need three latent dimensions, got {n_dimensions}.")
        return cls(*skeletons.whole_space())

    def __len__(self) -> int:
        return len(self.start) - 1

    def take(self, indices: Integers) -> Polyhedra:
        """Return the cells with these indices."""
        indices = np.asarray(indices, dtype=np.intp)
        start, facets = _ranges(self.start, indices)
        cycle_start, corners = _ranges(self.cycle_start, facets)
        node_start, nodes = _ranges(self.node_start, indices)
        return Polyhedra(
            start,
            self.planes[facets],
            cycle_start,
            self.cycles[corners],
            self.across[corners],
            node_start,
            self.nodes[nodes],
        )

    def split(self, gradients: Floats, values: Floats) -> Pieces:
        """Cut cell r by the plane ``gradients[r] @ z + values[r] = 0``."""
        gradients = np.where(np.abs(values)[:, None] > _FARTHEST_PLANE, 0.0, gradients)
        *pieces, parents, positive = skeletons.split_skeletons(
            self.start,
            self.planes,
            self.cycle_start,
            self.cycles,
            self.across,
            self.node_start,
            self.nodes,
            gradients,
            values,
        )
        # Copies, to let go of the space that was not needed.
        cells = Polyhedra(*(array.copy() for array in pieces))
        return Pieces(cells, parents.copy(), positive.copy())

    @cached_property
    def polygons(self) -> FacetPolygons:
        """Facets in frames of their own."""
        return FacetPolygons(
            *facet_polygons(
                self.start,
                self.planes,
                self.cycle_start,
                self.cycles,
                self.across,
                self.node_start,
                self.nodes,
            )
        )

    def facets(self) -> Facets:
        """List the planes of all facets with an edge longer than a piece must be thick."""
        start, planes, edge_start, edges = self.polygons
        n_long = np.concatenate([[0], np.cumsum(long_edges(edges))])[edge_start]
        kept = (np.diff(n_long) > 0) | (np.diff(edge_start) == 0)
        start = np.concatenate([[0], np.cumsum(kept)])[start]
        return Facets(start, planes[kept, :3], planes[kept, 3])

    def corners(self) -> Corners:
        """List the vertices of every bounded polyhedron."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.node_start))
        finite = self.nodes[:, 0] == 1.0
        bounded = np.ones(len(self), dtype=bool)
        bounded[owner[~finite]] = False
        counts = np.where(bounded, np.diff(self.node_start), 0)
        return Corners(np.concatenate([[0], np.cumsum(counts)]), self.nodes[bounded[owner], 1:4])

    def interior_points(self) -> Floats:
        """Return a point inside every polyhedron."""
        return _interior_points(*self.polygons)

    def whiten(self, factors: Floats) -> WhitenedPolyhedra:
        """Express cell r in coordinates y with ``z = factors[r] @ y`` (positive determinant)."""
        factors = np.ascontiguousarray(factors)
        start, _, edge_start, _ = self.polygons
        planes, edges = _whiten(*self.polygons, factors, np.linalg.inv(factors))
        return WhitenedPolyhedra(start, planes, edge_start, edges, factors)


def _ranges(start: Integers, indices: Integers) -> tuple[Integers, Integers]:
    """Start of each chosen block after compaction, and the positions of its members before."""
    sizes = start[indices + 1] - start[indices]
    new_start = np.concatenate([[0], np.cumsum(sizes)])
    members = np.arange(new_start[-1]) + np.repeat(start[indices] - new_start[:-1], sizes)
    return new_start, members


@kernel
def _interior_points(
    start: Integers, planes: Floats, edge_start: Integers, edges: Floats
) -> Floats:
    """Average one point of every facet; inside, since no two facets of a cell are coplanar."""
    points = np.zeros((start.size - 1, 3))
    for r in range(start.size - 1):
        n_facets = start[r + 1] - start[r]
        for f in range(start[r], start[r + 1]):
            x, y = interior_point(edges[edge_start[f] : edge_start[f + 1]])
            for s in range(3):
                points[r, s] += (
                    planes[f, 3] * planes[f, s] + x * planes[f, 4 + s] + y * planes[f, 7 + s]
                ) / n_facets
                if n_facets == 1:
                    points[r, s] += planes[f, s]
    return points


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
        nx, ny, offset, begin, end = read_edge(edges, e)
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


def _make_room(cells: Any) -> Any:
    most_facets = np.diff(cells.start).max(initial=0)
    most_edges = np.diff(cells.edge_start[cells.start]).max(initial=0)
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
