"""The Gaussian integral and its moments over a convex polygon, as sums over its edges.

By the divergence theorem, each edge contributes a few integrals along itself: the angle under which
it is seen, weighted by the density, and the moments of the density on it.  The sums alternate, so
their rounding error is kept track of; where it is too large, the polygon is cut into chords instead
(see `slices`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skdgn._geometry.interface import LOG_NEGLIGIBLE_SHARE, register_integral
from skdgn._geometry.polygons.cells import WhitenedPolygons, read_edge
from skdgn._geometry.polygons.slices import integrate_chords
from skdgn._geometry.quadrature import (
    FULL_ACCURACY,
    GAUSS_NODES,
    GAUSS_WEIGHTS,
    MOST_NODES,
    nodes_needed,
)
from skdgn._runtime import INV_SQRT_2PI, LOG_SQRT_2PI, SQRT_HALF, Floats, kernel, owens_t

# Relative rounding error of an integral along an edge.
_ROUNDING = 4e-16
# Error of the angle under which an edge is seen, times the distance of its nearer end.
_ANGLE_ERROR = 1e-16
# Absolute error of the difference of two of Owen's T functions, times 2 pi.
_OWEN_ERROR = 2e-15
# Owen's T and the normal tail are below 1e-19 beyond this distance.
_FARTHEST = 9.0
# Square of the distance up to which Owen's T, of absolute accuracy, is accurate relative to the
# density there.
_NEAR_SQUARE = 4.0
# A sum over edges is trusted if its error is below this share of the result, or below what the
# caller allows; beyond the distance given, the moments never are.
_RELATIVE_ERROR = 1e-12
_FARTHEST_SUM = 12.0
# Each integral along an edge is this much more accurate (-log) than the sum is asked to be.
_ACCURACY_MARGIN = 2.0
_MOST_PANELS = 64
# Polygons closer than this are cut into chords from the center, not from their nearest point.
_NEAR = 1e-3
# The chords are then perpendicular to the bisector of a vertex closer than this.
_NEAR_VERTEX = 1e-2

_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)


@kernel
def _owen_difference(c: float, begin: float, end: float) -> float:
    """T(|c|, end / |c|) - T(|c|, begin / |c|)."""
    h = abs(c)
    if h > _FARTHEST:
        return 0.0
    limit = 0.0
    if begin < -_FARTHEST or end > _FARTHEST:
        limit = 0.25 * math.erfc(h * SQRT_HALF)
    at_end = limit
    if end < -_FARTHEST:
        at_end = -limit
    elif end <= _FARTHEST:
        at_end = math.copysign(0.25, end) if h == 0.0 else owens_t(h, end / h)
    at_begin = -limit
    if begin > _FARTHEST:
        at_begin = limit
    elif begin >= -_FARTHEST:
        at_begin = math.copysign(0.25, begin) if h == 0.0 else owens_t(h, begin / h)
    return at_end - at_begin


@kernel
def _edge_integrals(
    c: float, begin: float, end: float, square: float, accuracy: float
) -> tuple[float, float, float, float]:
    """Integrate c / (c^2 + t^2), 1 and t times exp((square - c^2 - t^2) / 2) along an edge.

    Parameters
    ----------
    c : float
        Distance of the edge's line, positive if the center is outside.
    begin, end : float
        The edge's interval, from the foot of the perpendicular; may be infinite.
    square : float
        Square of the distance whose density is taken out of all terms.
    accuracy : float
        -log of the absolute error wanted.

    Returns
    -------
    angle, zeroth, first : float
    error : float
        Rounding error of ``angle``.

    Notes
    -----
    The first integral is 2 pi sign(c) (T(|c|, end/|c|) - T(|c|, begin/|c|)) but for the factor
    taken out.  Few edges come so close to the center that Owen's T function is needed: elsewhere a
    Gauss rule gives all three at once, with a *relative* error.
    """
    reach = square - c * c + 2.0 * accuracy
    if reach <= 0.0:
        return 0.0, 0.0, 0.0, 0.0
    reach = math.sqrt(reach)
    start, stop = max(begin, -reach), min(end, reach)
    if start >= stop:
        return 0.0, 0.0, 0.0, 0.0
    width = stop - start
    start_distance = math.sqrt(c * c + start * start)
    stop_distance = math.sqrt(c * c + stop * stop)
    error = _ANGLE_ERROR / min(start_distance, stop_distance)
    # The pole of the first integrand is at t = i c, as far from the ends as the center is.
    pole = 0.5 * (start_distance + stop_distance)
    n_nodes = nodes_needed(0.5 * abs(start + stop), 0.5 * width, pole, accuracy)
    n_panels = 1
    if n_nodes > MOST_NODES:
        if square <= _NEAR_SQUARE:
            scale = math.exp(0.5 * square)
            angle = 2.0 * math.pi * scale * _owen_difference(c, begin, end)
            if c <= 0.0:
                angle = -angle
            density = scale * math.exp(-0.5 * c * c)
            zeroth = math.erf(end * SQRT_HALF) - math.erf(begin * SQRT_HALF)
            first = math.exp(-0.5 * begin * begin) - math.exp(-0.5 * end * end)
            error += _OWEN_ERROR * scale
            return angle, _SQRT_HALF_PI * density * zeroth, density * first, error
        along = min(max(0.0, start), stop)
        nearest = math.sqrt(c * c + along * along)
        farthest = max(abs(start), abs(stop))
        while n_nodes > MOST_NODES and n_panels < _MOST_PANELS:
            n_panels *= 2
            width *= 0.5
            n_nodes = nodes_needed(farthest, 0.5 * width, nearest, accuracy)
        n_nodes = min(n_nodes, MOST_NODES)
    angle, zeroth, first = 0.0, 0.0, 0.0
    square -= c * c
    for panel in range(n_panels):
        for i in range(n_nodes):
            t = start + width * (panel + GAUSS_NODES[n_nodes, i])
            tt = t * t
            weight = GAUSS_WEIGHTS[n_nodes, i] * math.exp(0.5 * (square - tt))
            zeroth += weight
            first += weight * t
            angle += weight / (c * c + tt)
    angle *= width * c
    return angle, width * zeroth, width * first, error + _ROUNDING * abs(angle)


@kernel
def boundary_sums(
    edges: Floats, center: Floats, rho: float, accuracy: float
) -> tuple[float, float, float, float, float, float, float]:
    """Integrate N(center, I) over a polygon by the divergence theorem, as sums over its edges.

    Parameters
    ----------
    edges : ndarray of shape (k, 5)
    center : ndarray of shape (2,)
    rho : float
        Distance of the polygon from the center.
    accuracy : float
        -log of the absolute error wanted.

    Returns
    -------
    mass, error : float
        The mass and its rounding error.
    y0, y1, y00, y01, y11 : float
        Unnormalized moments about the center.

    All results have the factor exp(-rho^2/2) / (2 pi) taken out.

    Notes
    -----
    With ``c`` the distance of an edge's line (positive if the center is outside) and ``[a, b]`` its
    interval from the foot of the perpendicular, ``f0 = phi(c) (Phi(b) - Phi(a))`` and
    ``f1 = phi(c) (phi(a) - phi(b))``,

        mass = 1[center inside] - sum sign(-c) (T(|c|, b/|c|) - T(|c|, a/|c|))
        int y phi = sum f0 n,    int y y' phi = mass I + sum sym((f0 c n + f1 d) n').
    """
    inside = rho == 0.0
    mass, y0, y1, y00, y01, y11 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    error = 0.0
    square = rho * rho
    for e in range(len(edges)):
        nx, ny, offset, begin, end = read_edge(edges, e)
        c = offset - nx * center[0] - ny * center[1]
        if c > 0.0:
            inside = False
        shift = ny * center[0] - nx * center[1]
        angle, f0, f1, edge_error = _edge_integrals(c, begin - shift, end - shift, square, accuracy)
        mass += angle
        error += edge_error
        y0 += f0 * nx
        y1 += f0 * ny
        # Direction d = (ny, -nx).
        y00 += (f0 * c * nx + f1 * ny) * nx
        y11 += (f0 * c * ny - f1 * nx) * ny
        y01 += f0 * c * nx * ny + 0.5 * f1 * (ny * ny - nx * nx)
    if inside:
        mass += 2.0 * math.pi
        error += 2.0 * math.pi * _ROUNDING
    # An exponent of this size has so many digits fewer.
    error *= 1.0 + 0.5 * square
    return mass, error, y0, y1, mass + y00, y01, mass + y11


@kernel
def nearest_point(edges: Floats, center: Floats) -> tuple[float, float, float]:
    """Point of the cell that is nearest to the center, and its distance (0 if inside)."""
    best, x, y = math.inf, center[0], center[1]
    for e in range(len(edges)):
        nx, ny, offset, begin, end = read_edge(edges, e)
        c = offset - nx * center[0] - ny * center[1]
        if c > 0.0:
            foot = ny * center[0] - nx * center[1]
            t = min(max(foot, begin), end)
            distance = c * c + (t - foot) * (t - foot)
            if distance < best:
                best = distance
                x, y = offset * nx + t * ny, offset * ny - t * nx
    if best == math.inf:
        best = 0.0
    return math.sqrt(best), x, y


@kernel
def sort(values: Floats) -> None:
    """Sort few values in place (NumPy's sort takes seconds to compile)."""
    for i in range(1, values.size):
        value = values[i]
        k = i
        while k > 0 and values[k - 1] > value:
            values[k] = values[k - 1]
            k -= 1
        values[k] = value


@kernel
def sliced_polygon(
    edges: Floats,
    center: Floats,
    nearest: tuple[float, float, float],
    log_tolerance: float,
    mean: Floats,
    covariance: Floats,
) -> float:
    """Integrate N(center, I) over a polygon by chords: slower, accurate for any mass.

    Fills mean and covariance of the truncated Gaussian, in the polygon's own coordinates, and
    returns the log mass.
    """
    rho, px, py = nearest
    ux, uy = 1.0, 0.0
    if rho < _NEAR:
        # Too short a ray has no direction; seen from the center itself nothing is lost.
        # Along the bisector of a vertex close by, chords grow evenly to both sides.
        rho, px, py = 0.0, center[0], center[1]
        vx, vy = 0.0, 0.0
        for e in range(len(edges)):
            if abs(edges[e, 2] - edges[e, 0] * px - edges[e, 1] * py) < _NEAR_VERTEX:
                vx += edges[e, 0]
                vy += edges[e, 1]
        length = math.sqrt(vx * vx + vy * vy)
        if length > 0.1:
            ux, uy = vx / length, vy / length
    else:
        ux, uy = (px - center[0]) / rho, (py - center[1]) / rho
    n_edges = len(edges)
    along, across, gaps = np.empty(n_edges), np.empty(n_edges), np.empty(n_edges)
    breaks = np.empty(5 * n_edges)
    n_breaks = 0
    for e in range(n_edges):
        nx, ny, offset, begin, end = read_edge(edges, e)
        along[e] = nx * ux + ny * uy
        across[e] = ny * ux - nx * uy
        gaps[e] = nx * px + ny * py - offset
        if rho > 0.0:
            gaps[e] = max(0.0, gaps[e])
        if abs(along[e]) > 0.5:
            # A steep edge crosses all that counts of the chords between these positions.
            for q in (-_FARTHEST, 0.0, _FARTHEST):
                breaks[n_breaks] = -(gaps[e] + q * across[e]) / along[e]
                n_breaks += 1
        for t in (begin, end):
            if abs(t) < math.inf:
                breaks[n_breaks] = ux * (offset * nx + t * ny - px) + uy * (
                    offset * ny - t * nx - py
                )
                n_breaks += 1
    breaks = breaks[:n_breaks]
    sort(breaks)
    moments = np.empty(5)
    log_scale = -0.5 * rho * rho - 2.0 * LOG_SQRT_2PI
    tolerance = math.exp(min(0.0, log_tolerance - log_scale))
    mass = integrate_chords(along, across, gaps, breaks, rho, tolerance, moments)
    # q runs along (-uy, ux).
    s, q, ss, sq, qq = moments[0], moments[1], moments[2], moments[3], moments[4]
    mean[0] = px + s * ux - q * uy
    mean[1] = py + s * uy + q * ux
    covariance[0, 0] = ss * ux * ux - 2.0 * sq * ux * uy + qq * uy * uy
    covariance[1, 1] = ss * uy * uy + 2.0 * sq * ux * uy + qq * ux * ux
    covariance[0, 1] = (ss - qq) * ux * uy + sq * (ux * ux - uy * uy)
    covariance[1, 0] = covariance[0, 1]
    if mass == 0.0:
        return -math.inf
    return math.log(mass) + log_scale


@kernel
def polygon_moments(
    edges: Floats, center: Floats, log_tolerance: float, mean: Floats, covariance: Floats
) -> float:
    """Log mass, mean and covariance of N(center, I) on a polygon, by the cheapest sound formula."""
    nearest = nearest_point(edges, center)
    # The cell lies behind the line through its nearest point, perpendicular to the ray there.
    rho = nearest[0]
    log_bound = -0.5 * rho * rho - math.log(max(2.0, rho / INV_SQRT_2PI))
    if log_bound <= log_tolerance + LOG_NEGLIGIBLE_SHARE:
        mean[0], mean[1] = center[0], center[1]
        covariance[0, 0], covariance[0, 1] = 0.0, 0.0
        covariance[1, 0], covariance[1, 1] = 0.0, 0.0
        return -math.inf
    if rho < _FARTHEST_SUM:
        log_scale = -0.5 * rho * rho - 2.0 * LOG_SQRT_2PI
        log_error = log_tolerance - log_scale
        accuracy = min(_ACCURACY_MARGIN - log_error, FULL_ACCURACY)
        mass, error, y0, y1, y00, y01, y11 = boundary_sums(edges, center, rho, accuracy)
        if mass > 0.0:
            x, y = y0 / mass, y1 / mass
            xx, yy = y00 / mass - x * x, y11 / mass - y * y
            # Moments lose more digits than the mass: they are differences of squared distances.
            relative_error = error / mass * (1.0 + rho * rho) / (xx + yy)
            if error <= math.exp(log_error) or 0.0 < relative_error < _RELATIVE_ERROR:
                mean[0], mean[1] = center[0] + x, center[1] + y
                covariance[0, 0], covariance[1, 1] = xx, yy
                covariance[0, 1] = y01 / mass - x * y
                covariance[1, 0] = covariance[0, 1]
                return math.log(mass) + log_scale
    return sliced_polygon(edges, center, nearest, log_tolerance, mean, covariance)


@kernel
def _integrate_polygon(
    cells: Any,
    region: int,
    center: Floats,
    log_tolerance: float,
    mean: Floats,
    covariance: Floats,
) -> float:
    edges = cells.edges[cells.start[region] : cells.start[region + 1]]
    log_mass = polygon_moments(edges, center, log_tolerance, mean, covariance)
    a, b = cells.factors[region, 0, 0], cells.factors[region, 0, 1]
    c, d = cells.factors[region, 1, 0], cells.factors[region, 1, 1]
    x, y = mean[0], mean[1]
    mean[0] = a * x + b * y
    mean[1] = c * x + d * y
    xx, xy, yy = covariance[0, 0], covariance[0, 1], covariance[1, 1]
    covariance[0, 0] = a * a * xx + 2.0 * a * b * xy + b * b * yy
    covariance[0, 1] = a * c * xx + (a * d + b * c) * xy + b * d * yy
    covariance[1, 0] = covariance[0, 1]
    covariance[1, 1] = c * c * xx + 2.0 * c * d * xy + d * d * yy
    return log_mass


register_integral(WhitenedPolygons, _integrate_polygon)
