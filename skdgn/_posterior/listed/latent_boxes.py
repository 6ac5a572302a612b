"""Boxes along the features, to dismiss regions for rows with holes.

The distance of a row from such a box is known for any subset of its features.  Like the boxes of
`skdgn._posterior.listed.region_groups` they enclose the images of groups of regions, and bound what
these contribute.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skdgn._noise import Holes, NoiseUnits
from skdgn._partition import Partition
from skdgn._posterior.listed.incomplete_conditionals import RegionMaps
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
    spread: float  # of the noise, in units of the deviations


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
    )


def no_boxes(n_features: int) -> Boxes:
    """Return the boxes around no regions."""
    return Boxes(np.empty((0, n_features)), np.empty((0, n_features)), np.empty(0), 1.0)


@inlined_sum_kernel
def bound_box(boxes: Boxes, box: int, holes: Holes, scaled: Floats) -> float:
    """Bound the squared distance of a row from whatever a box contains, from below."""
    square = 0.0
    size = 0.0
    for i in range(holes.n_observed[0]):
        d = holes.order[i]
        below = boxes.lower[box, d] - scaled[i]
        above = scaled[i] - boxes.upper[box, d]
        outside = max(0.0, below, above)
        square += outside * outside
        size += scaled[i] * scaled[i]
    return min((square - ROUNDING * size) / boxes.spread, boxes.squares[box])
