"""Independent draws from a Gaussian truncated to a convex cell, whatever its shape and distance.

In whitened coordinates the Gaussian is N(center, I) and the cell is a list of halfspaces, for all
kinds of cells alike.  If the cell has a fair share of the Gaussian's mass, points of the Gaussian
are drawn until they fall into the cell.  Otherwise, with axes along the principal directions of
the truncated Gaussian and ``s`` all coordinates but the last, the density of s is

    exp(-|s - center|^2 / 2) P(s),      P(s): the integral over the chord of the cell above s,

and log P is concave (Prekopa).  So a tangent plane to it is an upper bound, everywhere, and what
it bounds is a Gaussian again, shifted: it can be drawn from and integrated over any box.  The
space of s is cut into boxes, each with a tangent of its own; a point is drawn from the boxes'
Gaussians, accepted with probability P(s) over its bound, and completed by a draw from its chord.
A rejected point splits its box, so that rejections become rare, however odd the cell; accepted
points follow the truncated Gaussian exactly, whatever the boxes were at that time.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from skdgn._cells.quadratic_program import nearest_point
from skdgn._jit import kernel
from skdgn._network import Floats
from skdgn._truncated import log_integral, quantile

# Plain rejection goes on while at least one point in so many falls into the cell, after this many.
_FEWEST_TRIALS, _TRIALS_PER_DRAW = 16, 20
# Boxes per cell: with so many, all but few points are accepted even in three dimensions.
_MOST_BOXES = 4096
# Boxes are halved within this many deviations of the mean; beyond, they grow with the distance.
_REACH = 4.0
# Tangents tried for a new box.
_N_TRIALS = 5


# With all boxes in place and so many points rejected in a row, something is wrong with the cell.
MOST_REJECTIONS = 10_000_000


@kernel
def choose(cumulative: Floats, n_parts: int, uniform: float) -> int:
    """Choose a part with a probability in proportion to its weight, given the weights' sums."""
    target = uniform * cumulative[n_parts - 1]
    first, last = 0, n_parts - 1
    while first < last:
        middle = (first + last) // 2
        if cumulative[middle] > target:
            last = middle
        else:
            first = middle + 1
    return first


class _Cell(NamedTuple):
    """A cell in the coordinates of its frame: along the axes, from the truncated Gaussian's mean.

    The Gaussian has the density exp(slopes . v - |v|^2 / 2) there.
    """

    normals: Floats  # (k, S)
    bounds: Floats  # (k,): normals @ v >= bounds
    slopes: Floats  # (S,)
    deviations: Floats  # (S,)


class _Boxes(NamedTuple):
    """Boxes in all coordinates but the last; in each, log P(v) <= height + tilt . v."""

    lower: Floats  # (b, S - 1)
    upper: Floats
    tilts: Floats  # (b, S - 1)
    heights: Floats  # (b,)
    log_weights: Floats  # (b,) log integral of the bound; -inf if the box is empty
    cumulative: Floats  # (b,) weights added up, relative to the largest


@kernel
def draw_cell(
    normals: Floats,
    offsets: Floats,
    center: Floats,
    mean: Floats,
    axes: Floats,
    deviations: Floats,
    generator: Any,
    draws: Floats,
) -> int:
    """Draw from N(center, I) truncated to a cell, in whitened coordinates.

    Parameters
    ----------
    normals, offsets : ndarray of shape (k, S) and (k,)
        The cell: ``normals @ y >= offsets``.
    center : ndarray of shape (S,)
    mean, axes, deviations : ndarray of shape (S,), (S, S) and (S,)
        Of the truncated Gaussian; see `skdgn._mixtures.principal_frames`.
    generator : numpy.random.Generator
    draws : ndarray of shape (n, S)
        Filled with independent draws.

    Returns
    -------
    n_done : int
        Fewer than n if no point was accepted for so long that something must be wrong.
    """
    n_dimensions, n_draws = center.size, len(draws)
    cell = _make_cell(normals, offsets, center, mean, axes, deviations)
    point = np.empty(n_dimensions)
    n_done, n_trials = 0, 0
    # A trial costs as much as a draw from an interval, and a twentieth of one from boxes.
    trials_per_draw = _TRIALS_PER_DRAW if n_dimensions > 1 else 2
    while n_done < n_draws and n_trials < _FEWEST_TRIALS + trials_per_draw * n_done:
        n_trials += 1
        for s in range(n_dimensions):
            point[s] = cell.slopes[s] + generator.standard_normal()
        if _is_inside(cell, point):
            _place(mean, axes, point, draws, n_done)
            n_done += 1
    if n_dimensions == 1:
        # A chord is all there is: nothing is ever rejected.
        lower, upper, _, _ = _chord(cell, point)
        for n in range(n_done, n_draws):
            point[0] = quantile(cell.slopes[0], lower, upper, generator.random())
            _place(mean, axes, point, draws, n)
        return n_draws
    if n_done == n_draws:
        return n_done
    boxes = _make_boxes(_MOST_BOXES, n_dimensions)
    n_boxes = 1
    tilt = np.empty(n_dimensions)
    _start_box(cell, boxes)
    _improve_box(cell, boxes, 0, point, tilt)
    _add_weights(boxes, n_boxes)
    n_rejections = 0
    while n_done < n_draws and n_rejections < MOST_REJECTIONS:
        box = choose(boxes.cumulative, n_boxes, generator.random())
        if _propose(cell, boxes, box, generator, point):
            _place(mean, axes, point, draws, n_done)
            n_done += 1
            n_rejections = 0
            continue
        n_rejections += 1
        if n_boxes < len(boxes.heights):
            _split_box(cell, boxes, box, n_boxes, point, tilt)
            n_boxes += 1
            _add_weights(boxes, n_boxes)
    return n_done


@kernel
def _make_cell(
    normals: Floats,
    offsets: Floats,
    center: Floats,
    mean: Floats,
    axes: Floats,
    deviations: Floats,
) -> _Cell:
    n_facets, n_dimensions = normals.shape
    turned, bounds = np.empty((n_facets, n_dimensions)), np.empty(n_facets)
    slopes = np.empty(n_dimensions)
    for f in range(n_facets):
        bounds[f] = offsets[f]
        for s in range(n_dimensions):
            bounds[f] -= normals[f, s] * mean[s]
            turned[f, s] = 0.0
            for t in range(n_dimensions):
                turned[f, s] += axes[s, t] * normals[f, t]
    for s in range(n_dimensions):
        slopes[s] = 0.0
        for t in range(n_dimensions):
            slopes[s] += axes[s, t] * (center[t] - mean[t])
    return _Cell(turned, bounds, slopes, deviations)


@kernel
def _make_boxes(most_boxes: int, n_dimensions: int) -> _Boxes:
    return _Boxes(
        np.empty((most_boxes, n_dimensions - 1)),
        np.empty((most_boxes, n_dimensions - 1)),
        np.empty((most_boxes, n_dimensions - 1)),
        np.empty(most_boxes),
        np.empty(most_boxes),
        np.empty(most_boxes),
    )


@kernel
def _is_inside(cell: _Cell, point: Floats) -> bool:
    for f in range(cell.bounds.size):
        distance = -cell.bounds[f]
        for s in range(point.size):
            distance += cell.normals[f, s] * point[s]
        if distance < 0.0:
            return False
    return True


@kernel
def _place(mean: Floats, axes: Floats, point: Floats, draws: Floats, n: int) -> None:
    """Write a point of the frame in whitened coordinates."""
    for s in range(point.size):
        draws[n, s] = mean[s]
        for t in range(point.size):
            draws[n, s] += axes[t, s] * point[t]


@kernel
def _chord(cell: _Cell, point: Floats) -> tuple[float, float, int, int]:
    """Ends of the chord above a point (its last coordinate does not count), and their facets."""
    last = point.size - 1
    lower, upper = -math.inf, math.inf
    below, above = -1, -1
    for f in range(cell.bounds.size):
        missing = cell.bounds[f]
        for s in range(last):
            missing -= cell.normals[f, s] * point[s]
        along = cell.normals[f, last]
        if along > 0.0:
            if missing / along > lower:
                lower, below = missing / along, f
        elif along < 0.0:
            if missing / along < upper:
                upper, above = missing / along, f
        elif missing > 0.0:
            return math.inf, -math.inf, -1, -1
    return lower, upper, below, above


@kernel
def _fill_tangent(cell: _Cell, point: Floats, tilt: Floats) -> float:
    """Fill the gradient of log P at a point; return the tangent's height at v = 0.

    -inf if there is no chord above the point, and no tangent.
    """
    last = point.size - 1
    lower, upper, below, above = _chord(cell, point)
    slope = cell.slopes[last]
    value = log_integral(slope, lower, upper)
    if value == -math.inf:
        return -math.inf
    at_lower, at_upper = 0.0, 0.0
    if below >= 0:
        at_lower = math.exp(lower * (slope - 0.5 * lower) - value) / cell.normals[below, last]
    if above >= 0:
        at_upper = math.exp(upper * (slope - 0.5 * upper) - value) / cell.normals[above, last]
    height = value
    for s in range(last):
        tilt[s] = 0.0
        if below >= 0:
            tilt[s] += at_lower * cell.normals[below, s]
        if above >= 0:
            tilt[s] -= at_upper * cell.normals[above, s]
        height -= tilt[s] * point[s]
    return height


@kernel
def _weigh(cell: _Cell, boxes: _Boxes, box: int, tilt: Floats, height: float) -> float:
    """Log integral of a bound over a box."""
    log_weight = height
    for s in range(boxes.lower.shape[1]):
        log_weight += log_integral(
            cell.slopes[s] + tilt[s], boxes.lower[box, s], boxes.upper[box, s]
        )
    return log_weight


@kernel
def _start_box(cell: _Cell, boxes: _Boxes) -> None:
    """Make the first box all of space; no chord has a larger integral than a whole line."""
    last = cell.slopes.size - 1
    for s in range(last):
        boxes.lower[0, s] = -math.inf
        boxes.upper[0, s] = math.inf
        boxes.tilts[0, s] = 0.0
    boxes.heights[0] = log_integral(cell.slopes[last], -math.inf, math.inf)
    boxes.log_weights[0] = _weigh(cell, boxes, 0, boxes.tilts[0], boxes.heights[0])


@kernel
def _improve_box(cell: _Cell, boxes: _Boxes, box: int, point: Floats, tilt: Floats) -> None:
    """Look for a tangent with a smaller integral; empty boxes are worth nothing."""
    n_dimensions = cell.slopes.size
    last = n_dimensions - 1
    mode, inside = np.empty(n_dimensions), np.empty(n_dimensions)
    if not _find_point(cell, boxes, box, cell.slopes, mode):
        boxes.log_weights[box] = -math.inf
        return
    # An average of extreme points is in the cell's interior, and so is what lies between it and the
    # likeliest point.
    for s in range(n_dimensions):
        inside[s] = mode[s] / (2.0 * n_dimensions + 1.0)
    for s in range(n_dimensions):
        for sign in (-1.0, 1.0):
            for t in range(n_dimensions):
                tilt[t] = mode[t]
            tilt[s] += sign * _REACH * cell.deviations[s]
            _find_point(cell, boxes, box, tilt, point)
            for t in range(n_dimensions):
                inside[t] += point[t] / (2.0 * n_dimensions + 1.0)
    for trial in range(_N_TRIALS):
        for s in range(last):
            lower, upper = boxes.lower[box, s], boxes.upper[box, s]
            if trial == 0:  # the box's point nearest to the mean
                point[s] = min(max(0.0, lower), upper)
            elif trial == 1:
                lower, upper = _part_to_cut(lower, upper, cell.deviations[s])
                point[s] = 0.5 * (lower + upper)
            else:
                point[s] = mode[s] + 4.0 ** (2 - trial) * (inside[s] - mode[s])
        height = _fill_tangent(cell, point, tilt)
        if height > -math.inf:
            log_weight = _weigh(cell, boxes, box, tilt, height)
            # (not a number where an infinite tilt meets an infinite box: no better, either)
            if log_weight < boxes.log_weights[box]:
                boxes.log_weights[box] = log_weight
                boxes.heights[box] = height
                for s in range(last):
                    boxes.tilts[box, s] = tilt[s]


@kernel
def _part_to_cut(lower: float, upper: float, deviation: float) -> tuple[float, float]:
    """Part of an interval to be cut in its middle: within reach of the mean, growing beyond."""
    reach = _REACH * deviation
    return max(lower, min(-reach, 3.0 * upper)), min(upper, max(reach, 3.0 * lower))


@kernel
def _split_box(cell: _Cell, boxes: _Boxes, box: int, new: int, point: Floats, tilt: Floats) -> None:
    """Cut a box in two across its widest side, in deviations; the second half is the new one."""
    last = cell.slopes.size - 1
    axis, widest, cut = 0, -1.0, 0.0
    for s in range(last):
        lower, upper = _part_to_cut(boxes.lower[box, s], boxes.upper[box, s], cell.deviations[s])
        width = (upper - lower) / cell.deviations[s]
        if width > widest:
            axis, widest, cut = s, width, 0.5 * (lower + upper)
    for s in range(last):
        boxes.lower[new, s], boxes.upper[new, s] = boxes.lower[box, s], boxes.upper[box, s]
        boxes.tilts[new, s] = boxes.tilts[box, s]
    boxes.heights[new] = boxes.heights[box]
    boxes.upper[box, axis] = cut
    boxes.lower[new, axis] = cut
    for half in (box, new):
        # The tangent of the whole box is good for its halves, too.
        boxes.log_weights[half] = _weigh(cell, boxes, half, boxes.tilts[half], boxes.heights[half])
        _improve_box(cell, boxes, half, point, tilt)


@kernel
def _find_point(cell: _Cell, boxes: _Boxes, box: int, origin: Floats, point: Floats) -> bool:
    """Find the cell's point above a box that is nearest to an origin; tell whether there is one."""
    n_dimensions, n_facets = cell.slopes.size, cell.bounds.size
    rows = np.zeros((n_facets + 2 * n_dimensions - 2, n_dimensions))
    bounds = np.empty(len(rows))
    for f in range(n_facets):
        bounds[f] = cell.bounds[f]
        for s in range(n_dimensions):
            rows[f, s] = cell.normals[f, s]
            bounds[f] -= cell.normals[f, s] * origin[s]
    n_rows = n_facets
    for s in range(n_dimensions - 1):
        rows[n_rows, s], bounds[n_rows] = 1.0, boxes.lower[box, s] - origin[s]
        rows[n_rows + 1, s], bounds[n_rows + 1] = -1.0, origin[s] - boxes.upper[box, s]
        n_rows += 2
    multipliers = np.empty(n_rows)
    distance = nearest_point(rows, bounds, math.inf, point, multipliers)
    for s in range(n_dimensions):
        point[s] += origin[s]
    return distance < math.inf


@kernel
def _add_weights(boxes: _Boxes, n_boxes: int) -> None:
    largest = -math.inf
    for b in range(n_boxes):
        largest = max(largest, boxes.log_weights[b])
    total = 0.0
    for b in range(n_boxes):
        if boxes.log_weights[b] > -math.inf:
            total += math.exp(boxes.log_weights[b] - largest)
        boxes.cumulative[b] = total


@kernel
def _propose(cell: _Cell, boxes: _Boxes, box: int, generator: Any, point: Floats) -> bool:
    """Draw a point from a box; tell whether it is accepted."""
    last = point.size - 1
    log_bound = boxes.heights[box]
    for s in range(last):
        tilt = boxes.tilts[box, s]
        point[s] = quantile(
            cell.slopes[s] + tilt, boxes.lower[box, s], boxes.upper[box, s], generator.random()
        )
        log_bound += tilt * point[s]
    lower, upper, _, _ = _chord(cell, point)
    value = log_integral(cell.slopes[last], lower, upper)
    if not math.log(1.0 - generator.random()) <= value - log_bound:
        return False
    point[last] = quantile(cell.slopes[last], lower, upper, generator.random())
    return True
