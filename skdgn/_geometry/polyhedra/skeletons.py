"""How planes cut convex polyhedra: the graph of nodes and edges, and what a cut makes of it.

Everything about a cell is decided at its *nodes*, once for all facets and edges that meet there:
on which side of a plane they are, where new ones are.  So the facets of a piece always fit
together, however nearly planes are equal or meet in one point; rounding moves nodes, but it cannot
open a cell.
"""

from __future__ import annotations

import math

import numpy as np

from skdgn._geometry.interface import THINNEST_PIECE
from skdgn._geometry.polyhedra.nodes import NODE_SIZE, cut_edge, node_value
from skdgn._runtime import Bools, Floats, Integers, kernel

# The side of a node closer to a plane than this, in relative terms, is not decided by its sign
# alone (see `_label`).
_CLOSEST_NODE = 1e-13
# A slope below this, at infinity, is zero.  Where nodes on either side of the threshold are told
# apart as no plane would do it, the next one is tried; if none will do, a cell is not cut.
_PARALLEL = (1e-13, 1e-12, 1e-14, 1e-11, 1e-15, 1e-10)


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
        sound = cut_edge(
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
                    node_values[i] = node_value(own_nodes[i], gradient, value, parallel)
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
