"""The Gaussian integral over a convex polyhedron as a sum of positive terms.

The polyhedron is cut into polygons perpendicular to the ray from the Gaussian's center to its
nearest point, as `slices` cuts a polygon into chords: slow, and accurate however small the mass.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skdgn._geometry.polygons import (
    copy_run,
    cut_polygon,
    negated,
    polygon_moments,
    read_edge,
    sort,
)
from skdgn._geometry.polyhedra.facet_polygons import fill_frame
from skdgn._geometry.polyhedra.nodes import dot
from skdgn._geometry.quadrature import (
    KRONROD_GAUSS_WEIGHTS,
    KRONROD_NODES,
    KRONROD_RANGE,
    KRONROD_WEIGHTS,
)
from skdgn._runtime import LOG_SQRT_2PI, Floats, kernel

# Polyhedra closer than this are integrated from the center, not from their nearest point.
_NEAR = 1e-3
# The normal tail is below 1e-19 beyond this distance.
_FARTHEST = 9.0
# As in `slices`, but the sections are only good to 1e-12 themselves.
_PANEL_TOLERANCE = 1e-11
_MOST_HALVINGS = 30
_MOST_PANELS = 60
_NEGLIGIBLE_SHARE = 1e-16
# Breaks closer than this are one, or closer than the center's own rounding.  That moves the mass at
# distance rho, too: no more digits are asked of it than are there.
_CLOSEST_BREAKS = 1e-12
_ROUNDING = 4e-16
# Rounding errors of the components of a facet's normal.
_PARALLEL = 2e-15
# From here on, sections may be too small to be told from rounding.
_FARTHEST_SECTIONS = 1e7


@kernel
def _section(
    along: Floats,
    across: Floats,
    gaps: Floats,
    s: float,
    work: Floats,
    node_values: Floats,
    mean: Floats,
    covariance: Floats,
) -> float:
    """Log mass and moments of the section ``gaps + along s + across q >= 0`` at ``s``."""
    n_edges = 0
    polygon, spare = work[: gaps.size + 1], work[gaps.size + 1 :]
    for k in range(gaps.size):
        reach = gaps[k] + along[k] * s
        length = math.sqrt(across[k, 0] * across[k, 0] + across[k, 1] * across[k, 1])
        if length < 1e-14:
            if reach < 0.0:
                return -math.inf
            continue
        gx, gy, value = across[k, 0] / length, across[k, 1] / length, reach / length
        for e in range(n_edges):
            # Lines that are parallel but for rounding must not meet anywhere: if a prism is cut
            # along its edges, all lines are.
            if abs(gx * polygon[e, 1] - gy * polygon[e, 0]) * length <= _PARALLEL:
                sign = math.copysign(1.0, gx * polygon[e, 0] + gy * polygon[e, 1])
                gx, gy = sign * polygon[e, 0], sign * polygon[e, 1]
        n_run, first, _, rise, fall, lowest, highest = cut_polygon(
            polygon[:n_edges], gx, gy, value, 0.0, node_values
        )
        if n_run == -1:
            return -math.inf
        if n_run >= 0:
            n_edges = copy_run(polygon[:n_edges], first, n_run, rise, fall, spare, 0)
            spare[n_edges, 0], spare[n_edges, 1], spare[n_edges, 2] = gx, gy, -value
            spare[n_edges, 3], spare[n_edges, 4] = lowest, highest
            n_edges += 1
            polygon, spare = spare, polygon
    origin = np.zeros(2)
    return polygon_moments(polygon[:n_edges], origin, -math.inf, mean, covariance)


@kernel
def _panel(
    along: Floats,
    across: Floats,
    gaps: Floats,
    rho: float,
    start: float,
    stop: float,
    work: Floats,
    node_values: Floats,
    sums: Floats,
) -> float:
    """Integrate 1 and the moments over the sections between two positions; return the error.

    ``sums[i, j]`` belongs to the product of coordinates i and j of (1, s, q, q').
    """
    mean, covariance = np.empty(2), np.empty((2, 2))
    coordinates = np.empty(4)
    coordinates[0] = 1.0
    for a in range(4):
        for b in range(4):
            sums[a, b] = 0.0
    gauss = 0.0
    width = stop - start
    for i in range(KRONROD_NODES.size):
        s = start + width * KRONROD_NODES[i]
        log_mass = _section(along, across, gaps, s, work, node_values, mean, covariance)
        if log_mass == -math.inf:
            continue
        weight = width * math.exp(log_mass - s * (rho + 0.5 * s))
        gauss += KRONROD_GAUSS_WEIGHTS[i] * weight
        weight *= KRONROD_WEIGHTS[i]
        coordinates[1] = s
        coordinates[2] = mean[0]
        coordinates[3] = mean[1]
        for a in range(4):
            for b in range(4):
                sums[a, b] += weight * coordinates[a] * coordinates[b]
        for a in range(2):
            for b in range(2):
                sums[2 + a, 2 + b] += weight * covariance[a, b]
    return abs(sums[0, 0] - gauss)


@kernel
def _integrate_outward(
    along: Floats,
    across: Floats,
    gaps: Floats,
    breaks: Floats,
    rho: float,
    rounding: float,
    tolerance: float,
    elsewhere: float,
    total: Floats,
) -> None:
    """Sum the panels at s >= 0; ``elsewhere`` is the mass already found (see `slices`)."""
    panel_tolerance = max(_PANEL_TOLERANCE, rho * rounding)
    closest_breaks = max(_CLOSEST_BREAKS, 8.0 * rounding)
    for a in range(4):
        for b in range(4):
            total[a, b] = 0.0
    sums = np.empty((4, 4))
    work, node_values = np.empty((2 * (gaps.size + 1), 5)), np.empty(4 * (gaps.size + 1))
    pending = np.empty(_MOST_HALVINGS)
    position = 0.0
    next_break = 0
    while next_break < breaks.size and breaks[next_break] <= position:
        next_break += 1
    while True:
        slope = rho + position
        beyond = math.exp(-position * (rho + 0.5 * position)) / max(slope, 0.4)
        if beyond <= max(_NEGLIGIBLE_SHARE * (total[0, 0] + elsewhere), 0.01 * tolerance):
            break
        stop = position + 2.0 * KRONROD_RANGE / (
            slope + math.sqrt(slope * slope + 2.0 * KRONROD_RANGE)
        )
        behind_all = next_break == breaks.size
        if not behind_all and breaks[next_break] <= stop:
            stop = breaks[next_break]
            next_break += 1
            if stop <= position + closest_breaks * (1.0 + position):
                continue
        pending[0] = stop
        n_pending = 1
        n_panels = 0
        before = total[0, 0]
        while n_pending > 0:
            end = pending[n_pending - 1]
            error = _panel(along, across, gaps, rho, position, end, work, node_values, sums)
            n_panels += 1
            middle = 0.5 * (position + end)
            found = elsewhere + total[0, 0] + sums[0, 0]
            exhausted = n_pending == _MOST_HALVINGS or n_panels > _MOST_PANELS
            small = error <= max(panel_tolerance * found, 0.1 * tolerance)
            if small or exhausted or middle <= position:
                for a in range(4):
                    for b in range(4):
                        total[a, b] += sums[a, b]
                position = end
                n_pending -= 1
            else:
                pending[n_pending] = middle
                n_pending += 1
        # Behind the last vertex an empty section stays empty.
        if behind_all and total[0, 0] == before and (before > 0.0 or position > 1.0):
            break


@kernel
def _distinct(breaks: Floats) -> Floats:
    """Drop repeated positions: every vertex is met once for each facet and edge it lies on."""
    kept = np.empty(breaks.size)
    n_kept = 0
    for position in breaks:
        if n_kept == 0 or position > kept[n_kept - 1] + _CLOSEST_BREAKS * (1.0 + abs(position)):
            kept[n_kept] = position
            n_kept += 1
    return kept[:n_kept]


@kernel
def sliced_polyhedron(
    cells: Any,
    region: int,
    center: Floats,
    nearest: Floats,
    rho: float,
    log_tolerance: float,
    mean: Floats,
    covariance: Floats,
) -> float:
    """Integrate N(center, I) over a polyhedron by plane sections: slow, accurate for any mass."""
    first, last = cells.start[region], cells.start[region + 1]
    n_facets = last - first
    # A frame whose "normal" is the ray to the nearest point.
    frame = np.zeros(10)
    frame[0] = 1.0
    if rho < _NEAR:
        # Too short a ray has no direction; seen from the center itself nothing is lost.
        rho = 0.0
        nearest = center
    else:
        for s in range(3):
            frame[s] = (nearest[s] - center[s]) / rho
    fill_frame(frame)

    # --- Facets in that frame, and the positions of sections where the shape of these changes.
    along, gaps = np.empty(n_facets), np.empty(n_facets)
    across = np.empty((n_facets, 2))
    n_edges = cells.edge_start[last] - cells.edge_start[first]
    breaks = np.empty(3 * n_facets + 2 * n_edges)
    n_breaks = 0
    for k in range(n_facets):
        plane = cells.planes[first + k]
        along[k] = dot(plane[:3], frame[:3])
        across[k, 0] = dot(plane[:3], frame[4:7])
        across[k, 1] = dot(plane[:3], frame[7:])
        gaps[k] = dot(plane[:3], nearest) - plane[3]
        if rho > 0.0:
            gaps[k] = max(0.0, gaps[k])
        if abs(along[k]) > 0.5:
            # A steep facet crosses all that counts of the sections between these positions.
            width = _FARTHEST * math.sqrt(across[k, 0] * across[k, 0] + across[k, 1] * across[k, 1])
            for shift in (-width, 0.0, width):
                breaks[n_breaks] = -(gaps[k] + shift) / along[k]
                n_breaks += 1
        for e in range(cells.edge_start[first + k], cells.edge_start[first + k + 1]):
            nx, ny, offset, begin, end = read_edge(cells.edges, e)
            if begin == -math.inf and end == math.inf:
                # A line, of a prism: if sections are parallel to it, it begins all at once.
                begin = ny * dot(plane[4:7], nearest) - nx * dot(plane[7:], nearest)
            for t in (begin, end):
                if abs(t) < math.inf:
                    position = 0.0
                    for s in range(3):
                        corner = (
                            plane[3] * plane[s]
                            + (offset * nx + t * ny) * plane[4 + s]
                            + (offset * ny - t * nx) * plane[7 + s]
                        )
                        position += frame[s] * (corner - nearest[s])
                    breaks[n_breaks] = position
                    n_breaks += 1
    breaks = breaks[:n_breaks]
    sort(breaks)
    breaks = _distinct(breaks)

    # --- The integral over all sections.
    log_scale = -0.5 * rho * rho - LOG_SQRT_2PI
    tolerance = math.exp(min(0.0, log_tolerance - log_scale))
    rounding = _ROUNDING * math.sqrt(dot(center, center))
    total = np.empty((4, 4))
    _integrate_outward(along, across, gaps, breaks, rho, rounding, tolerance, 0.0, total)
    if rho == 0.0:
        # The half behind the center, mirrored: s changes its sign.
        behind = np.empty((4, 4))
        mirrored, positions = negated(along, False), negated(breaks, True)
        _integrate_outward(
            mirrored, across, gaps, positions, rho, rounding, tolerance, total[0, 0], behind
        )
        for a in range(4):
            for b in range(4):
                total[a, b] += -behind[a, b] if (a == 1) != (b == 1) else behind[a, b]

    # --- Back from the frame.
    mass = total[0, 0]
    if mass == 0.0:
        for s in range(3):
            mean[s] = nearest[s]
            for t in range(3):
                covariance[s, t] = 0.0
        # Relative to the exponent, the bound that a half-space gives is then exact to rounding.
        return log_scale - math.log(rho) if rho > _FARTHEST_SECTIONS else -math.inf
    axes = np.empty((3, 3))
    for s in range(3):
        axes[0, s], axes[1, s], axes[2, s] = frame[s], frame[4 + s], frame[7 + s]
        mean[s] = nearest[s]
        for a in range(3):
            mean[s] += total[0, 1 + a] / mass * axes[a, s]
    for s in range(3):
        for t in range(3):
            covariance[s, t] = 0.0
            for a in range(3):
                for b in range(3):
                    product = total[0, 1 + a] / mass * (total[0, 1 + b] / mass)
                    central = total[1 + a, 1 + b] / mass - product
                    covariance[s, t] += central * axes[a, s] * axes[b, t]
    return math.log(mass) + log_scale
