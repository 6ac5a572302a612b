"""Groups of regions, and a bound on what a whole group can contribute to a density.

On region r the density of x given z is at most exp(-dist(x~, g~(r))^2 / 2) times a constant, and
the prior mass of a group is at most one.  So a ball around the image of a group of regions, in
units of the noise, bounds the sum of their shares: most groups are dismissed by one distance
each, and the cost of a row does not follow the size of the partition.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdgn._cells import Corners
from skdgn._conditionals import Conditionals
from skdgn._jit import kernel
from skdgn._network import Floats
from skdgn._partition import Partition

Integers = NDArray[np.intp]

_GROUP_SIZE = 16


class Groups(NamedTuple):
    """Regions in groups: ``regions[start[g]:start[g + 1]]`` are those of group g.

    Unbounded regions have unbounded images; they form the first group, of infinite radius.
    """

    start: Integers  # (G + 1,)
    regions: Integers  # (R,)
    centers: Floats  # (G, D) in units of the noise
    radii: Floats  # (G,)
    log_constant: float


def group_regions(partition: Partition, conditionals: Conditionals, log_constant: float) -> Groups:
    """Group bounded regions by sixteens; a partition lists neighbours next to each other."""
    corners = partition.cells.corners()
    bounded = np.diff(corners.start) > 0
    n_unbounded = int(np.count_nonzero(~bounded))
    regions = np.concatenate([np.flatnonzero(~bounded), np.flatnonzero(bounded)])
    start = np.append(np.arange(n_unbounded, len(regions), _GROUP_SIZE), len(regions))
    start = np.concatenate([[0], start])
    centers, radii = _enclosing_balls(start, regions, corners, conditionals)
    return Groups(start, regions, centers, radii, log_constant)


@kernel
def _enclosing_balls(
    start: Integers, regions: Integers, corners: Corners, conditionals: Conditionals
) -> tuple[Floats, Floats]:
    """Centre and radius of a ball around the images of the corners of each group's regions."""
    n_groups = start.size - 1
    n_features, n_components = conditionals.slopes.shape[1:]
    centers = np.zeros((n_groups, n_features))
    radii = np.zeros(n_groups)
    radii[0] = np.inf
    image = np.empty(n_features)
    for g in range(1, n_groups):
        n_corners = 0
        for step in range(2):  # first the mean of all images, then the largest distance from it
            for i in range(start[g], start[g + 1]):
                r = regions[i]
                for v in range(corners.start[r], corners.start[r + 1]):
                    square = 0.0
                    for d in range(n_features):
                        image[d] = conditionals.offsets[r, d]
                        for s in range(n_components):
                            image[d] += conditionals.slopes[r, d, s] * corners.points[v, s]
                        if step == 0:
                            centers[g, d] += image[d]
                        else:
                            square += (image[d] - centers[g, d]) ** 2
                    if step == 0:
                        n_corners += 1
                    else:
                        radii[g] = max(radii[g], square)
            if step == 0:
                centers[g] /= n_corners
        radii[g] = np.sqrt(radii[g])
    return centers, radii
