"""Groups of regions, and a bound on what a whole group can contribute to a density.

On region r the density of x given z is at most exp(-dist(x~, g~(r))^2 / 2) times a constant, and
the prior mass of a group is at most one.  So whatever encloses the image of a group of regions, in
units of the noise, bounds the sum of their shares.  Groups form a binary tree: most regions are
dismissed in large groups, and the cost of a row hardly follows the size of the partition.

The image of a group is nearly flat, a patch of a surface of S dimensions.  It is enclosed in a box
of S dimensions, of a certain thickness in all other directions.  Cells may be unbounded, their
images too; but the prior mass outside a cube around the origin is as good as nothing: cells are cut
off there, and what was cut off has a bound of its own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skdgn._geometry import Cells, Corners, Pieces
from skdgn._noise import Noise
from skdgn._partition import Partition
from skdgn._posterior.conditionals import Conditionals
from skdgn._runtime import Floats, kernel

Integers = NDArray[np.intp]

# A bound on a group costs about as much as one on a region: smaller groups would not pay.
_LARGEST_LEAF = 8
# Half the edge of the cube.  The prior mass outside is below S exp(-72).
_FARTHEST = 12.0
# Relative rounding error of a squared distance.
ROUNDING = 1e-14


class Groups(NamedTuple):
    """A complete binary tree of groups of regions, and boxes around their images.

    Node 1 is the group of all regions, node i is split into the nodes 2 i and 2 i + 1, and node
    ``n_leaves + j`` consists of the regions ``regions[start[j]:start[j + 1]]``.  Entry 0 is unused.
    """

    n_leaves: int
    start: Integers  # (n_leaves + 1,)
    regions: Integers  # (R,)
    centers: Floats  # (2 n_leaves, D) of the boxes, in units of the noise
    axes: Floats  # (2 n_leaves, S, D) orthonormal
    widths: Floats  # (2 n_leaves, S) half-lengths of the box along its axes
    radii: Floats  # (2 n_leaves,) thickness across them; -inf if the box is empty
    squares: Floats  # (2 n_leaves,) at most; what was cut off counts as if at this distance
    log_constant: float  # largest log density of the noise


class _Images(NamedTuple):
    """Images of the corners of all regions; those of region r are ``start[r]:start[r + 1]``."""

    start: Integers
    points: Floats  # (P, D)


def group_regions(partition: Partition, conditionals: Conditionals, noise: Noise) -> Groups:
    """Halve the regions, again and again, across the feature in which their images differ most."""
    slopes, offsets = conditionals.slopes, conditionals.offsets
    n_regions, n_features, n_components = slopes.shape
    log_constant = -0.5 * (noise.n_features * math.log(2.0 * math.pi) + noise.log_determinant)
    if n_regions <= _LARGEST_LEAF:
        return _one_group(n_regions, n_features, n_components, log_constant)
    corners, squares = cut_corners(partition.cells)
    owner = np.repeat(np.arange(n_regions), np.diff(corners.start))
    points = offsets[owner] + np.einsum("pds,ps->pd", slopes[owner], corners.points)
    images = _Images(corners.start, points)

    n_leaves = 1
    while n_leaves * _LARGEST_LEAF < n_regions:
        n_leaves *= 2
    regions = _sort_regions(images, offsets, n_leaves)
    start = -(-np.arange(n_leaves + 1) * n_regions // n_leaves)
    centers, axes, widths, radii, node_squares = _enclose(
        n_leaves, start, regions, slopes, images, squares
    )
    return Groups(
        n_leaves,
        start,
        regions,
        centers,
        axes,
        widths,
        radii,
        node_squares,
        log_constant,
    )


def _one_group(n_regions: int, n_features: int, n_components: int, log_constant: float) -> Groups:
    """Return a tree of one leaf: nobody asks for the box around all regions."""
    return Groups(
        1,
        np.array([0, n_regions]),
        np.arange(n_regions),
        np.zeros((2, n_features)),
        np.zeros((2, n_components, n_features)),
        np.zeros((2, n_components)),
        np.zeros(2),
        np.zeros(2),
        log_constant,
    )


def reduce_over_tree(
    reduction: np.ufunc, values: Floats, start: Integers, regions: Integers
) -> Floats:
    """Reduce values (R, ...) of regions to one for each group: (2 n_leaves, ...)."""
    n_leaves = len(start) - 1
    reduced = np.ones((2 * n_leaves, *values.shape[1:]))  # the first entry is unused
    reduced[n_leaves:] = reduction.reduceat(values[regions], start[:-1])
    for node in reversed(range(1, n_leaves)):
        reduced[node] = reduction(reduced[2 * node], reduced[2 * node + 1])
    return reduced


def cut_corners(cells: Cells) -> tuple[Corners, Floats]:
    """List the corners of all cells, cut off at the cube.

    The second result tells, for each cell, at what squared distance it may be in spite of its
    corners: infinite unless something was cut off, 0 if the corners are not known.
    """
    corners = cells.corners()
    n_cells, n_dimensions = len(cells), corners.points.shape[1]
    if len(_cut_at_cube(cells.whole_space(n_dimensions), n_dimensions).cells.corners().points) == 0:
        return corners, np.zeros(n_cells)  # a kind of cells that knows no corners
    owner = np.repeat(np.arange(n_cells), np.diff(corners.start))
    cut = np.diff(corners.start) == 0
    cut[owner[np.abs(corners.points).max(axis=1, initial=0.0) > _FARTHEST]] = True
    # 2 Q(t) <= exp(-t^2 / 2) for each of the S pairs of sides of the cube.
    squares = np.where(cut, _FARTHEST**2 - 2.0 * math.log(n_dimensions), np.inf)

    pieces = _cut_at_cube(cells.take(np.flatnonzero(cut)), n_dimensions)
    cut_corners = pieces.cells.corners()
    parents = np.flatnonzero(cut)[pieces.parents]
    # An edge parallel to a side of the cube, but for rounding, may have stayed unbounded.
    squares[parents[np.diff(cut_corners.start) == 0]] = 0.0
    owners = [owner[~cut[owner]], np.repeat(parents, np.diff(cut_corners.start))]
    points = [corners.points[~cut[owner]], cut_corners.points]
    order = np.argsort(np.concatenate(owners), kind="stable")
    counts = np.bincount(np.concatenate(owners), minlength=n_cells)
    start = np.concatenate([[0], np.cumsum(counts)])
    return Corners(start, np.concatenate(points)[order]), squares


def _cut_at_cube(cells: Cells, n_dimensions: int) -> Pieces:
    """Cut off what lies outside the cube."""
    pieces = Pieces(cells, np.arange(len(cells)), np.ones(len(cells), dtype=bool))
    for s in range(n_dimensions):
        for sign in (1.0, -1.0):
            gradients = np.zeros((len(pieces.cells), n_dimensions))
            gradients[:, s] = sign
            halves = pieces.cells.split(gradients, np.full(len(pieces.cells), _FARTHEST))
            inside = np.flatnonzero(halves.positive)
            parents = pieces.parents[halves.parents[inside]]
            pieces = Pieces(halves.cells.take(inside), parents, halves.positive[inside])
    return pieces


def _sort_regions(images: _Images, offsets: Floats, n_leaves: int) -> Integers:
    """Sort regions such that halves of halves ... of the list are neighbors."""
    n_regions = len(offsets)
    centers = offsets.copy()
    n_corners = np.diff(images.start)
    some = np.flatnonzero(n_corners)
    if some.size > 0:
        sums = np.add.reduceat(images.points, images.start[some])
        centers[some] = sums / n_corners[some, None]
    regions = np.arange(n_regions)
    n_nodes = 1
    while n_nodes < n_leaves:
        node = np.arange(n_regions) * n_nodes // n_regions
        first = np.flatnonzero(np.diff(node, prepend=-1))
        values = centers[regions]
        spread = np.maximum.reduceat(values, first) - np.minimum.reduceat(values, first)
        feature = spread.argmax(axis=1)[node]
        regions = regions[np.lexsort((values[np.arange(n_regions), feature], node))]
        n_nodes *= 2
    return regions


@kernel
def _enclose(
    n_leaves: int,
    start: Integers,
    regions: Integers,
    slopes: Floats,
    images: _Images,
    squares: Floats,
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Boxes around the images of each node's regions."""
    n_features, n_components = slopes.shape[1:]
    n_nodes = 2 * n_leaves
    centers = np.zeros((n_nodes, n_features))
    axes = np.zeros((n_nodes, n_components, n_features))
    widths = np.zeros((n_nodes, n_components))
    radii = np.full(n_nodes, -np.inf)
    node_squares = np.full(n_nodes, np.inf)
    upper = np.empty(n_components)
    for node in range(1, n_nodes):
        first, last = node, node
        while first < n_leaves:
            first, last = 2 * first, 2 * last + 1
        members = regions[start[first - n_leaves] : start[last - n_leaves + 1]]
        center, frame, width = centers[node], axes[node], widths[node]
        n_points = 0
        for r in members:
            node_squares[node] = min(node_squares[node], squares[r])
            for s in range(n_components):
                for d in range(n_features):
                    frame[s, d] += slopes[r, d, s]
            for p in range(images.start[r], images.start[r + 1]):
                n_points += 1
                for d in range(n_features):
                    center[d] += images.points[p, d]
        if n_points == 0:
            continue
        for d in range(n_features):
            center[d] /= n_points

        # Axes: the mean of the slopes, orthogonalized.
        _orthogonalize(frame)
        for s in range(n_components):
            width[s], upper[s] = np.inf, -np.inf
        square = 0.0
        for r in members:
            for p in range(images.start[r], images.start[r + 1]):
                across = 0.0
                for d in range(n_features):
                    across += (images.points[p, d] - center[d]) ** 2
                for s in range(n_components):
                    along = 0.0
                    for d in range(n_features):
                        along += (images.points[p, d] - center[d]) * frame[s, d]
                    across -= along * along
                    width[s] = min(width[s], along)
                    upper[s] = max(upper[s], along)
                square = max(square, across)
        radii[node] = math.sqrt(square)
        for s in range(n_components):
            middle = 0.5 * (width[s] + upper[s])
            width[s] = 0.5 * (upper[s] - width[s])
            for d in range(n_features):
                center[d] += middle * frame[s, d]
    return centers, axes, widths, radii, node_squares


@kernel
def _orthogonalize(frame: Floats) -> None:
    """Make rows orthonormal; rows that depend on those before them become zero."""
    n_rows, n_columns = frame.shape
    for s in range(n_rows):
        before = 0.0
        for d in range(n_columns):
            before += frame[s, d] * frame[s, d]
        for t in range(2 * s):  # twice is enough
            along = 0.0
            for d in range(n_columns):
                along += frame[s, d] * frame[t % s, d]
            for d in range(n_columns):
                frame[s, d] -= along * frame[t % s, d]
        after = 0.0
        for d in range(n_columns):
            after += frame[s, d] * frame[s, d]
        scale = 1.0 / math.sqrt(after) if after > 1e-12 * before else 0.0
        for d in range(n_columns):
            frame[s, d] *= scale
