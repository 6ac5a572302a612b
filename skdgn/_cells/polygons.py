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
    register_whitening,
)
from skdgn._cells.quadrature import (
    FULL_ACCURACY,
    GAUSS_NODES,
    GAUSS_WEIGHTS,
    MOST_NODES,
    nodes_needed,
)
from skdgn._cells.slices import integrate_chords
from skdgn._jit import INV_SQRT_2PI, LOG_SQRT_2PI, SQRT_HALF, kernel, owens_t

# Lines at a smaller angle are parallel: deep layers compute equal lines with different roundings.
SMALLEST_ANGLE = 1e-12

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
# Polygons closer than this are cut into chords from the centre, not from their nearest point.
_NEAR = 1e-3
# The chords are then perpendicular to the bisector of a vertex closer than this.
_NEAR_VERTEX = 1e-2

_INV_2PI = 0.5 / math.pi
_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)


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
        # Copies, to let go of the space that was not needed.
        return Pieces(Polygons(start.copy(), edges.copy()), parents.copy(), positive.copy())

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
def _copy_edges(source: Floats, first: int, last: int, target: Floats, position: int) -> int:
    """Copy some edges (loops compile in a tenth of the time); return the position behind them."""
    for e in range(first, last):
        for k in range(5):
            target[position, k] = source[e, k]
        position += 1
    return position


@kernel
def _take(start: Integers, edges: Floats, indices: Integers) -> tuple[Integers, Floats]:
    new_start = np.zeros(indices.size + 1, dtype=np.intp)
    for i in range(indices.size):
        new_start[i + 1] = new_start[i] + start[indices[i] + 1] - start[indices[i]]
    new_edges = np.empty((new_start[-1], 5))
    for i in range(indices.size):
        r = indices[i]
        _copy_edges(edges, start[r], start[r + 1], new_edges, new_start[i])
    return new_start, new_edges


@kernel
def _edge_middle(begin: float, end: float) -> float:
    """Position between the ends of an edge, either of which may be infinite."""
    if begin > -math.inf and end < math.inf:
        return 0.5 * (begin + end)
    if begin > -math.inf:
        return begin + 1.0 + abs(begin)
    if end < math.inf:
        return end - 1.0 - abs(end)
    return 0.0


@kernel
def interior_point(edges: Floats) -> tuple[float, float]:
    """Average one point of every edge; inside, since no two edges of a cell are collinear."""
    x, y = 0.0, 0.0
    for e in range(len(edges)):
        nx, ny, offset, begin, end = edges[e]
        t = _edge_middle(begin, end)
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
def _edge_root(edge: Floats, gx: float, gy: float, value: float) -> float:
    """Position on an edge where ``g . z + value`` changes its sign, or the end nearest to it."""
    nx, ny, offset, begin, end = edge
    root = -(offset * (gx * nx + gy * ny) + value) / (gx * ny - gy * nx)
    return min(max(root, begin), end)


@kernel
def chord(edges: Floats, gx: float, gy: float, value: float) -> tuple[bool, float, float, int, int]:
    """Part of the line ``g . z + value = 0`` inside a cell, along ``d`` of an edge with normal g.

    The first result tells whether the line cuts the cell in two pieces worth telling apart, the
    last two are the edges at which the chord begins and ends, or -1.

    Where lines are nearly parallel, rounding moves their common point along both of them.  That
    does no harm as long as both have the same point: it is computed once, on the edge.
    """
    px, py = -value * gx, -value * gy
    dx, dy = gy, -gx
    lowest, highest = -math.inf, math.inf
    first, last = -1, -1
    thin = THINNEST_PIECE * (1.0 + abs(value))
    for e in range(len(edges)):
        nx, ny = edges[e, 0], edges[e, 1]
        rate = nx * dx + ny * dy
        distance = nx * px + ny * py - edges[e, 2]
        if abs(rate) < SMALLEST_ANGLE:
            if distance <= thin:
                return False, 0.0, 0.0, -1, -1
        elif rate > 0.0:
            if -distance / rate > lowest:
                lowest, first = -distance / rate, e
        elif -distance / rate < highest:
            highest, last = -distance / rate, e
    if first >= 0:
        lowest = _project(edges[first], _edge_root(edges[first], gx, gy, value), dx, dy)
    if last >= 0:
        highest = _project(edges[last], _edge_root(edges[last], gx, gy, value), dx, dy)
    return longer_than_rounding(lowest, highest, abs(value)), lowest, highest, first, last


@kernel
def _project(edge: Floats, t: float, dx: float, dy: float) -> float:
    """Coordinate along d of the point of an edge at position t."""
    nx, ny, offset = edge[0], edge[1], edge[2]
    return offset * (nx * dx + ny * dy) + t * (ny * dx - nx * dy)


@kernel
def edge_part(
    edge: Floats, is_cut: bool, gx: float, gy: float, value: float
) -> tuple[float, float, float, float]:
    """Parts of an edge where ``g . z + value`` is positive, and where it is negative.

    ``is_cut`` tells whether the chord begins or ends at this edge.
    """
    nx, ny, offset, begin, end = edge
    rate = gx * ny - gy * nx
    if is_cut:
        root = _edge_root(edge, gx, gy, value)
        if rate > 0.0:
            return root, end, begin, root
        return begin, root, root, end
    if offset * (gx * nx + gy * ny) + value + rate * _edge_middle(begin, end) > 0.0:
        return begin, end, 0.0, 0.0
    return 0.0, 0.0, begin, end


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
        crossed, lowest, highest, first, last = False, 0.0, 0.0, -1, -1
        if not constant:
            crossed, lowest, highest, first, last = chord(cell, gx, gy, values[r])
        if crossed:
            for side in (True, False):
                for e in range(len(cell)):
                    parts = edge_part(cell[e], e in (first, last), gx, gy, values[r])
                    begin, end = (parts[0], parts[1]) if side else (parts[2], parts[3])
                    if longer_than_rounding(begin, end, abs(cell[e, 2])):
                        n_edges = _copy_edges(cell, e, e + 1, new_edges, n_edges)
                        new_edges[n_edges - 1, 3] = begin
                        new_edges[n_edges - 1, 4] = end
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
            n_edges = _copy_edges(cell, 0, len(cell), new_edges, n_edges)
            if constant:
                positive[n_new] = values[r] > 0.0
            else:
                x, y = interior_point(cell)
                positive[n_new] = gx * x + gy * y + values[r] > 0.0
            parents[n_new] = r
            n_new += 1
            new_start[n_new] = n_edges
    return new_start[: n_new + 1], new_edges[:n_edges], parents[:n_new], positive[:n_new]


@kernel
def _whiten_edges(
    edges: Floats, first: int, last: int, factor: Floats, target: Floats, position: int
) -> None:
    """Express the edges first to last in coordinates y with ``z = factor @ y``."""
    # The factor may be any invertible matrix [[a, b], [c, d]] of positive determinant.
    a, b, c, d = factor[0, 0], factor[0, 1], factor[1, 0], factor[1, 1]
    determinant = a * d - b * c
    for e in range(first, last):
        nx, ny, offset, begin, end = edges[e]
        mx, my = a * nx + c * ny, b * nx + d * ny
        length = math.sqrt(mx * mx + my * my)
        mx /= length
        my /= length
        # The edge's foot and direction, multiplied by the inverse factor, along (my, -mx).
        foot = offset * ((d * nx - b * ny) * my - (a * ny - c * nx) * mx) / determinant
        stretch = ((d * ny + b * nx) * my + (a * nx + c * ny) * mx) / determinant
        target[position, 0] = mx
        target[position, 1] = my
        target[position, 2] = offset / length
        target[position, 3] = foot + stretch * begin
        target[position, 4] = foot + stretch * end
        position += 1


@kernel
def _whiten(start: Integers, edges: Floats, factors: Floats) -> Floats:
    whitened = np.empty_like(edges)
    for r in range(start.size - 1):
        _whiten_edges(edges, start[r], start[r + 1], factors[r], whitened, start[r])
    return whitened


@kernel
def _make_room(cells: Any) -> Any:
    most_edges = 0
    for r in range(cells.start.size - 1):
        most_edges = max(most_edges, cells.start[r + 1] - cells.start[r])
    return WhitenedPolygons(
        np.zeros(2, dtype=np.intp), np.empty((most_edges, 5)), np.empty((1, 2, 2))
    )


@kernel
def _whiten_polygon(cells: Any, region: int, factor: Floats, room: Any) -> None:
    first, last = cells.start[region], cells.start[region + 1]
    _whiten_edges(cells.edges, first, last, factor, room.edges, 0)
    room.start[1] = last - first
    for s in range(2):
        for t in range(2):
            room.factors[0, s, t] = factor[s, t]


register_whitening(WhitenedPolygons, _make_room, _whiten_polygon)


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
        Distance of the edge's line, positive if the centre is outside.
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
    taken out.  Few edges come so close to the centre that Owen's T function is needed: elsewhere a
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
    # The pole of the first integrand is at t = i c, as far from the ends as the centre is.
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
        nearest = math.sqrt(c * c + min(max(0.0, start), stop) ** 2)
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
        Distance of the polygon from the centre.
    accuracy : float
        -log of the absolute error wanted.

    Returns
    -------
    mass, error : float
        The mass and its rounding error.
    y0, y1, y00, y01, y11 : float
        Unnormalised moments about the centre.

    All results have the factor exp(-rho^2/2) / (2 pi) taken out.

    Notes
    -----
    With ``c`` the distance of an edge's line (positive if the centre is outside) and ``[a, b]`` its
    interval from the foot of the perpendicular, ``f0 = phi(c) (Phi(b) - Phi(a))`` and
    ``f1 = phi(c) (phi(a) - phi(b))``,

        mass = 1[centre inside] - sum sign(-c) (T(|c|, b/|c|) - T(|c|, a/|c|))
        int y phi = sum f0 n,    int y y' phi = mass I + sum sym((f0 c n + f1 d) n').
    """
    inside = rho == 0.0
    mass, y0, y1, y00, y01, y11 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    error = 0.0
    square = rho * rho
    for e in range(len(edges)):
        nx, ny, offset, begin, end = edges[e]
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
def owen_polygon(edges: Floats, center: Floats, moments: Floats) -> float:
    """Integrate N(center, I) over a polygon to full absolute accuracy.

    Fills the unnormalised moments (y0, y1, y0 y0, y0 y1, y1 y1) about the centre and returns the
    mass.
    """
    mass, _, y0, y1, y00, y01, y11 = boundary_sums(edges, center, 0.0, FULL_ACCURACY)
    moments[0], moments[1] = _INV_2PI * y0, _INV_2PI * y1
    moments[2], moments[3], moments[4] = _INV_2PI * y00, _INV_2PI * y01, _INV_2PI * y11
    return _INV_2PI * mass


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
def _sort(values: Floats) -> None:
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
    breaks = breaks[:n_breaks]
    _sort(breaks)
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
