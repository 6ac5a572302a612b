"""Groups of regions, and a bound on what a whole group can contribute to a density.

On region r the density of x given z is at most exp(-dist(x~, g~(r))^2 / 2) times a constant, and
the prior mass of a group is at most one.  So whatever encloses the image of a group of regions, in
units of the noise, bounds the sum of their shares.  Groups form a binary tree: most regions are
dismissed in large groups, and the cost of a sample hardly follows the size of the partition.

The image of a group is nearly flat, a patch of a surface of S dimensions.  It is enclosed in a box
of S dimensions, of a certain thickness in all other directions.  Cells may be unbounded, their
images too; but the prior mass outside a cube around the origin is as good as nothing: cells are cut
off there, and what was cut off has a bound of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from skdgn._geometry import Cells, Corners, Pieces
from skdgn._partition import Partition
from skdgn._posterior.listed.frames import Frame
from skdgn._runtime import Floats, Integers

# A bound on a group costs about as much as one on a region: smaller groups would not pay.
_LARGEST_LEAF = 8
# To walk along so many intervals takes half as long as to search for those that matter.
_MOST_INTERVALS = 64
# Boxes of so many groups are computed at a time.
_GROUPS_AT_A_TIME = 64
# To walk along so many intervals takes half as long as to search for those that matter.
_MOST_INTERVALS = 64
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


def group_regions(partition: Partition, frame: Frame, in_groups: bool = True) -> Groups:
    """Halve the regions, again and again, across the latent dimension in which they differ most.

    Or leave them in one group.
    """
    n_regions, n_coordinates, n_components = frame.shape
    few = _MOST_INTERVALS if n_components == 1 else _LARGEST_LEAF
    if n_regions <= few or not in_groups:
        return _one_group(n_regions, n_coordinates, n_components, frame.log_constant)
    corners, squares = cut_corners(partition.cells)
    n_leaves = 1
    while n_leaves * _LARGEST_LEAF < n_regions:
        n_leaves *= 2
    regions = _sort_regions(corners, n_leaves)
    start = -(-np.arange(n_leaves + 1) * n_regions // n_leaves)
    tree = _Tree(n_leaves, n_coordinates, n_components)
    tree.enclose_leaves(start, regions, corners, frame)
    tree.enclose_groups()
    return Groups(
        n_leaves,
        start,
        regions,
        tree.centers,
        tree.axes,
        tree.widths,
        tree.radii,
        reduce_over_tree(np.minimum, squares, start, regions),
        frame.log_constant,
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


def bound_cells(cells: Cells) -> tuple[Floats, Floats]:
    """Find boxes around cells, infinite unless all corners are known: (R, S) each."""
    corners, squares = cut_corners(cells)
    n_dimensions = corners.points.shape[1]
    lower = np.full((len(cells), n_dimensions), -np.inf)
    upper = np.full((len(cells), n_dimensions), np.inf)
    some = np.flatnonzero(np.diff(corners.start))
    if some.size > 0:
        begins = corners.start[some]
        lower[some] = np.minimum.reduceat(corners.points, begins)
        upper[some] = np.maximum.reduceat(corners.points, begins)
    lower[squares < np.inf], upper[squares < np.inf] = -np.inf, np.inf
    return lower, upper


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


def _sort_regions(corners: Corners, n_leaves: int) -> Integers:
    """Sort regions such that halves of halves ... of the list are neighbors."""
    n_regions = len(corners.start) - 1
    centers = np.zeros((n_regions, corners.points.shape[1]))
    n_corners = np.diff(corners.start)
    some = np.flatnonzero(n_corners)
    if some.size > 0:
        sums = np.add.reduceat(corners.points, corners.start[some])
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


class _Tree:
    """Boxes around the images of groups: those of leaves first, then boxes around two others."""

    def __init__(self, n_leaves: int, n_features: int, n_components: int) -> None:
        self.n_leaves = n_leaves
        self.slopes = np.zeros((2 * n_leaves, n_features, n_components))  # sums over the regions
        self.centers = np.zeros((2 * n_leaves, n_features))
        self.axes = np.zeros((2 * n_leaves, n_components, n_features))
        self.widths = np.zeros((2 * n_leaves, n_components))
        self.radii = np.full(2 * n_leaves, -np.inf)

    def enclose_leaves(
        self,
        start: Integers,
        regions: Integers,
        corners: Corners,
        frame: Frame,
    ) -> None:
        """Enclose the images of the corners of the leaves' regions."""
        for leaves in _parts(0, self.n_leaves):
            first, last = start[leaves.start], start[leaves.stop]
            own = regions[first:last]
            maps = frame.take(own)
            slopes, offsets = maps.slopes, maps.offsets
            nodes = np.arange(leaves.start, leaves.stop) + self.n_leaves
            self._place_axes(nodes, np.add.reduceat(slopes, start[leaves] - first))
            n_corners = np.diff(corners.start)[own]
            latent = corners.points[_blocks(corners.start[own], n_corners)]
            owner = np.repeat(np.arange(len(own)), n_corners)
            images = offsets[owner] + np.einsum("pds,ps->pd", slopes[owner], latent)
            leaf = np.repeat(nodes, np.diff(start[leaves.start : leaves.stop + 1]))
            self._enclose(images, leaf[owner], np.zeros(len(images)))

    def enclose_groups(self) -> None:
        """Enclose the boxes of the two halves of every other group, from the smallest groups on."""
        n_components = self.widths.shape[1]
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=n_components)))
        n_nodes = self.n_leaves // 2
        while n_nodes > 0:
            for part in _parts(n_nodes, 2 * n_nodes):
                nodes = np.arange(part.start, part.stop)
                self._place_axes(nodes, self.slopes[2 * nodes] + self.slopes[2 * nodes + 1])
                halves = np.arange(2 * part.start, 2 * part.stop)
                halves = halves[self.radii[halves] >= 0.0]
                moves = np.einsum("cs,ns,nsd->ncd", signs, self.widths[halves], self.axes[halves])
                points = (self.centers[halves, None] + moves).reshape(-1, self.centers.shape[1])
                owner = np.repeat(halves // 2, len(signs))
                self._enclose(points, owner, np.repeat(self.radii[halves], len(signs)))
            n_nodes //= 2

    def _place_axes(self, nodes: Integers, slopes: Floats) -> None:
        """Let the axes of groups be their mean slopes, orthogonalized."""
        self.slopes[nodes] = slopes
        frames = np.linalg.qr(slopes)[0].swapaxes(1, 2)
        self.axes[nodes[:, None], np.arange(frames.shape[1])] = frames

    def _enclose(self, points: Floats, owner: Integers, radii: Floats) -> None:
        """Enclose balls around points (P, D) in the box of the group that owns each, in order."""
        if len(owner) == 0:
            return
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        node, n_points = owner[first], np.diff(first, append=len(owner))
        middle = np.add.reduceat(points, first) / n_points[:, None]
        # Of every point: where it is along the axes, and how far from their plane.
        differences = points - np.repeat(middle, n_points, axis=0)
        along = np.einsum("pd,psd->ps", differences, self.axes[owner])
        across = np.einsum("pd,pd->p", differences, differences) - (along * along).sum(axis=1)
        self.radii[node] = np.maximum.reduceat(np.sqrt(np.maximum(0.0, across)) + radii, first)
        lower = np.minimum.reduceat(along - radii[:, None], first)
        upper = np.maximum.reduceat(along + radii[:, None], first)
        self.widths[node] = 0.5 * (upper - lower)
        middles = np.einsum("ns,nsd->nd", 0.5 * (lower + upper), self.axes[node])
        self.centers[node] = middle + middles


def _parts(begin: int, end: int) -> Iterator[slice]:
    """Divide groups into parts of which everything stays in the processor's cache."""
    for first in range(begin, end, _GROUPS_AT_A_TIME):
        yield slice(first, min(first + _GROUPS_AT_A_TIME, end))


def _blocks(begin: Integers, sizes: Integers) -> Integers:
    """List the members of blocks: ``begin[i], ..., begin[i] + sizes[i] - 1`` for every i."""
    before = np.cumsum(sizes) - sizes
    members: Integers = np.arange(sizes.sum()) + np.repeat(begin - before, sizes)
    return members
