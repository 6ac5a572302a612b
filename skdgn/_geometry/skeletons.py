"""How planes cut convex polyhedra: the graph of nodes and edges, and what a cut makes of it.

Everything about a cell is decided at its *nodes*, once for all facets and edges that meet there:
on which side of a plane they are, where new ones are.  So the facets of a piece always fit
together, however nearly planes are equal or meet in one point; rounding moves nodes, but it cannot
open a cell.

An unbounded cell has nodes at infinity as well: it is cut out of a tetrahedron whose facets, the
*walls*, are infinitely far away.  A node at infinity is the point ``foot + R direction`` for R
larger than any number, so that a function ``gradient . z + value`` has the sign of ``gradient .
direction`` there or, if that is zero, the sign of its value at the foot.
"""

from __future__ import annotations

import math

import numpy as np

from skdgn._geometry.interface import THINNEST_PIECE, Integers
from skdgn._runtime import Bools, Floats, kernel

# Columns of the nodes: 1 if finite and 0 if not; the point or the unit direction (3); the foot of a
# node at infinity (3), perpendicular to the direction.
NODE_SIZE = 7

# The side of a node closer to a plane than this, in relative terms, is not decided by its sign
# alone (see `_label`).
_CLOSEST_NODE = 1e-13
# A slope below this, at infinity, is zero.  Where nodes on either side of the threshold are told
# apart as no plane would do it, the next one is tried; if none will do, a cell is not cut.
_PARALLEL = (1e-13, 1e-12, 1e-14, 1e-11, 1e-15, 1e-10)
# Slopes of unit vectors that are rounding errors.
_ROUNDING = 1e-15
# A node at infinity may be this far from where it should be: parallel lines end in one direction.
_MISPLACED = 1e-12
# A point computed from others so many times farther from the origin is better computed from planes.
_FAR = 8.0


@kernel
def dot(x: Floats, y: Floats) -> float:
    """Scalar product in three dimensions."""
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]


def whole_space() -> tuple[Integers, Floats, Integers, Integers, Integers, Integers, Floats]:
    """Return one cell, all of space: the tetrahedron of walls."""
    # In a position of no special meaning, so that no boundary is likely to pass through a node.
    turn = np.linalg.qr(np.cos(np.arange(1.0, 10.0)).reshape(3, 3))[0]
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / np.sqrt(3.0) @ turn.T
    nodes = np.zeros((4, NODE_SIZE))
    nodes[:, 1:4] = corners
    cycles = []
    for opposite in range(4):
        a, b, c = np.flatnonzero(np.arange(4) != opposite)
        inside = corners[opposite] @ np.cross(corners[b] - corners[a], corners[c] - corners[a])
        cycles.append([a, b, c] if inside > 0 else [a, c, b])
    # The edge between two nodes of a facet is opposite the third one; so is the facet behind it.
    across = np.roll(cycles, 1, axis=1)
    return (
        np.array([0, 4]),
        np.zeros((4, 4)),
        np.arange(0, 13, 3),
        np.concatenate(cycles),
        across.ravel(),
        np.array([0, 4]),
        nodes,
    )


@kernel
def _difference(a: float, b: float, c: float, d: float) -> float:
    """Return ``a b - c d``, without loss of digits where the products are nearly equal."""
    # Dekker: the rounding errors of both products, from halves of their factors.
    first, second = a * b, c * d
    split = 134217729.0 * a
    a_high = split - (split - a)
    split = 134217729.0 * b
    b_high = split - (split - b)
    split = 134217729.0 * c
    c_high = split - (split - c)
    split = 134217729.0 * d
    d_high = split - (split - d)
    a_low, b_low, c_low, d_low = a - a_high, b - b_high, c - c_high, d - d_high
    first_error = a_low * b_low - (((first - a_high * b_high) - a_low * b_high) - a_high * b_low)
    second_error = c_low * d_low - (((second - c_high * d_high) - c_low * d_high) - c_high * d_low)
    return (first - second) + (first_error - second_error)


@kernel
def cross(x: Floats, y: Floats, product: Floats) -> None:
    """Fill the vector product, to full accuracy even if the vectors are nearly parallel."""
    for s in range(3):
        t, u = (s + 1) % 3, (s + 2) % 3
        product[s] = _difference(x[t], y[u], x[u], y[t])


@kernel
def is_wall(plane: Floats) -> bool:
    """Tell whether a facet is at infinity."""
    return bool(plane[0] == 0.0 and plane[1] == 0.0 and plane[2] == 0.0)


@kernel
def _node_value(node: Floats, gradient: Floats, value: float, parallel: float) -> float:
    """Value of ``gradient . z + value`` at a node, relative to 1 + its distance from the origin."""
    if node[0] == 0.0:
        slope = dot(gradient, node[1:4])
        if abs(slope) >= parallel:
            return slope
        foot = node[4:]
        return (dot(gradient, foot) + value) / (1.0 + math.sqrt(dot(foot, foot)))
    point = node[1:4]
    return (dot(gradient, point) + value) / (1.0 + math.sqrt(dot(point, point)))


@kernel
def _label(values: Floats, labels: Bools) -> None:
    """Tell the positive from the negative nodes of a cell.

    Rounding decides the signs of values next to zero, and not as a plane would.  Of all levels
    next to zero, nodes are told apart at the one that is farthest from any value: the plane is
    moved by less than a thin piece, and then no node is within rounding of it.
    """
    level, gap = 0.0, 0.0
    for i in range(-1, values.size):
        lower = -_CLOSEST_NODE if i < 0 else values[i]
        if abs(lower) > _CLOSEST_NODE:
            continue
        upper = _CLOSEST_NODE
        for value in values:
            if lower < value < upper:
                upper = value
        if upper - lower > gap:
            level, gap = 0.5 * (lower + upper), upper - lower
    for i in range(values.size):
        labels[i] = values[i] > level


@kernel
def _polish(node: Floats, first: Floats, second: Floats, third: Floats, gain: float) -> None:
    """Move a finite node to where three planes meet, if they tell better where that is.

    It was computed from nodes ``gain`` times as far away, whose rounding errors it shares.
    """
    inverse = np.empty((3, 3))
    cross(second[:3], third[:3], inverse[0])
    cross(third[:3], first[:3], inverse[1])
    cross(first[:3], second[:3], inverse[2])
    determinant = dot(first[:3], inverse[0])
    if abs(determinant) * gain < _FAR:
        return
    point = node[1:4]
    residuals = np.empty(3)
    residuals[0] = first[3] - dot(first[:3], point)
    residuals[1] = second[3] - dot(second[:3], point)
    residuals[2] = third[3] - dot(third[:3], point)
    for s in range(3):
        for k in range(3):
            node[1 + s] += residuals[k] * inverse[k, s] / determinant


@kernel
def find_line(first: Floats, second: Floats, direction: Floats, foot: Floats) -> bool:
    """Fill direction and foot of the line where two planes meet; False if they are parallel.

    Both are accurate to rounding however small the angle between the planes is.
    """
    cross(first[:3], second[:3], direction)
    sine = math.sqrt(dot(direction, direction))
    if sine == 0.0:
        return False
    inward = np.empty(3)
    difference = np.empty(3)
    for s in range(3):
        direction[s] /= sine
        difference[s] = _difference(second[3], first[s], first[3], second[s])
    cross(direction, first[:3], inward)
    square = dot(first[:3], first[:3])
    step = dot(first[:3], difference) / (square * sine)
    for s in range(3):
        foot[s] = first[3] / square * first[s] + step * inward[s]
    return True


@kernel
def _cut_wall_edge(
    a: Floats, b: Floats, plane: Floats, sign: float, cut: Floats, value: float, node: Floats
) -> bool:
    """Fill the node where a plane cuts an edge from a to b at infinity, on a wall.

    Another plane is on the other side of the edge, or none.  With the sign 1, its facet's
    boundary, counter-clockwise as seen from inside, leaves the positive side here, with -1 it
    enters.  Returns whether the planes meet between the two nodes, as they should; if they do not,
    the node is one of the two.
    """
    gradient = cut[:3]
    slope_a, slope_b = dot(gradient, a[1:4]), dot(gradient, b[1:4])
    value_a, value_b = dot(gradient, a[4:]) + value, dot(gradient, b[4:]) + value
    node[0] = 0.0
    if not is_wall(plane) and find_line(plane, cut, node[1:4], node[4:]):
        for s in range(3):
            node[1 + s] *= sign
        # Planes at a small angle need not meet between two nodes that were told apart.
        normal = np.empty(3)
        cross(a[1:4], node[1:4], normal)
        behind_a = dot(normal, plane[:3])
        cross(node[1:4], b[1:4], normal)
        before_b = dot(normal, plane[:3])
        opposite = dot(node[1:4], a[1:4]) + dot(node[1:4], b[1:4]) < 0.0
        misplaced = behind_a < -_MISPLACED or before_b < -_MISPLACED or opposite
        if misplaced:
            closest = a if abs(slope_a) < abs(slope_b) else b
            along = dot(closest[1:4], node[4:])
            for s in range(3):
                node[1 + s] = closest[1 + s]
                node[4 + s] -= along * closest[1 + s]
        return not misplaced
    # At ``x_a = foot_a + R direction_a`` the function is ``R slope_a + value_a``, and likewise at
    # b; it is zero at ``(1 - s) x_a + s x_b`` with ``s = s0 + s1 / R`` up to lower orders.
    share, shift = 0.0, 0.0
    if abs(slope_a) < _ROUNDING and abs(slope_b) < _ROUNDING:
        if value_a != value_b:
            share = min(max(value_a / (value_a - value_b), 0.0), 1.0)
    else:
        share = min(max(slope_a / (slope_a - slope_b), 0.0), 1.0)
        shift = (value_a - share * (value_a - value_b)) / (slope_a - slope_b)
    square, along = 0.0, 0.0
    for s in range(3):
        node[1 + s] = a[1 + s] + share * (b[1 + s] - a[1 + s])
        node[4 + s] = a[4 + s] + share * (b[4 + s] - a[4 + s]) + shift * (b[1 + s] - a[1 + s])
        square += node[1 + s] * node[1 + s]
        along += node[1 + s] * node[4 + s]
    for s in range(3):
        node[4 + s] -= along / square * node[1 + s]
        node[1 + s] /= math.sqrt(square)
    return True


@kernel
def _cut_edge(
    a: Floats, b: Floats, first: Floats, second: Floats, cut: Floats, value: float, node: Floats
) -> bool:
    """Fill the node where the plane ``cut`` meets the edge from a to b, on two other planes.

    Seen from the first plane, the edge leaves the positive side here.  The node stays between a and
    b: where the edge is nearly parallel to the plane, rounding moves it along both of them, which
    does no harm as long as all facets have the same point.  Returns False if at infinity the planes
    meet elsewhere.
    """
    if is_wall(first):
        return _cut_wall_edge(b, a, second, -1.0, cut, value, node)
    if is_wall(second):
        return _cut_wall_edge(a, b, first, 1.0, cut, value, node)
    gradient = cut[:3]
    node[0] = 1.0
    for s in range(3):
        node[4 + s] = 0.0
    farthest = 0.0
    if a[0] == 1.0 and b[0] == 1.0:
        at_a, at_b = dot(gradient, a[1:4]) + value, dot(gradient, b[1:4]) + value
        size_a, size_b = dot(a[1:4], a[1:4]), dot(b[1:4], b[1:4])
        # The label of a node next to the plane need not be its sign: then it is the node itself.
        share = (
            0.0
            if abs(at_a) * math.sqrt(1.0 + size_b) < abs(at_b) * math.sqrt(1.0 + size_a)
            else 1.0
        )
        if (at_a > 0.0) != (at_b > 0.0):
            share = at_a / (at_a - at_b)
        for s in range(3):
            if share < 0.5:
                node[1 + s] = a[1 + s] + share * (b[1 + s] - a[1 + s])
            else:
                node[1 + s] = b[1 + s] + (1.0 - share) * (a[1 + s] - b[1 + s])
        farthest = max(size_a, size_b)
    else:
        # A line that leaves from the finite end or, without one, from its foot.
        origin, direction = np.empty(3), np.empty(3)
        bounded = a[0] == 1.0 or b[0] == 1.0
        if bounded:
            for s in range(3):
                origin[s] = a[1 + s] if a[0] == 1.0 else b[1 + s]
                direction[s] = b[1 + s] if a[0] == 1.0 else a[1 + s]
        else:
            find_line(first, second, direction, origin)
        slope = dot(gradient, direction)
        farthest = dot(origin, origin)
        at_origin = dot(gradient, origin) + value
        step = -at_origin / slope if slope != 0.0 else -1.0
        if bounded and step < 0.0:
            # Again, it is one of the nodes.
            step = 0.0
            if abs(at_origin) > abs(slope) * math.sqrt(1.0 + farthest):
                for i in range(7):
                    node[i] = b[i] if a[0] == 1.0 else a[i]
                return True
        for s in range(3):
            node[1 + s] = origin[s] + step * direction[s]
    gain = math.sqrt(farthest / (1.0 + dot(node[1:4], node[1:4])))
    if gain > _FAR:
        _polish(node, first, second, cut, gain)
    return True


@kernel
def _find_crossings(
    cycle_start: Integers,
    cycles: Integers,
    across: Integers,
    labels: Bools,
    enter: Integers,
    leave: Integers,
) -> int:
    """Fill where the boundary of each facet enters and leaves the positive side, or -1.

    Returns the number of facets that are cut, or -1 if rounding has made no sense of them.
    """
    n_cut, start = 0, -1
    for f in range(cycle_start.size - 1):
        first, last = cycle_start[f], cycle_start[f + 1]
        enter[f], leave[f] = -1, -1
        for k in range(first, last):
            behind = k + 1 if k + 1 < last else first
            here, there = labels[cycles[k]], labels[cycles[behind]]
            if there and not here:
                if enter[f] >= 0:
                    return -1
                enter[f] = k
            elif here and not there:
                if leave[f] >= 0:
                    return -1
                leave[f] = k
        if enter[f] >= 0:
            n_cut += 1
            start = f
    # From a facet to the next behind the edge where it is left, and so around the cut once.
    f, n_met = start, 0
    while n_met == 0 or (f != start and n_met <= n_cut):
        f = across[leave[f]]
        n_met += 1
    if n_met != n_cut:
        return -1
    return n_cut


@kernel
def _cut_around(
    cycle_start: Integers,
    cycles: Integers,
    across: Integers,
    planes: Floats,
    nodes: Floats,
    enter: Integers,
    leave: Integers,
    cut: Floats,
    cut_nodes: Floats,
    enter_node: Integers,
    leave_node: Integers,
) -> int:
    """Fill the nodes around a cut and their numbers; return how many are where they should be."""
    f = 0
    while enter[f] < 0:
        f += 1
    start, n_cut, n_sound = f, 0, 0
    while n_cut == 0 or f != start:
        # Where one facet is left, the next one is entered.
        k = leave[f]
        behind = k + 1 if k + 1 < cycle_start[f + 1] else cycle_start[f]
        g = across[k]
        sound = _cut_edge(
            nodes[cycles[k]],
            nodes[cycles[behind]],
            planes[f],
            planes[g],
            cut,
            -cut[3],
            cut_nodes[n_cut],
        )
        n_sound += sound
        leave_node[f] = n_cut
        enter_node[g] = n_cut
        n_cut += 1
        f = g
    return n_sound


@kernel
def split_skeletons(
    start: Integers,
    planes: Floats,
    cycle_start: Integers,
    cycles: Integers,
    across: Integers,
    node_start: Integers,
    nodes: Floats,
    gradients: Floats,
    values: Floats,
) -> tuple[Integers, Floats, Integers, Integers, Integers, Integers, Floats, Integers, Bools]:
    """Cut cell r by the plane ``gradients[r] . z + values[r] = 0``.

    Parameters
    ----------
    start : ndarray of shape (R + 1,)
        Facets of cell r: ``start[r]:start[r + 1]``.
    planes : ndarray of shape (F, 4)
        Inward unit normal and offset of every facet; zeros for walls.
    cycle_start : ndarray of shape (F + 1,)
    cycles : ndarray of shape (C,)
        Nodes around each facet, counter-clockwise as seen from inside, numbered within the cell.
    across : ndarray of shape (C,)
        Facet, numbered within the cell, on the other side of the edge that begins at the node.
    node_start : ndarray of shape (R + 1,)
    nodes : ndarray of shape (N, 7)
    gradients, values : ndarray of shape (R, 3) and (R,)

    Returns
    -------
    The same arrays for the pieces, the parent of each, and whether it is on the positive side.
    """
    # --- Room for all pieces.
    n_cells, n_facets = start.size - 1, len(planes)
    most_nodes, most_facets = 0, 0
    for r in range(n_cells):
        most_nodes = max(most_nodes, node_start[r + 1] - node_start[r])
        most_facets = max(most_facets, start[r + 1] - start[r])
    new_start = np.zeros(2 * n_cells + 1, dtype=np.intp)
    new_planes = np.empty((2 * n_facets + 2 * n_cells, 4))
    new_cycle_start = np.zeros(2 * n_facets + 2 * n_cells + 1, dtype=np.intp)
    # A cut adds two nodes to each piece of a facet, and each facet cut adds one to the new ones.
    new_cycles = np.empty(cycles.size + 6 * n_facets, dtype=np.intp)
    new_across = np.empty(cycles.size + 6 * n_facets, dtype=np.intp)
    new_node_start = np.zeros(2 * n_cells + 1, dtype=np.intp)
    new_nodes = np.empty((len(nodes) + 2 * n_facets, 7))
    parents = np.empty(2 * n_cells, dtype=np.intp)
    positive = np.empty(2 * n_cells, dtype=np.bool_)
    node_values, labels = np.empty(most_nodes), np.empty(most_nodes, dtype=np.bool_)
    enter, leave = np.empty(most_facets, dtype=np.intp), np.empty(most_facets, dtype=np.intp)
    cut_nodes = np.empty((most_facets, 7))
    # Numbers of the cut nodes where the boundary of a facet enters and leaves the positive side.
    enter_node, leave_node = enter.copy(), leave.copy()
    new_number = np.empty(most_nodes, dtype=np.intp)
    new_facet = np.empty(most_facets, dtype=np.intp)
    cut = np.empty(4)

    # --- Cell by cell.
    n_new, n_planes, n_cycles, n_nodes = 0, 0, 0, 0
    for r in range(n_cells):
        first_facet, size = start[r], start[r + 1] - start[r]
        first_node, n_own = node_start[r], node_start[r + 1] - node_start[r]
        base = cycle_start[first_facet]
        own_planes = planes[first_facet : first_facet + size]
        own_nodes = nodes[first_node : first_node + n_own]
        own_start = cycle_start[first_facet : first_facet + size + 1]
        gradient, value = gradients[r], values[r]

        # --- On which side its nodes are, and which facets are crossed; where that contradicts
        # --- itself, more planes count as parallel.
        n_cut = 0
        side_of_all = value > 0.0
        if gradient[0] != 0.0 or gradient[1] != 0.0 or gradient[2] != 0.0:
            for s in range(3):
                cut[s] = gradient[s]
            cut[3] = -value
            for attempt in range(2 * len(_PARALLEL)):
                parallel = _PARALLEL[attempt % len(_PARALLEL)]
                top, bottom = -math.inf, math.inf
                for i in range(n_own):
                    node_values[i] = _node_value(own_nodes[i], gradient, value, parallel)
                    top = max(top, node_values[i])
                    bottom = min(bottom, node_values[i])
                side_of_all = top > -bottom
                n_cut = 0
                if top > THINNEST_PIECE and bottom < -THINNEST_PIECE:
                    _label(node_values[:n_own], labels[:n_own])
                    n_cut = _find_crossings(own_start, cycles, across, labels, enter, leave)
                if n_cut > 0:
                    sound = _cut_around(
                        own_start,
                        cycles,
                        across,
                        own_planes,
                        own_nodes,
                        enter,
                        leave,
                        cut,
                        cut_nodes,
                        enter_node,
                        leave_node,
                    )
                    # In the second round, anything that is consistent will do.
                    if sound == n_cut or attempt >= len(_PARALLEL):
                        break
                elif n_cut == 0:
                    break

        # --- A cell on one side stays as it is.
        if n_cut <= 0:
            for f in range(size):
                for i in range(4):
                    new_planes[n_planes, i] = own_planes[f, i]
                n_planes += 1
                new_cycle_start[n_planes] = n_cycles + own_start[f + 1] - base
            for k in range(base, own_start[size]):
                new_cycles[n_cycles] = cycles[k]
                new_across[n_cycles] = across[k]
                n_cycles += 1
            for i in range(n_own):
                for j in range(7):
                    new_nodes[n_nodes, j] = own_nodes[i, j]
                n_nodes += 1
            positive[n_new] = side_of_all
            parents[n_new] = r
            n_new += 1
            new_start[n_new] = n_planes
            new_node_start[n_new] = n_nodes
            continue

        # --- The two pieces of a cell that is cut.
        for side in (True, False):
            sign = 1.0 if side else -1.0
            # --- Its nodes and facets, numbered anew.
            n_kept = 0
            for i in range(n_own):
                if labels[i] == side:
                    new_number[i] = n_kept
                    for j in range(7):
                        new_nodes[n_nodes + n_kept, j] = own_nodes[i, j]
                    n_kept += 1
            for i in range(n_cut):
                for j in range(7):
                    new_nodes[n_nodes + n_kept + i, j] = cut_nodes[i, j]
            n_nodes += n_kept + n_cut
            n_kept_facets = 0
            for f in range(size):
                if enter[f] >= 0 or labels[cycles[own_start[f]]] == side:
                    new_facet[f] = n_kept_facets
                    n_kept_facets += 1

            # --- What is left of the facets there were.
            for f in range(size):
                first, last = own_start[f], own_start[f + 1]
                if enter[f] < 0:
                    if labels[cycles[first]] != side:
                        continue
                    for k in range(first, last):
                        new_cycles[n_cycles] = new_number[cycles[k]]
                        new_across[n_cycles] = new_facet[across[k]]
                        n_cycles += 1
                else:
                    # From the edge where the boundary of the facet comes in, to that where it goes.
                    k = enter[f] if side else leave[f]
                    stop = leave[f] if side else enter[f]
                    new_cycles[n_cycles] = n_kept + (enter_node[f] if side else leave_node[f])
                    new_across[n_cycles] = new_facet[across[k]]
                    n_cycles += 1
                    while k != stop:
                        k = k + 1 if k + 1 < last else first
                        new_cycles[n_cycles] = new_number[cycles[k]]
                        new_across[n_cycles] = new_facet[across[k]]
                        n_cycles += 1
                    new_cycles[n_cycles] = n_kept + (leave_node[f] if side else enter_node[f])
                    new_across[n_cycles] = n_kept_facets
                    n_cycles += 1
                for i in range(4):
                    new_planes[n_planes, i] = own_planes[f, i]
                n_planes += 1
                new_cycle_start[n_planes] = n_cycles

            # --- The new facet: its edges are those just added, in the other direction.
            f = 0
            while enter[f] < 0:
                f += 1
            for i in range(n_cut):
                at = n_cycles + (i if side else n_cut - 1 - i)
                new_cycles[at] = n_kept + (enter_node[f] if side else leave_node[f])
                new_across[at] = new_facet[f]
                f = across[leave[f]]
            n_cycles += n_cut
            for i in range(4):
                new_planes[n_planes, i] = sign * cut[i]
            n_planes += 1
            new_cycle_start[n_planes] = n_cycles
            parents[n_new] = r
            positive[n_new] = side
            n_new += 1
            new_start[n_new] = n_planes
            new_node_start[n_new] = n_nodes
    return (
        new_start[: n_new + 1],
        new_planes[:n_planes],
        new_cycle_start[: n_planes + 1],
        new_cycles[:n_cycles],
        new_across[:n_cycles],
        new_node_start[: n_new + 1],
        new_nodes[:n_nodes],
        parents[:n_new],
        positive[:n_new],
    )


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
    if distance > _FAR:
        # From ends that are far away, they tell better where the line passes.
        find_line(other, plane, direction, anchor)
        if math.sqrt(dot(anchor, anchor)) * _FAR < distance:
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
