"""Cells of a two-dimensional latent space: convex polygons as lists of edges.

An edge has an inward unit normal ``n``, an offset (the edge lies on ``n . z = offset``) and an
interval ``[begin, end]`` along its direction ``d``, counter-clockwise around the cell, measured
from the foot of the perpendicular from the origin.  Ends may be infinite: a half-plane is one
edge without ends, a strip is two, the plane none; no vertex is needed anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skdgn._cells._interface import (
    LOG_NEGLIGIBLE_SHARE,
    THINNEST_PIECE,
    Bools,
    Corners,
    Facets,
    Floats,
    Integers,
    Pieces,
    register_integral,
)
from skdgn._cells.slices import integrate_chords
from skdgn._jit import INV_SQRT_2PI, LOG_SQRT_2PI, SQRT_HALF, kernel, owens_t

# Lines at a smaller angle are parallel: deep layers compute equal lines with different roundings.
SMALLEST_ANGLE = 1e-12

# Absolute error of the sum of Owen's T functions over the edges of a cell.
_LOG_OWEN_ERROR = math.log(2e-15)
# The sum is trusted if its error is below this share of the mass, or below what the caller allows.
_LOG_OWEN_RELATIVE_ERROR = math.log(1e-12)
# Seen from this close, a vertex's angles are off by 1e-16 over the distance.
_NEAR_VERTEX = 1e-2
# Polygons closer than this are integrated from the centre, not from their nearest point.
_NEAR = 1e-3
# Owen's T and the normal tail are below 1e-19 beyond this distance.
_FARTHEST = 9.0


class WhitenedPolygons(NamedTuple):
    """Polygons in coordinates in which each region's conditional covariance is the identity."""

    start: Integers  # (R + 1,)
    edges: Floats  # (E, 5): normal (2), offset, begin, end
    factors: Floats  # (R, 2, 2)


@dataclass(frozen=True)
class Polygons:
    """Convex polygons; the edges of cell r are ``start[r]:start[r + 1]``."""

    start: Integers
    edges: Floats  # (E, 5): normal (2), offset, begin, end

    @classmethod
    def whole_space(cls, n_dimensions: int) -> Polygons:
        """Return one cell: the whole plane."""
        if n_dimensions != 2:
            raise ValueError(f"polygons need two latent dimensions, got {n_dimensions}.")
        return cls(np.zeros(2, dtype=np.intp), np.empty((0, 5)))

    def __len__(self) -> int:
        return len(self.start) - 1

    def take(self, indices: Integers) -> Polygons:
        """Return the cells with these indices."""
        return Polygons(*_take(self.start, self.edges, np.asarray(indices, dtype=np.intp)))

    def split(self, gradients: Floats, values: Floats) -> Pieces:
        """Cut cell r by the line ``gradients[r] @ z + values[r] = 0``."""
        start, edges, parents, positive = _split(self.start, self.edges, gradients, values)
        return Pieces(Polygons(start, edges), parents, positive)

    def facets(self) -> Facets:
        """List the edges' lines."""
        return Facets(self.start, self.edges[:, :2], self.edges[:, 2])

    def corners(self) -> Corners:
        """List the vertices of every bounded polygon: where its edges begin."""
        owner = np.repeat(np.arange(len(self)), np.diff(self.start))
        unbounded = ~np.isfinite(self.edges[:, 3:]).all(axis=1)
        bounded = np.diff(self.start) > 0
        bounded[owner[unbounded]] = False
        edges = self.edges[bounded[owner]]
        start = np.concatenate([[0], np.cumsum(np.where(bounded, np.diff(self.start), 0))])
        directions = np.stack([edges[:, 1], -edges[:, 0]], axis=1)
        return Corners(start, edges[:, 2:3] * edges[:, :2] + edges[:, 3:4] * directions)

    def interior_points(self) -> Floats:
        """Return a point inside every polygon."""
        return _interior_points(self.start, self.edges)

    def whiten(self, factors: Floats) -> WhitenedPolygons:
        """Express cell r in coordinates y with ``z = factors[r] @ y`` (positive determinant)."""
        factors = np.ascontiguousarray(factors)
        return WhitenedPolygons(self.start, _whiten(self.start, self.edges, factors), factors)


@kernel
def _take(start: Integers, edges: Floats, indices: Integers) -> tuple[Integers, Floats]:
    sizes = start[indices + 1] - start[indices]
    new_start = np.zeros(indices.size + 1, dtype=np.intp)
    new_start[1:] = np.cumsum(sizes)
    new_edges = np.empty((new_start[-1], 5))
    for i in range(indices.size):
        r = indices[i]
        new_edges[new_start[i] : new_start[i + 1]] = edges[start[r] : start[r + 1]]
    return new_start, new_edges


@kernel
def interior_point(edges: Floats) -> tuple[float, float]:
    """Average one point of every edge; inside, since no two edges of a cell are collinear."""
    x, y = 0.0, 0.0
    for e in range(len(edges)):
        nx, ny, offset, begin, end = edges[e]
        if begin > -math.inf and end < math.inf:
            t = 0.5 * (begin + end)
        elif begin > -math.inf:
            t = begin + 1.0 + abs(begin)
        elif end < math.inf:
            t = end - 1.0 - abs(end)
        else:
            t = 0.0
        x += offset * nx + t * ny
        y += offset * ny - t * nx
    if len(edges) == 0:
        return 0.0, 0.0
    if len(edges) == 1:
        step = 1.0 + abs(edges[0, 2])
        return x + step * edges[0, 0], y + step * edges[0, 1]
    return x / len(edges), y / len(edges)


@kernel
def _interior_points(start: Integers, edges: Floats) -> Floats:
    points = np.empty((start.size - 1, 2))
    for r in range(start.size - 1):
        points[r, 0], points[r, 1] = interior_point(edges[start[r] : start[r + 1]])
    return points


@kernel
def longer_than_rounding(begin: float, end: float, distance: float) -> bool:
    """Tell whether part of a line, at this distance, is longer than the rounding of its ends."""
    if math.isinf(begin) or math.isinf(end):
        return begin < end
    return end - begin > THINNEST_PIECE * (1.0 + distance + min(abs(begin), abs(end)))


@kernel
def chord(edges: Floats, gx: float, gy: float, value: float) -> tuple[bool, float, float]:
    """Part of the line ``g . z + value = 0`` inside a cell, along ``d`` of an edge with normal g.

    The first result tells whether the line cuts the cell in two pieces worth telling apart.
    """
    px, py = -value * gx, -value * gy
    dx, dy = gy, -gx
    lowest, highest = -math.inf, math.inf
    thin = THINNEST_PIECE * (1.0 + abs(value))
    for e in range(len(edges)):
        nx, ny = edges[e, 0], edges[e, 1]
        rate = nx * dx + ny * dy
        distance = nx * px + ny * py - edges[e, 2]
        if abs(rate) < SMALLEST_ANGLE:
            if distance <= thin:
                return False, 0.0, 0.0
        elif rate > 0.0:
            lowest = max(lowest, -distance / rate)
        else:
            highest = min(highest, -distance / rate)
    return longer_than_rounding(lowest, highest, abs(value)), lowest, highest


@kernel
def edge_part(
    edge: Floats, gx: float, gy: float, value: float
) -> tuple[float, float, float, float]:
    """Parts of an edge where ``g . z + value`` is positive, and where it is negative."""
    nx, ny, offset, begin, end = edge
    rate = gx * ny - gy * nx
    at_foot = offset * (gx * nx + gy * ny) + value
    if abs(rate) < SMALLEST_ANGLE:
        if at_foot > 0.0:
            return begin, end, 0.0, 0.0
        return 0.0, 0.0, begin, end
    root = min(max(-at_foot / rate, begin), end)
    if rate > 0.0:
        return root, end, begin, root
    return begin, root, root, end


@kernel
def _split(
    start: Integers, edges: Floats, gradients: Floats, values: Floats
) -> tuple[Integers, Floats, Integers, Bools]:
    n_cells = start.size - 1
    most_cells = 2 * n_cells
    new_start = np.zeros(most_cells + 1, dtype=np.intp)
    new_edges = np.empty((2 * len(edges) + 2 * n_cells, 5))
    parents = np.empty(most_cells, dtype=np.intp)
    positive = np.empty(most_cells, dtype=np.bool_)
    n_new, n_edges = 0, 0
    for r in range(n_cells):
        cell = edges[start[r] : start[r + 1]]
        gx, gy = gradients[r]
        constant = gx == 0.0 and gy == 0.0
        crossed, lowest, highest = False, 0.0, 0.0
        if not constant:
            crossed, lowest, highest = chord(cell, gx, gy, values[r])
        if crossed:
            for side in (True, False):
                for e in range(len(cell)):
                    parts = edge_part(cell[e], gx, gy, values[r])
                    begin, end = (parts[0], parts[1]) if side else (parts[2], parts[3])
                    if longer_than_rounding(begin, end, abs(cell[e, 2])):
                        new_edges[n_edges, :3] = cell[e, :3]
                        new_edges[n_edges, 3] = begin
                        new_edges[n_edges, 4] = end
                        n_edges += 1
                sign = 1.0 if side else -1.0
                new_edges[n_edges, 0] = sign * gx
                new_edges[n_edges, 1] = sign * gy
                new_edges[n_edges, 2] = -sign * values[r]
                new_edges[n_edges, 3] = lowest if side else -highest
                new_edges[n_edges, 4] = highest if side else -lowest
                n_edges += 1
                parents[n_new] = r
                positive[n_new] = side
                n_new += 1
                new_start[n_new] = n_edges
        else:
            new_edges[n_edges : n_edges + len(cell)] = cell
            n_edges += len(cell)
            if constant:
                positive[n_new] = values[r] > 0.0
            else:
                x, y = interior_point(cell)
                positive[n_new] = gx * x + gy * y + values[r] > 0.0
            parents[n_new] = r
            n_new += 1
            new_start[n_new] = n_edges
    return (
        new_start[: n_new + 1].copy(),
        new_edges[:n_edges].copy(),
        parents[:n_new].copy(),
        positive[:n_new].copy(),
    )


@kernel
def _whiten(start: Integers, edges: Floats, factors: Floats) -> Floats:
    whitened = np.empty_like(edges)
    for r in range(start.size - 1):
        # The factor may be any invertible matrix [[a, b], [c, d]] of positive determinant.
        a, b, c, d = factors[r, 0, 0], factors[r, 0, 1], factors[r, 1, 0], factors[r, 1, 1]
        determinant = a * d - b * c
        for e in range(start[r], start[r + 1]):
            nx, ny, offset, begin, end = edges[e]
            mx, my = a * nx + c * ny, b * nx + d * ny
            length = math.sqrt(mx * mx + my * my)
            mx /= length
            my /= length
            # The edge's foot and direction, multiplied by the inverse factor, along (my, -mx).
            foot = offset * ((d * nx - b * ny) * my - (a * ny - c * nx) * mx) / determinant
            stretch = ((d * ny + b * nx) * my + (a * nx + c * ny) * mx) / determinant
            whitened[e, 0] = mx
            whitened[e, 1] = my
            whitened[e, 2] = offset / length
            whitened[e, 3] = foot + stretch * begin
            whitened[e, 4] = foot + stretch * end
    return whitened


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
def owen_polygon(edges: Floats, center: Floats, moments: Floats) -> float:
    """Integrate N(center, I) over a polygon by Owen's T function and the divergence theorem.

    With ``c`` the distance of an edge's line (positive if the centre is outside) and ``[a, b]`` its
    interval from the foot of the perpendicular, ``f0 = phi(c) (Phi(b) - Phi(a))`` and
    ``f1 = phi(c) (phi(a) - phi(b))``,

        mass = 1[centre inside] - sum sign(-c) (T(|c|, b/|c|) - T(|c|, a/|c|))
        int y phi = sum f0 n,    int y y' phi = mass I + sum sym((f0 c n + f1 d) n').

    Fills the unnormalised moments (y0, y1, y0 y0, y0 y1, y1 y1) about the centre and returns the
    mass.
    """
    inside = True
    mass, y0, y1, y00, y01, y11 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for e in range(len(edges)):
        nx, ny, offset, begin, end = edges[e]
        c = offset - nx * center[0] - ny * center[1]
        shift = ny * center[0] - nx * center[1]
        a, b = begin - shift, end - shift
        if c > 0.0:
            inside = False
            mass += _owen_difference(c, a, b)
        else:
            mass -= _owen_difference(c, a, b)
        if abs(c) > _FARTHEST:
            continue
        density = INV_SQRT_2PI * math.exp(-0.5 * c * c)
        f0 = density * 0.5 * (math.erf(b * SQRT_HALF) - math.erf(a * SQRT_HALF))
        f1 = density * INV_SQRT_2PI * (math.exp(-0.5 * a * a) - math.exp(-0.5 * b * b))
        y0 += f0 * nx
        y1 += f0 * ny
        # Direction d = (ny, -nx).
        y00 += (f0 * c * nx + f1 * ny) * nx
        y11 += (f0 * c * ny - f1 * nx) * ny
        y01 += f0 * c * nx * ny + 0.5 * f1 * (ny * ny - nx * nx)
    if inside:
        mass += 1.0
    moments[0] = y0
    moments[1] = y1
    moments[2] = mass + y00
    moments[3] = y01
    moments[4] = mass + y11
    return mass


@kernel
def near_vertex(edges: Floats, center: Floats) -> bool:
    """Tell whether the centre is so close to a vertex that its angles are lost to rounding."""
    for e in range(len(edges)):
        nx, ny, offset, begin, end = edges[e]
        c = offset - nx * center[0] - ny * center[1]
        if abs(c) < _NEAR_VERTEX:
            shift = ny * center[0] - nx * center[1]
            if min(abs(begin - shift), abs(end - shift)) < _NEAR_VERTEX:
                return True
    return False


@kernel
def nearest_point(edges: Floats, center: Floats) -> tuple[float, float, float]:
    """Point of the cell that is nearest to the centre, and its distance (0 if inside)."""
    best, x, y = math.inf, center[0], center[1]
    for e in range(len(edges)):
        nx, ny, offset, begin, end = edges[e]
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
        # Too short a ray has no direction; seen from the centre itself nothing is lost.
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
        nx, ny, offset, begin, end = edges[e]
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
    breaks = np.sort(breaks[:n_breaks])
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
        mean[:] = center
        covariance[:] = 0.0
        return -math.inf
    trusted = max(log_tolerance, _LOG_OWEN_RELATIVE_ERROR + log_bound) >= _LOG_OWEN_ERROR
    if trusted and not near_vertex(edges, center):
        moments = np.empty(5)
        mass = owen_polygon(edges, center, moments)
        if mass > 0.0:
            log_mass = math.log(mass)
            if max(log_tolerance, _LOG_OWEN_RELATIVE_ERROR + log_mass) >= _LOG_OWEN_ERROR:
                x, y = moments[0] / mass, moments[1] / mass
                mean[0] = center[0] + x
                mean[1] = center[1] + y
                covariance[0, 0] = moments[2] / mass - x * x
                covariance[0, 1] = moments[3] / mass - x * y
                covariance[1, 0] = covariance[0, 1]
                covariance[1, 1] = moments[4] / mass - y * y
                return log_mass
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
