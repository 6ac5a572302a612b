"""Facets of polyhedra as polygons, each in a frame of its own plane."""

from __future__ import annotations

import math

import numpy as np

from skdgn._geometry.polyhedra.nodes import FAR, cross, dot, find_line, is_wall
from skdgn._runtime import Floats, Integers, kernel


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
    cross(plane[:3], plane[4:7], plane[7:])


@kernel
def _fill_edge(plane: Floats, other: Floats, a: Floats, b: Floats, edge: Floats) -> None:
    """Fill the edge from node a to node b in the frame of its facet, next to another facet.

    It begins at inf and ends at -inf if there is no such edge, but only at infinity.
    """
    first_axis, second_axis = plane[4:7], plane[7:]
    far_a, far_b = a[0] == 0.0, b[0] == 0.0
    # The direction from a to b, and the point of the edge that is known best.
    direction, anchor = np.empty(3), np.empty(3)
    if far_a and far_b:
        find_line(other, plane, direction, anchor)
    else:
        from_b = far_a or (not far_b and dot(b[1:4], b[1:4]) < dot(a[1:4], a[1:4]))
        for s in range(3):
            anchor[s] = b[1 + s] if from_b else a[1 + s]
            if far_b:
                direction[s] = b[1 + s]
            elif far_a:
                direction[s] = -a[1 + s]
            else:
                direction[s] = b[1 + s] - a[1 + s]
    dx, dy = dot(direction, first_axis), dot(direction, second_axis)
    length = math.sqrt(dx * dx + dy * dy)
    nx, ny = -dy / length, dx / length
    px, py = dot(anchor, first_axis), dot(anchor, second_axis)
    offset = nx * px + ny * py
    distance = math.sqrt(dot(anchor, anchor))
    beyond = False  # whether the edge is so far away that rounding has turned it around
    if not (far_a or far_b):
        # Between ends that are close together, the planes may tell the direction better.
        mx, my = dot(other[:3], first_axis), dot(other[:3], second_axis)
        sine = math.sqrt(mx * mx + my * my)
        if length < sine * (1.0 + distance):
            nx, ny = mx / sine, my / sine
            offset = nx * px + ny * py
    if distance > FAR:
        # From ends that are far away, they tell better where the line passes.
        find_line(other, plane, direction, anchor)
        if math.sqrt(dot(anchor, anchor)) * FAR < distance:
            beyond = dx * dot(direction, first_axis) + dy * dot(direction, second_axis) < 0.0
            dx, dy = dot(direction, first_axis), dot(direction, second_axis)
            length = math.sqrt(dx * dx + dy * dy)
            nx, ny = -dy / length, dx / length
            offset = nx * dot(anchor, first_axis) + ny * dot(anchor, second_axis)
    edge[0], edge[1], edge[2] = nx, ny, offset
    edge[3], edge[4] = -math.inf, math.inf
    if not far_a:
        edge[3] = dot(a[1:4], first_axis) * ny - dot(a[1:4], second_axis) * nx
    if not far_b:
        edge[4] = dot(b[1:4], first_axis) * ny - dot(b[1:4], second_axis) * nx
    # Ends may coincide but for rounding.  The edge still tells on which side of it the facet is.
    if far_a and far_b and dot(a[1:4], b[1:4]) > 0.0:
        edge[3], edge[4] = math.inf, -math.inf
    elif beyond:
        edge[3], edge[4] = math.inf, math.inf
    elif edge[3] > edge[4]:
        edge[3] = 0.5 * (edge[3] + edge[4])
        edge[4] = edge[3]


@kernel
def facet_polygons(
    start: Integers,
    planes: Floats,
    cycle_start: Integers,
    cycles: Integers,
    across: Integers,
    node_start: Integers,
    nodes: Floats,
) -> tuple[Integers, Floats, Integers, Floats]:
    """Express the facets of all cells as polygons in frames of their own, without the walls.

    Returns
    -------
    start : ndarray of shape (R + 1,)
    planes : ndarray of shape (F, 10)
        Normal, offset, first axis and second axis.
    edge_start : ndarray of shape (F + 1,)
    edges : ndarray of shape (E, 5)
        Normal, offset, begin and end, as of `polygons`.
    """
    new_start = np.zeros(start.size, dtype=np.intp)
    new_planes = np.empty((len(planes), 10))
    edge_start = np.zeros(len(planes) + 1, dtype=np.intp)
    edges = np.empty((cycles.size, 5))
    n_planes, n_edges = 0, 0
    for r in range(start.size - 1):
        own_nodes = nodes[node_start[r] : node_start[r + 1]]
        for f in range(start[r], start[r + 1]):
            if is_wall(planes[f]):
                continue
            plane = new_planes[n_planes]
            for i in range(4):
                plane[i] = planes[f, i]
            fill_frame(plane)
            first, last = cycle_start[f], cycle_start[f + 1]
            n_before, has_edges = n_edges, False
            for k in range(first, last):
                other = planes[start[r] + across[k]]
                if is_wall(other):
                    continue
                has_edges = True
                behind = k + 1 if k + 1 < last else first
                _fill_edge(
                    plane, other, own_nodes[cycles[k]], own_nodes[cycles[behind]], edges[n_edges]
                )
                if edges[n_edges, 3] <= edges[n_edges, 4]:
                    n_edges += 1
            # A facet that is at infinity with all its edges is none; without edges it is a plane.
            if has_edges and n_edges == n_before:
                continue
            n_planes += 1
            edge_start[n_planes] = n_edges
        new_start[r + 1] = n_planes
    return new_start, new_planes[:n_planes], edge_start[: n_planes + 1], edges[:n_edges]
