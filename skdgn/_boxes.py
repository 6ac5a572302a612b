"""Boxes along the features, to dismiss regions for rows with holes.

The distance of a row from such a box is known for any subset of its features.  Like the boxes of
`skdgn._groups` they enclose the images of groups of regions, and bound what these contribute.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skdgn._groups import Groups, cut_corners
from skdgn._missing import Integers
from skdgn._network import Floats
from skdgn._partition import Partition
from skdgn._row_conditionals import RegionMaps
from skdgn._visits import ROUNDING, sum_kernel


class Boxes(NamedTuple):
    """Boxes along the features around the images of regions, and of groups of them.

    Groups form the tree of `skdgn._groups`; region r follows as entry ``2 n_leaves + r``.
    """

    n_leaves: int
    start: Integers
    regions: Integers
    lower: Floats  # (2 n_leaves + R, D)
    upper: Floats
    squares: Floats  # (2 n_leaves + R,) what was cut off counts as if at this squared distance
    largest_spread: float  # of the noise, in units of its deviations


def enclose_regions(partition: Partition, maps: RegionMaps, groups: Groups, spread: float) -> Boxes:
    """Find the boxes around the images of all regions and groups."""
    corners, squares = cut_corners(partition.cells)
    n_regions, n_features = maps.offsets.shape
    n_nodes = 2 * groups.n_leaves
    owner = np.repeat(np.arange(n_regions), np.diff(corners.start))
    images = maps.offsets[owner] + np.einsum("pds,ps->pd", maps.slopes[owner], corners.points)
    lower = np.full((n_nodes + n_regions, n_features), np.inf)
    upper = np.full((n_nodes + n_regions, n_features), -np.inf)
    some = np.flatnonzero(np.diff(corners.start))
    if some.size > 0:
        lower[n_nodes + some] = np.minimum.reduceat(images, corners.start[some])
        upper[n_nodes + some] = np.maximum.reduceat(images, corners.start[some])
    all_squares = np.concatenate([np.full(n_nodes, np.inf), squares])
    first = n_nodes + groups.regions
    leaves = slice(groups.n_leaves, n_nodes)
    lower[leaves] = np.minimum.reduceat(lower[first], groups.start[:-1])
    upper[leaves] = np.maximum.reduceat(upper[first], groups.start[:-1])
    all_squares[leaves] = np.minimum.reduceat(all_squares[first], groups.start[:-1])
    n_parents = groups.n_leaves // 2
    while n_parents > 0:
        children = slice(2 * n_parents, 4 * n_parents)
        parents = slice(n_parents, 2 * n_parents)
        shape = (n_parents, 2, n_features)
        lower[parents] = lower[children].reshape(shape).min(axis=1)
        upper[parents] = upper[children].reshape(shape).max(axis=1)
        all_squares[parents] = all_squares[children].reshape(shape[:2]).min(axis=1)
        n_parents //= 2
    return Boxes(groups.n_leaves, groups.start, groups.regions, lower, upper, all_squares, spread)


@sum_kernel
def bound_box(boxes: Boxes, box: int, n_observed: int, order: Integers, scaled: Floats) -> float:
    """Bound the squared distance of a row from whatever a box contains, from below."""
    square = 0.0
    size = 0.0
    for i in range(n_observed):
        d = order[i]
        below = boxes.lower[box, d] - scaled[i]
        above = scaled[i] - boxes.upper[box, d]
        outside = max(0.0, below, above)
        square += outside * outside
        size += scaled[i] * scaled[i]
    return min((square - ROUNDING * size) / boxes.largest_spread, boxes.squares[box])
