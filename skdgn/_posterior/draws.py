"""Independent draws from a Gaussian truncated to a convex cell, whatever its shape and distance.

The Gaussian is centered at ``slopes``, of unit covariance, and the cell is a list of halfspaces,
for all kinds of cells alike.  If the cell has a fair share of the Gaussian's mass, points of the
Gaussian are drawn until they fall into the cell.  Otherwise, with axes along the principal
directions of the truncated Gaussian and ``s`` all coordinates but the last, the density of s is

    exp(-|s - center|^2 / 2) P(s),      P(s): the integral over the chord of the cell above s,

and log P is concave (Prekopa).  So a tangent plane to it is an upper bound, everywhere, and what
it bounds is a Gaussian again, shifted: it can be drawn from and integrated over any box.  The
space of s is cut into boxes, each with a tangent of its own; a point is drawn from the boxes'
Gaussians, accepted with probability P(s) over its bound, and completed by a draw from its chord.
A rejected point splits its box, so that rejections become rare, however odd the cell; accepted
points follow the truncated Gaussian exactly, whatever the boxes were at that time.

Compiling takes longer than most draws.  So each function is called in one place and compiled
there, cells that need no boxes do not wait for them, and counters are ``np.intp``: Numba compiles
a function once for a literal 0 and again for other integers.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from skdgn._geometry import log_integral, nearest_point, quantile
from skdgn._runtime import LOG_SQRT_2PI, Floats, kernel, part_kernel

# Plain rejection goes on while at least one point in so many falls into the cell, after this many.
_FEWEST_TRIALS, _TRIALS_PER_DRAW = 16, 20
# Boxes per cell: with so many, all but few points are accepted even in three dimensions.
_MOST_BOXES = 4096
# Boxes are halved within this many deviations of the mean; beyond, they grow with the distance.
_REACH = 4.0
# Tangents tried for a new box, besides the one it had before it was cut.
_N_TRIALS = 5


# With all boxes in place and so many points rejected in a sample, something is wrong with the cell.
MOST_REJECTIONS = 10_000_000


class Cell(NamedTuple):
    """A cell in the coordinates of its frame: along the axes, from the truncated Gaussian's mean.

    The Gaussian has the density exp(slopes . v - |v|^2 / 2) there.
    """

    normals: Floats  # (k, S) of unit length
    bounds: Floats  # (k,): normals @ v >= bounds
    slopes: Floats  # (S,)
    deviations: Floats  # (S,) of the truncated Gaussian


class _Boxes(NamedTuple):
    """Boxes in all coordinates but the last; in each, log P(v) <= height + tilt . v."""

    lower: Floats  # (b, S - 1)
    upper: Floats
    tilts: Floats  # (b, S - 1)
    heights: Floats  # (b,)
    log_weights: Floats  # (b,) log integral of the bound; -inf if the box is empty
    cumulative: Floats  # (b,) weights added up, relative to the largest


@part_kernel
def draw_plainly(cell: Cell, generator: Any, draws: Floats) -> int:
    """Draw from a truncated Gaussian as long as that is easy.

    Parameters
    ----------
    cell : Cell
    generator : numpy.random.Generator
    draws : ndarray of shape (n, S)
        Filled with independent draws.

    Returns
    -------
    n_done : int
        All of them if there is one dimension; otherwise the others are for `draw_in_boxes`.
    """
    n_draws, n_dimensions = draws.shape
    n_done: Any = np.intp(0)
    n_trials: Any = np.intp(0)
    # A trial costs as much as a draw from an interval, and a twentieth of one from boxes.
    trials_per_draw = _TRIALS_PER_DRAW if n_dimensions > 1 else 2
    while n_done < n_draws and n_trials < _FEWEST_TRIALS + trials_per_draw * n_done:
        n_trials += 1
        for s in range(n_dimensions):
            draws[n_done, s] = cell.slopes[s] + generator.standard_normal()
        if _is_inside(cell, draws[n_done]):
            n_done += 1
    if n_dimensions == 1:
        # A chord is all there is: nothing is ever rejected.
        lower, upper, _, _ = chord(cell, cell.slopes)
        for n in range(n_done, n_draws):
            draws[n, 0] = quantile(cell.slopes[0], lower, upper, generator.random())
        n_done = n_draws
    return n_done


@kernel
def draw_in_boxes(cell: Cell, generator: Any, draws: Floats) -> int:
    """Draw from a Gaussian of two dimensions or more, truncated to any cell.

    Returns fewer than asked for if no point was accepted for so long that something must be wrong.
    """
    n_draws, n_dimensions = draws.shape
    boxes = _first_box(cell)
    point, tilt = np.empty(n_dimensions), np.empty(n_dimensions)
    n_done: Any = np.intp(0)
    n_boxes: Any = np.intp(1)
    n_rejections: Any = np.intp(0)
    box: Any = np.intp(0)  # half of the box that was cut last; at first, all there is
    other: Any = np.intp(0)  # the other half
    is_new = True
    while n_done < n_draws and n_rejections < MOST_REJECTIONS:
        if is_new:
            for half in (box, other):
                _improve_box(cell, boxes, half, point, tilt)
            _add_weights(boxes, n_boxes)
            is_new = False
        box = choose(boxes.cumulative, n_boxes, generator.random())
        if _propose(cell, boxes, box, generator, point):
            for s in range(n_dimensions):
                draws[n_done, s] = point[s]
            n_done += 1
            n_rejections = 0
            continue
        n_rejections += 1
        if n_boxes < len(boxes.heights):
            other = n_boxes
            _cut_box(cell, boxes, box, other)
            n_boxes += 1
            is_new = True
    return n_done


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


@part_kernel
def _is_inside(cell: Cell, point: Floats) -> bool:
    for f in range(cell.bounds.size):
        distance = -cell.bounds[f]
        for s in range(point.size):
            distance += cell.normals[f, s] * point[s]
        if distance < 0.0:
            return False
    return True


@kernel
def chord(cell: Cell, point: Floats) -> tuple[float, float, int, int]:
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


@part_kernel
def _first_box(cell: Cell) -> _Boxes:
    """Make space for boxes, the first of which is all of space."""
    last = cell.slopes.size - 1
    boxes = _Boxes(
        np.empty((_MOST_BOXES, last)),
        np.empty((_MOST_BOXES, last)),
        np.empty((_MOST_BOXES, last)),
        np.empty(_MOST_BOXES),
        np.empty(_MOST_BOXES),
        np.empty(_MOST_BOXES),
    )
    for s in range(last):
        boxes.lower[0, s] = -math.inf
        boxes.upper[0, s] = math.inf
        boxes.tilts[0, s] = 0.0
    # No chord has a larger integral than a whole line.
    boxes.heights[0] = 0.5 * cell.slopes[last] ** 2 + LOG_SQRT_2PI
    return boxes


@part_kernel
def _improve_box(cell: Cell, boxes: _Boxes, box: int, point: Floats, tilt: Floats) -> None:
    """Weigh a box, and look for a tangent with a smaller integral; empty boxes weigh nothing."""
    n_dimensions = cell.slopes.size
    last = n_dimensions - 1
    mode, inside = np.empty(n_dimensions), np.zeros(n_dimensions)
    if not _find_points(cell, boxes, box, mode, inside, point, tilt):
        boxes.log_weights[box] = -math.inf
        return
    lightest = math.inf
    for trial in range(_N_TRIALS + 1):
        for s in range(last):
            lower, upper = boxes.lower[box, s], boxes.upper[box, s]
            if trial == 0:  # the tangent of the box it was cut from is good for it, too
                tilt[s] = boxes.tilts[box, s]
            elif trial == 1:  # the box's point nearest to the mean
                point[s] = min(max(0.0, lower), upper)
            elif trial == 2:
                lower, upper = _part_to_cut(lower, upper, cell.deviations[s])
                point[s] = 0.5 * (lower + upper)
            else:
                point[s] = mode[s] + 4.0 ** (3 - trial) * (inside[s] - mode[s])
        height = boxes.heights[box] if trial == 0 else _fill_tangent(cell, point, tilt)
        if height == -math.inf:
            continue
        log_weight = height
        for s in range(last):
            log_weight += log_integral(
                cell.slopes[s] + tilt[s], boxes.lower[box, s], boxes.upper[box, s]
            )
        # (not a number where an infinite tilt meets an infinite box: no better, either)
        if log_weight < lightest:
            lightest = log_weight
            boxes.heights[box] = height
            for s in range(last):
                boxes.tilts[box, s] = tilt[s]
    boxes.log_weights[box] = lightest


@part_kernel
def _find_points(
    cell: Cell,
    boxes: _Boxes,
    box: int,
    mode: Floats,
    inside: Floats,
    point: Floats,
    origin: Floats,
) -> bool:
    """Find the likeliest of the cell's points above a box, and one inside, if there are any.

    An average of extreme points is in the cell's interior, and so is what lies between it and the
    likeliest point.  ``inside`` must be zero; ``point`` and ``origin`` are overwritten.
    """
    n_dimensions, n_facets = cell.slopes.size, cell.bounds.size
    normals = np.zeros((n_facets + 2 * n_dimensions - 2, n_dimensions))
    bounds, multipliers = np.empty(len(normals)), np.empty(len(normals))
    for f in range(n_facets):
        for s in range(n_dimensions):
            normals[f, s] = cell.normals[f, s]
    for s in range(n_dimensions - 1):
        normals[n_facets + 2 * s, s] = 1.0
        normals[n_facets + 2 * s + 1, s] = -1.0
    n_points = 2 * n_dimensions + 1
    for k in range(n_points):
        # The Gaussian's center first; then, a few deviations from the mode along each axis.
        for s in range(n_dimensions):
            origin[s] = cell.slopes[s] if k == 0 else mode[s]
        if k > 0:
            axis, sign = (k - 1) // 2, 2 * (k % 2) - 1
            origin[axis] += sign * _REACH * cell.deviations[axis]
        for f in range(n_facets):
            bounds[f] = cell.bounds[f]
            for s in range(n_dimensions):
                bounds[f] -= cell.normals[f, s] * origin[s]
        for s in range(n_dimensions - 1):
            bounds[n_facets + 2 * s] = boxes.lower[box, s] - origin[s]
            bounds[n_facets + 2 * s + 1] = origin[s] - boxes.upper[box, s]
        distance = nearest_point(normals, bounds, math.inf, point, multipliers)
        if k == 0 and distance == math.inf:
            return False
        for s in range(n_dimensions):
            inside[s] += (origin[s] + point[s]) / n_points
            if k == 0:
                mode[s] = origin[s] + point[s]
    return True


@part_kernel
def _fill_tangent(cell: Cell, point: Floats, tilt: Floats) -> float:
    """Fill the gradient of log P at a point; return the tangent's height at v = 0.

    -inf if there is no chord above the point, and no tangent.
    """
    last = point.size - 1
    lower, upper, below, above = chord(cell, point)
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
def _part_to_cut(lower: float, upper: float, deviation: float) -> tuple[float, float]:
    """Part of an interval to be cut in its middle: within reach of the mean, growing beyond."""
    reach = _REACH * deviation
    return max(lower, min(-reach, 3.0 * upper)), min(upper, max(reach, 3.0 * lower))


@part_kernel
def _cut_box(cell: Cell, boxes: _Boxes, box: int, other: int) -> None:
    """Cut a box in two across its widest side, in deviations; the second half is another box."""
    last = cell.slopes.size - 1
    axis, widest, cut = 0, -1.0, 0.0
    for s in range(last):
        lower, upper = _part_to_cut(boxes.lower[box, s], boxes.upper[box, s], cell.deviations[s])
        width = (upper - lower) / cell.deviations[s]
        if width > widest:
            axis, widest, cut = s, width, 0.5 * (lower + upper)
    for s in range(last):
        boxes.lower[other, s], boxes.upper[other, s] = boxes.lower[box, s], boxes.upper[box, s]
        boxes.tilts[other, s] = boxes.tilts[box, s]
    boxes.heights[other] = boxes.heights[box]
    boxes.upper[box, axis] = cut
    boxes.lower[other, axis] = cut


@part_kernel
def _add_weights(boxes: _Boxes, n_boxes: int) -> None:
    largest = -math.inf
    for b in range(n_boxes):
        largest = max(largest, boxes.log_weights[b])
    total = 0.0
    for b in range(n_boxes):
        if boxes.log_weights[b] > -math.inf:
            total += math.exp(boxes.log_weights[b] - largest)
        boxes.cumulative[b] = total


@part_kernel
def _propose(cell: Cell, boxes: _Boxes, box: int, generator: Any, point: Floats) -> bool:
    """Draw a point from a box; tell whether it is accepted."""
    last = point.size - 1
    log_bound = boxes.heights[box]
    for s in range(last):
        tilt = boxes.tilts[box, s]
        point[s] = quantile(
            cell.slopes[s] + tilt, boxes.lower[box, s], boxes.upper[box, s], generator.random()
        )
        log_bound += tilt * point[s]
    lower, upper, _, _ = chord(cell, point)
    value = log_integral(cell.slopes[last], lower, upper)
    if not math.log(1.0 - generator.random()) <= value - log_bound:
        return False
    point[last] = quantile(cell.slopes[last], lower, upper, generator.random())
    return True
