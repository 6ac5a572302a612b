"""Nodes of polyhedra: the points where planes meet, at infinity as well.

An unbounded cell has nodes at infinity: it is cut out of a tetrahedron whose facets, the *walls*,
are infinitely far away.  A node at infinity is the point ``foot + R direction`` for R larger than
any number, so that a function ``gradient . z + value`` has the sign of ``gradient . direction``
there or, if that is zero, the sign of its value at the foot.
"""

from __future__ import annotations

import math

import numpy as np

from skdgn._runtime import Floats, kernel

# Columns of the nodes: 1 if finite and 0 if not; the point or the unit direction (3); the foot of a
# node at infinity (3), perpendicular to the direction.
NODE_SIZE = 7
# A point computed from others so many times farther from the origin is better computed from planes.
FAR = 8.0

# Slopes of unit vectors that are rounding errors.
_ROUNDING = 1e-15
# A node at infinity may be this far from where it should be: parallel lines end in one direction.
_MISPLACED = 1e-12


@kernel
def dot(x: Floats, y: Floats) -> float:
    """Scalar product in three dimensions."""
    return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]


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
def node_value(node: Floats, gradient: Floats, value: float, parallel: float) -> float:
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
def _polish(node: Floats, first: Floats, second: Floats, third: Floats, gain: float) -> None:
    """Move a finite node to where three planes meet, if they tell better where that is.

    It was computed from nodes ``gain`` times as far away, whose rounding errors it shares.
    """
    inverse = np.empty((3, 3))
    cross(second[:3], third[:3], inverse[0])
    cross(third[:3], first[:3], inverse[1])
    cross(first[:3], second[:3], inverse[2])
    determinant = dot(first[:3], inverse[0])
    if abs(determinant) * gain < FAR:
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
def cut_edge(
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
    if gain > FAR:
        _polish(node, first, second, cut, gain)
    return True
