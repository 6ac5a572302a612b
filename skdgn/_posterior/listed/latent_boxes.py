"""Boxes along the features, to dismiss regions for samples with missing values.

The distance of a sample from such a box is known for any subset of its features.  Like the boxes of
`skdgn._posterior.listed.region_groups` they enclose the images of groups of regions, and bound what
these contribute.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skdgn._noise import NoiseUnits, Observation
from skdgn._partition import Partition
from skdgn._posterior.listed.incomplete_conditionals import ObservedSample, RegionMaps
from skdgn._posterior.listed.region_groups import ROUNDING, Groups, cut_corners, reduce_over_tree
from skdgn._runtime import Floats, inlined_sum_kernel


class Boxes(NamedTuple):
    """Boxes along the features around the images of regions, and of groups of them.

    Groups form the tree of `skdgn._posterior.listed.region_groups`; region r follows as entry ``2
    n_leaves + r``.
    """

    lower: Floats  # (2 n_leaves + R, D)
    upper: Floats
    squares: Floats  # (2 n_leaves + R,) what was cut off counts as if at this squared distance
    # Variances of the noise, in units of the deviations: the largest in any direction; and those
    # that are nowhere exceeded if the one along a direction is added.
    spread: float
    other_spread: float
    direction: Floats  # (D,) times the square root of what it adds; zero unless there is a matrix


def enclose_regions(
    partition: Partition, maps: RegionMaps, groups: Groups, units: NoiseUnits
) -> Boxes:
    """Find the boxes around the images of all regions and groups."""
    corners, squares = cut_corners(partition.cells)
    n_regions, n_features = maps.offsets.shape
    owner = np.repeat(np.arange(n_regions), np.diff(corners.start))
    images = maps.offsets[owner] + np.einsum("pds,ps->pd", maps.slopes[owner], corners.points)
    lower = np.full((n_regions, n_features), np.inf)
    upper = np.full((n_regions, n_features), -np.inf)
    some = np.flatnonzero(np.diff(corners.start))
    if some.size > 0:
        lower[some] = np.minimum.reduceat(images, corners.start[some])
        upper[some] = np.maximum.reduceat(images, corners.start[some])

    def add_groups(reduction: np.ufunc, values: Floats) -> Floats:
        of_groups = reduce_over_tree(reduction, values, groups.start, groups.regions)
        return np.concatenate([of_groups, values])

    return Boxes(
        add_groups(np.minimum, lower),
        add_groups(np.maximum, upper),
        add_groups(np.minimum, squares),
        units.spread,
        *split_spread(units),
    )


def split_spread(units: NoiseUnits) -> tuple[float, Floats]:
    """Bound the correlations by ``s I + d d'``: return s and d."""
    n_features = len(units.deviations)
    if units.correlations.size == 0 or n_features == 1:
        return units.spread, np.zeros(n_features)
    variances, directions = np.linalg.eigh(units.correlations)
    # Rounded up.
    other = float(variances[-2] + n_features * ROUNDING * variances[-1])
    return other, np.sqrt(max(0.0, variances[-1] - variances[-2])) * directions[:, -1]


def no_boxes(n_features: int) -> Boxes:
    """Return the boxes around no regions."""
    nothing = np.empty((0, n_features))
    return Boxes(nothing, nothing, np.empty(0), 1.0, 1.0, np.empty(0))


@inlined_sum_kernel
def bound_box(boxes: Boxes, box: int, observation: Observation, scaled: Floats) -> float:
    """Bound the squared distance of a sample from whatever a box contains, from below."""
    square = 0.0
    size = 0.0
    for i in range(observation.n_observed[0]):
        d = observation.order[i]
        below = boxes.lower[box, d] - scaled[i]
        above = scaled[i] - boxes.upper[box, d]
        outside = max(0.0, below, above)
        square += outside * outside
        size += scaled[i] * scaled[i]
    return min((square - ROUNDING * size) / boxes.spread, boxes.squares[box])


@inlined_sum_kernel
def bound_correlated(
    boxes: Boxes, box: int, observation: Observation, sample: ObservedSample
) -> float:
    """Bound the same distance, if correlated noise varies most in one direction.

    The noise's covariance is at most ``M = s I + d d'``.  For any vector y and all displacements r
    from the sample to points of the box, ``r' M^-1 r >= 2 y' r - y' M y``, and ``y' r`` is smallest
    at a corner.  With ``y = M^-1 r`` for the point that is nearest without correlations, this is
    seldom much less than the distance.
    """
    n_observed, other_spread, direction = (
        observation.n_observed[0],
        boxes.other_spread,
        boxes.direction,
    )
    along, length = 0.0, other_spread
    for i in range(n_observed):
        d = observation.order[i]
        nearest = max(0.0, boxes.lower[box, d] - sample.scaled[i])
        nearest += min(0.0, boxes.upper[box, d] - sample.scaled[i])
        sample.remainder[i] = nearest
        along += direction[d] * nearest
        length += direction[d] * direction[d]
    share = along / length
    product, square, size = 0.0, 0.0, 0.0
    along = 0.0
    for i in range(n_observed):
        d = observation.order[i]
        y = (sample.remainder[i] - share * direction[d]) / other_spread
        if y != 0.0:  # a box may have no end
            end = boxes.lower[box, d] if y > 0.0 else boxes.upper[box, d]
            product += y * (end - sample.scaled[i])
            size += abs(y) * (abs(end) + abs(sample.scaled[i]))
            square += y * y
            along += y * direction[d]
    square = other_spread * square + along * along
    return min(2.0 * product - square - ROUNDING * (size + square), boxes.squares[box])
