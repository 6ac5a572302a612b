"""The Gaussian integral and its moments over a convex polyhedron.

Center of the Gaussian at the origin, ``h`` the signed distance of a facet's plane (positive if
the center is outside), ``p`` that of an edge's line within the plane, seen from the foot of the
first perpendicular, ``t`` the position along the edge, seen from the foot of the second, Q the
upper tail of the normal.  The divergence theorem, applied to a radial field and then to polar
coordinates in the facet's plane, leaves one integral per facet and edge:

    mass = 1[inside] + sum_facets (1[foot inside the facet] sign(h) Q(|h|) + sum_edges J)
    J = (1/2 pi) int h p / (p^2 + t^2) Q(s) / s dt,   s^2 = h^2 + p^2 + t^2.

(A flag is a facet, an edge and an end of it.)  Applied to the moments it leaves the masses and
first moments of the facets, which are polygons: integrals of the density along the same edges.
The same nodes serve all of them, as many as the error that the caller can bear asks for.

Like every alternating sum this is worthless where all terms cancel.  There the polyhedron is cut
into plane sections instead (see `sections`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skdgn._geometry.interface import LOG_NEGLIGIBLE_SHARE, register_integral
from skdgn._geometry.polygons import nearest_point, read_edge
from skdgn._geometry.polyhedra.cells import WhitenedPolyhedra
from skdgn._geometry.polyhedra.nodes import dot
from skdgn._geometry.polyhedra.sections import sliced_polyhedron
from skdgn._geometry.quadrature import (
    FULL_ACCURACY,
    GAUSS_NODES,
    GAUSS_WEIGHTS,
    MOST_NODES,
    nodes_needed,
)
from skdgn._runtime import INV_SQRT_2PI, LOG_SQRT_2PI, SQRT_HALF, Floats, erfcx, kernel

# Relative rounding error of an integral along an edge; that of one whose pole was subtracted,
# relative to what was subtracted.
_ROUNDING = 4e-16
_POLE_ERROR = 1e-15
# Error of the angle under which an edge is seen, relative to the size of the coordinates: within
# the facet's plane, times the distance of its nearer end; between planes, times its own distance,
# which counts below the second number.
_ANGLE_ERROR = 2e-16
_NEAR_EDGE = 1e-3
# Beyond so many nodes the pole is subtracted, which costs as much as a few of them.
_MANY_NODES = 20
# Square of the distance up to which the branch point s = 0 is subtracted as well: the difference
# is of absolute accuracy.
_NEAR_SQUARE = 4.0
# A sum over edges is trusted if its error is below this share of the result, or below what the
# caller allows; beyond the distance given, the moments never are.
_RELATIVE_ERROR = 1e-11
_FARTHEST_SUM = 12.0
# Each integral along an edge is this much more accurate (-log) than the sum is asked to be.
_ACCURACY_MARGIN = 4.0
_LEAST_ACCURACY = 1.0
_MOST_PANELS = 64
# A center on a plane, or a foot on a line, counts as inside.
_INSIDE = -1e-200
# No distance is smaller, where one divides: nor is a rounding error.
_CLOSEST = 1e-300

_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)
_LOG_CONSTANT = 3.0 * LOG_SQRT_2PI


@kernel
def _edge_integrals(
    h: float,
    p: float,
    begin: float,
    end: float,
    size: float,
    depth: float,
    square: float,
    accuracy: float,
) -> tuple[float, float, float, float, float]:
    """Integrate what flags and facets ask of an edge, times exp(square / 2).

    Parameters
    ----------
    h, p : float
        Distance of the facet's plane and, within it, of the edge's line; positive if the center, or
        the foot of its perpendicular, is outside.  Not zero.
    begin, end : float
        The edge's interval, from the foot of the second perpendicular; may be infinite.
    size : float
        Size of the numbers that p, begin and end are the differences of, and so share errors with.
    depth : float
        The same for h.
    square : float
        Square of the distance whose density is taken out of all terms.
    accuracy : float
        -log of the absolute error wanted.

    Returns
    -------
    flag : float
        Integral of h p / (p^2 + t^2) erfcx(s / sqrt 2) / s times exp(-s^2 / 2).
    angle, zeroth, first : float
        Integrals of p / (p^2 + t^2), 1 and t times exp(-s^2 / 2).
    error : float
        Rounding error of flag and angle.

    Notes
    -----
    Both have a pole at t = i p and the first one a branch point at s = 0.  Where the pole is near,
    its residue, ``values at t = i p, s = h`` times the angle under which the edge is seen, is
    subtracted.  Where s = 0 is near as well, so is 1 / s, whose integral is
    atan(h t / (p s)): what is left is an entire function.
    """
    lead = square - h * h - p * p
    reach = lead + 2.0 * accuracy
    if reach <= 0.0:
        return 0.0, 0.0, 0.0, 0.0, 0.0
    reach = math.sqrt(reach)
    start, stop = max(begin, -reach), min(end, reach)
    if start >= stop:
        return 0.0, 0.0, 0.0, 0.0, 0.0
    width = stop - start
    middle, half = 0.5 * abs(start + stop), 0.5 * width
    pp = p * p
    start_distance, stop_distance = math.sqrt(pp + start * start), math.sqrt(pp + stop * stop)
    along = min(max(0.0, start), stop)
    nearest_square = h * h + pp + along * along
    blur = _ANGLE_ERROR * size / min(start_distance, stop_distance)
    error = blur * min(1.0, math.exp(0.5 * lead))
    if nearest_square < _NEAR_EDGE * _NEAR_EDGE:
        blur = _ANGLE_ERROR * (size + depth) + _CLOSEST
        error += blur / max(math.sqrt(nearest_square), _CLOSEST)
    n_nodes = nodes_needed(middle, half, 0.5 * (start_distance + stop_distance), accuracy)
    # What is subtracted: the pole's share of the density and of the tail, and of that 1 / s.
    at_pole, tail_at_pole, branch = 0.0, 0.0, 0.0
    flag, angle, zeroth, first = 0.0, 0.0, 0.0, 0.0
    n_panels = 1
    if n_nodes > _MANY_NODES:
        at_pole = math.exp(0.5 * (square - h * h))
        tail_at_pole = at_pole * erfcx(abs(h) * SQRT_HALF)
        s_start, s_stop = math.hypot(h, start_distance), math.hypot(h, stop_distance)
        pole = 0.5 * (s_start + s_stop)
        if square <= _NEAR_SQUARE:
            branch, pole = math.exp(0.5 * square), math.inf
            flag = branch * (
                math.atan(h * stop / (p * s_stop)) - math.atan(h * start / (p * s_start))
            )
        theta = math.atan(stop / p) - math.atan(start / p)
        angle = at_pole * theta
        flag += math.copysign(1.0, h) * (tail_at_pole - branch) * theta
        error += _POLE_ERROR * max(at_pole, branch)
        n_nodes = nodes_needed(middle, half, pole, accuracy)
        if n_nodes > MOST_NODES:
            farthest = max(abs(start), abs(stop))
            nearest = math.inf if pole == math.inf else math.sqrt(nearest_square)
            while n_nodes > MOST_NODES and n_panels < _MOST_PANELS:
                n_panels *= 2
                width *= 0.5
                n_nodes = nodes_needed(farthest - 0.5 * width, 0.5 * width, nearest, accuracy)
            n_nodes = min(n_nodes, MOST_NODES)
        tail_at_pole = (tail_at_pole - branch) / abs(h)
    tails, densities = 0.0, 0.0
    hh = h * h
    for panel in range(n_panels):
        for i in range(n_nodes):
            t = start + width * (panel + GAUSS_NODES[n_nodes, i])
            plane = pp + t * t
            s = math.sqrt(hh + plane)
            density = math.exp(0.5 * (lead - t * t))
            weight = GAUSS_WEIGHTS[n_nodes, i]
            zeroth += weight * density
            first += weight * density * t
            if plane > 0.0:
                weight /= plane
                densities += weight * (density - at_pole)
                tail = (density * erfcx(s * SQRT_HALF) - branch) / s
                tails += weight * (tail - tail_at_pole)
    angle += width * p * densities
    flag += width * h * p * tails
    error += _ROUNDING * (abs(angle) + abs(flag))
    return flag, angle, width * zeroth, width * first, error


@kernel
def flag_polyhedron(
    cells: Any,
    region: int,
    center: Floats,
    rho: float,
    accuracy: float,
    first: Floats,
    second: Floats,
) -> tuple[float, float]:
    """Integrate N(center, I) over a polyhedron by flags.

    Parameters
    ----------
    cells : WhitenedPolyhedra
    region : int
    center : ndarray of shape (3,)
    rho : float
        Distance of the polyhedron from the center.
    accuracy : float
        -log of the absolute error wanted.
    first, second : ndarray of shape (3,) and (3, 3)
        Filled with the unnormalized moments about the center.

    Returns
    -------
    mass, error : float
        The mass and its rounding error.

    All results have the factor exp(-rho^2/2) / (2 pi)^(3/2) taken out.
    """
    for s in range(3):
        first[s] = 0.0
        for t in range(3):
            second[s, t] = 0.0
    inside = rho == 0.0
    mass, error = 0.0, 0.0
    square = rho * rho
    on_facet = np.empty(3)
    for f in range(cells.start[region], cells.start[region + 1]):
        plane = cells.planes[f]
        h = plane[3] - dot(plane[:3], center) or _INSIDE
        if h > 0.0:
            inside = False
        if h * h >= square + 2.0 * accuracy:
            continue
        x, y = dot(plane[4:7], center), dot(plane[7:], center)
        # A facet that is but a point, where a plane touches the cell, has nothing inside.
        foot_inside = cells.edge_start[f] == cells.edge_start[f + 1]
        for e in range(cells.edge_start[f], cells.edge_start[f + 1]):
            foot_inside = foot_inside or cells.edges[e, 3] < cells.edges[e, 4]
        flags, facet_mass, along_x, along_y, facet_error = 0.0, 0.0, 0.0, 0.0, 0.0
        for e in range(cells.edge_start[f], cells.edge_start[f + 1]):
            nx, ny, offset, begin, end = read_edge(cells.edges, e)
            p = offset - nx * x - ny * y or _INSIDE
            shift = ny * x - nx * y
            if p > 0.0:
                foot_inside = False
            flag, angle, zeroth, _, edge_error = _edge_integrals(
                h,
                p,
                begin - shift,
                end - shift,
                abs(offset) + abs(x) + abs(y),
                abs(plane[3]),
                square,
                accuracy,
            )
            flags += flag
            facet_mass += angle
            along_x += zeroth * nx
            along_y += zeroth * ny
            facet_error += edge_error
        if foot_inside:
            density = 2.0 * math.pi * math.exp(0.5 * (square - h * h))
            facet_mass += density
            flags += math.copysign(density * erfcx(abs(h) * SQRT_HALF), h)
            facet_error += _ROUNDING * density
        mass += _SQRT_HALF_PI * flags
        error += facet_error * (1.0 + abs(h))
        for s in range(3):
            on_facet[s] = (
                h * facet_mass * plane[s] + along_x * plane[4 + s] + along_y * plane[7 + s]
            )
        for s in range(3):
            first[s] += facet_mass * plane[s]
            for t in range(3):
                second[s, t] += 0.5 * (plane[s] * on_facet[t] + plane[t] * on_facet[s])
    if inside:
        mass += math.exp(_LOG_CONSTANT)
        error += math.exp(_LOG_CONSTANT) * _ROUNDING
    for s in range(3):
        second[s, s] += mass
    # An exponent of this size has so many digits fewer.
    return mass, error * (1.0 + 0.5 * square)


@kernel
def nearest_in_polyhedron(cells: Any, region: int, center: Floats, point: Floats) -> float:
    """Fill the point of a cell that is nearest to the center; return its distance (0 if inside)."""
    foot = np.empty(2)
    best = math.inf
    for s in range(3):
        point[s] = center[s]
    for f in range(cells.start[region], cells.start[region + 1]):
        plane = cells.planes[f]
        h = plane[3] - dot(plane[:3], center)
        if h > 0.0:
            foot[0], foot[1] = dot(plane[4:7], center), dot(plane[7:], center)
            edges = cells.edges[cells.edge_start[f] : cells.edge_start[f + 1]]
            distance, x, y = nearest_point(edges, foot)
            square = h * h + distance * distance
            if square < best:
                best = square
                for s in range(3):
                    point[s] = plane[3] * plane[s] + x * plane[4 + s] + y * plane[7 + s]
    if best == math.inf:
        return 0.0
    return math.sqrt(best)


@kernel
def polyhedron_moments(
    cells: Any,
    region: int,
    center: Floats,
    log_tolerance: float,
    mean: Floats,
    covariance: Floats,
) -> float:
    """Log mass, mean and covariance on a whitened polyhedron, by the cheapest sound formula."""
    nearest = np.empty(3)
    rho = nearest_in_polyhedron(cells, region, center, nearest)
    log_bound = -0.5 * rho * rho - math.log(max(2.0, rho / INV_SQRT_2PI))
    if log_bound <= log_tolerance + LOG_NEGLIGIBLE_SHARE:
        for s in range(3):
            mean[s] = center[s]
            for t in range(3):
                covariance[s, t] = 0.0
        return -math.inf
    if rho < _FARTHEST_SUM:
        log_scale = -0.5 * rho * rho - _LOG_CONSTANT
        log_error = log_tolerance - log_scale
        accuracy = max(_LEAST_ACCURACY, min(_ACCURACY_MARGIN - log_error, FULL_ACCURACY))
        mass, error = flag_polyhedron(cells, region, center, rho, accuracy, mean, covariance)
        if mass > 0.0:
            spread = 0.0
            for s in range(3):
                mean[s] /= mass
                spread += covariance[s, s] / mass - mean[s] * mean[s]
            # Moments lose more digits than the mass: they are differences of squared distances.
            relative_error = error / mass * (1.0 + rho * rho) / spread
            if error <= math.exp(log_error) or 0.0 < relative_error < _RELATIVE_ERROR:
                for s in range(3):
                    for t in range(3):
                        covariance[s, t] = covariance[s, t] / mass - mean[s] * mean[t]
                for s in range(3):
                    mean[s] += center[s]
                return math.log(mass) + log_scale
    return sliced_polyhedron(cells, region, center, nearest, rho, log_tolerance, mean, covariance)


@kernel
def _integrate_polyhedron(
    cells: Any,
    region: int,
    center: Floats,
    log_tolerance: float,
    mean: Floats,
    covariance: Floats,
) -> float:
    log_mass = polyhedron_moments(cells, region, center, log_tolerance, mean, covariance)
    factor = cells.factors[region]
    whitened_mean, whitened = np.empty(3), np.empty((3, 3))
    for s in range(3):
        whitened_mean[s] = mean[s]
        for t in range(3):
            whitened[s, t] = covariance[s, t]
    for s in range(3):
        mean[s] = 0.0
        for a in range(3):
            mean[s] += factor[s, a] * whitened_mean[a]
        for t in range(3):
            covariance[s, t] = 0.0
            for a in range(3):
                for b in range(3):
                    covariance[s, t] += factor[s, a] * whitened[a, b] * factor[t, b]
    return log_mass


register_integral(WhitenedPolyhedra, _integrate_polyhedron)
