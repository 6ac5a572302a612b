"""The Gaussian integral and its moments over a convex polyhedron.

Center of the Gaussian at the origin, ``h`` the signed distance of a facet's plane (positive if
the center is outside), ``p`` that of an edge's line within the plane, seen from the foot of the
first perpendicular, Q the upper tail of the normal.  The divergence theorem, applied to a radial
field and then to polar coordinates in the facet's plane, leaves one integral of elementary
functions per facet and edge:

    mass = 1[inside] + sum_facets sign(h) (1[foot inside the facet] Q(|h|) - sum_edges sign(-p) J)
    J = (1/2 pi) int |h| Q(s) / s dt,   s^2 = h^2 + p^2 / cos(t)^2,

over the angle t under which the edge is seen.  (A flag is a facet, an edge and an end of it.)
Applied to the moments it leaves the masses and first moments of the facets, which are polygons.

Like every alternating sum this is worthless in the tail.  There the polyhedron is cut into plane
sections instead (see `sections`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skdgn._geometry.boundaries import nearest_point, owen_polygon
from skdgn._geometry.interface import LOG_NEGLIGIBLE_SHARE, register_integral
from skdgn._geometry.polygons import read_edge
from skdgn._geometry.polyhedra import WhitenedPolyhedra
from skdgn._geometry.quadrature import LONG_NODES, LONG_WEIGHTS
from skdgn._geometry.sections import sliced_polyhedron
from skdgn._geometry.skeletons import dot
from skdgn._runtime import INV_SQRT_2PI, SQRT_HALF, Floats, kernel

# Absolute error of the sum of flags over a cell, and the share of the mass it may be.
_LOG_FLAG_ERROR = math.log(1e-14)
_LOG_FLAG_RELATIVE_ERROR = math.log(1e-11)
# The normal tail is below 1e-19 beyond this distance.
_FARTHEST = 9.0


@kernel
def _flag_integral(h: float, p: float, begin: float, end: float) -> float:
    """J, for h >= 0 and p >= 0, over the edge from ``begin`` to ``end``.

    With cosh(u) = 1 / cos(t) the integrand h Q(s) / (s cosh u), s^2 = h^2 + (p cosh u)^2, is
    analytic within pi/2 of the real axis whatever h and p are: panels of length one suffice.
    """
    square = _FARTHEST * _FARTHEST - h * h - p * p
    if square <= 0.0:
        return 0.0
    reach = math.sqrt(square)
    begin, end = max(begin, -reach), min(end, reach)
    if begin >= end:
        return 0.0
    if p == 0.0:
        # All of the angle is at the foot, where s = h.
        if begin < 0.0 < end:
            return 0.25 * math.erfc(h * SQRT_HALF)
        return 0.0
    first, last = math.asinh(begin / p), math.asinh(end / p)
    n_panels = math.ceil(last - first)
    width = (last - first) / n_panels
    total = 0.0
    for panel in range(n_panels):
        for i in range(LONG_NODES.size):
            cosh = math.cosh(first + width * (panel + LONG_NODES[i]))
            s = math.sqrt(h * h + p * p * cosh * cosh)
            total += LONG_WEIGHTS[i] * 0.5 * math.erfc(s * SQRT_HALF) / (s * cosh)
    return h * width * total / (2.0 * math.pi)


@kernel
def flag_polyhedron(
    cells: Any, region: int, center: Floats, first: Floats, second: Floats
) -> float:
    """Integrate N(center, I) over a polyhedron by flags; unnormalized moments about the center."""
    for s in range(3):
        first[s] = 0.0
        for t in range(3):
            second[s, t] = 0.0
    inside = True
    mass = 0.0
    foot, moments, on_facet = np.empty(2), np.empty(5), np.empty(3)
    for f in range(cells.start[region], cells.start[region + 1]):
        plane = cells.planes[f]
        normal = plane[:3]
        h = plane[3] - dot(normal, center)
        if h > 0.0:
            inside = False
        if abs(h) > _FARTHEST:
            continue
        foot[0], foot[1] = dot(plane[4:7], center), dot(plane[7:], center)
        edges = cells.edges[cells.edge_start[f] : cells.edge_start[f + 1]]
        foot_inside = True
        flags = 0.0
        for e in range(len(edges)):
            nx, ny, offset, begin, end = read_edge(edges, e)
            p = offset - nx * foot[0] - ny * foot[1]
            shift = ny * foot[0] - nx * foot[1]
            flag = _flag_integral(abs(h), abs(p), begin - shift, end - shift)
            if p > 0.0:
                foot_inside = False
                flags -= flag
            else:
                flags += flag
        if foot_inside:
            flags -= 0.5 * math.erfc(abs(h) * SQRT_HALF)
        mass += -flags if h > 0.0 else flags

        facet_mass = owen_polygon(edges, foot, moments)
        density = INV_SQRT_2PI * math.exp(-0.5 * h * h)
        for s in range(3):
            on_facet[s] = (
                h * facet_mass * normal[s] + moments[0] * plane[4 + s] + moments[1] * plane[7 + s]
            )
        for s in range(3):
            first[s] += density * facet_mass * normal[s]
            for t in range(3):
                second[s, t] += 0.5 * density * (normal[s] * on_facet[t] + normal[t] * on_facet[s])
    if inside:
        mass += 1.0
    for s in range(3):
        second[s, s] += mass
    return mass


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
    if max(log_tolerance, _LOG_FLAG_RELATIVE_ERROR + log_bound) >= _LOG_FLAG_ERROR:
        mass = flag_polyhedron(cells, region, center, mean, covariance)
        if mass > 0.0:
            log_mass = math.log(mass)
            if max(log_tolerance, _LOG_FLAG_RELATIVE_ERROR + log_mass) >= _LOG_FLAG_ERROR:
                for s in range(3):
                    mean[s] /= mass
                for s in range(3):
                    for t in range(3):
                        covariance[s, t] = covariance[s, t] / mass - mean[s] * mean[t]
                for s in range(3):
                    mean[s] += center[s]
                return log_mass
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
