"""The polyhedral partition of latent space on which a network is affine.

Units are inserted one at a time, layer by layer: each splits every cell it crosses.  A cell is
thus never met twice and never missed, whatever the degeneracies of the network; there is nothing to
search for.  (The paper walks from a cell to its neighbors instead; tests compare the two.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from skdgn._geometry import (
    Cells,
    Intervals,
    Pieces,
    integrate_gaussian,
    join_cells,
    whole_space,
)
from skdgn._network import AffineMaps, Architecture, Codes, Network
from skdgn._partition.composed_maps import ComposedMaps, JoinedMaps, LazyMaps, compose
from skdgn._partition.index import find_similar
from skdgn._partition.vertices import Vertices, find_vertices
from skdgn._runtime import Bools, Floats

# A pre-activation is constant on a cell if its slope is below this share of the terms it sums up.
_ROUNDING = 1e-13
# Masses of cells in three dimensions sum to 1 but for this, or boundaries are moved by at most so
# many prior standard deviations, so often.
_LARGEST_MASS_ERROR = 1e-12
_NUDGE = 1e-10
_MOST_NUDGES = 8
# Values at the corners of so many cells are compared at a time.
_CELLS_AT_A_TIME = 64
# Sides of so many units are handed on from cells to their pieces at a time.
_UNITS_AT_A_TIME = 32


@dataclass(frozen=True)
class Partition:
    """Regions of latent space and the affine map of the network on each of them.

    Attributes
    ----------
    cells : Cells
        The regions' geometry.
    patterns : ndarray of shape (R, total hidden units), of small integers
        Side of every hidden unit (1 where its pre-activation is positive, 0 elsewhere).
    maps : LazyMaps
        ``g(z) = slopes[r] @ z + offsets[r]`` on region r.
    """

    cells: Cells
    patterns: Codes
    maps: LazyMaps

    @classmethod
    def join(cls, parts: Sequence[Partition]) -> Partition:
        """Put the regions of partitions, of networks of any kind, behind each other.

        Such regions have no patterns.
        """
        cells = join_cells([part.cells for part in parts])
        patterns = np.empty((len(cells), 0), dtype=np.uint8)
        return cls(cells, patterns, JoinedMaps([part.maps for part in parts]))

    def __len__(self) -> int:
        return len(self.cells)

    def locate(self, patterns: Codes) -> NDArray[np.intp]:
        """Find the region of each pattern (n, total hidden units)."""
        return find_similar(patterns, self.patterns)

    def vertices(self, region: int) -> Vertices:
        """Find the vertices and rays of a region, in any number of latent dimensions.

        This needs pycddlib: ``pip install "skdgn[cdd]"``.  It wraps cddlib, which is under the GNU
        General Public License; that is why it is not installed with this package, which is under
        the BSD license.

        Parameters
        ----------
        region : int
            From 0 to the number of regions minus one, in the order of ``weights_`` and of the
            columns of ``predict_proba``.

        Returns
        -------
        vertices : Vertices
            A named tuple of ``vertices`` of shape (n_vertices, n_components) and ``rays`` of shape
            (n_rays, n_components).  The region is the convex hull of its vertices, plus all
            nonnegative combinations of its rays: the directions, of unit length, in which it is
            unbounded.  A region that contains a whole line has no vertices of its own; a point on
            each of its lowest-dimensional faces stands for them, and the line is two rays.

        Raises
        ------
        RuntimeError
            If vertices are too close together for cddlib, which computes in floating point and
            takes 1e-7 of the size of a region for zero.

        Examples
        --------
        The unit changes sides at -0.5:

        >>> from skdgn import PiecewiseAffineDGN
        >>> model = PiecewiseAffineDGN.from_network(
        ...     [[[2.0]], [[1.0], [1.0]]], [[1.0], [0.0, 0.0]], 0.1, activation="relu"
        ... )
        >>> for region in range(model.n_regions_):
        ...     corners = model.partition_.vertices(region)
        ...     print(corners.vertices.tolist(), corners.rays.tolist())
        [[-0.5]] [[-1.0]]
        [[-0.5]] [[1.0]]
        """
        is_integer = isinstance(region, Integral) and not isinstance(region, (bool, np.bool_))
        if not is_integer or not 0 <= region < len(self):
            raise ValueError(
                f"region must be an integer from 0 to {len(self) - 1}, the number of regions minus "
                f"one, got {region!r}."
            )
        start, normals, offsets = self.cells.facets()
        own = slice(start[region], start[region + 1])
        (middle,) = self.cells.take(np.array([region])).interior_points()
        return find_vertices(normals[own], offsets[own], middle)


class TooManyRegionsError(MemoryError, ValueError):
    """A network has more regions than it was allowed; raised before memory is gone.

    Its sizes are to blame: hence it is an error of parameters, too.
    """

    def __init__(
        self, most_regions: int, architecture: Architecture, estimate: float | None = None
    ) -> None:
        about = "" if estimate is None else f" (about {estimate:,.0f}, by a sample of points)"
        super().__init__(
            f"A network with {architecture} has more than {most_regions} regions in latent space"
            f"{about}, the most that can be listed. Reduce n_components or the widths in hidden "
            "layers."
        )


def build_partition(
    network: Network, most_regions: int = 1_000_000, within: Cells | None = None
) -> Partition:
    """Find all regions of a network, with unbounded cells as they are, or all within some cells.

    Raises TooManyRegionsError as soon as there are more than ``most_regions``.

    In three dimensions, boundaries of several layers that nearly are equal and nearly meet in one
    point may, very rarely, defeat the cutting of polyhedra.  The masses of the cells tell: they no
    longer sum to 1.  Then all boundaries are moved and turned a little, by far less than anything
    depends on, since the network is continuous: what falls on the wrong side of one has its value
    but for rounding.
    """
    cells = whole_space(network.n_components) if within is None else within
    if network.n_components != 3:
        return _cut_all(network, most_regions, cells)
    generator: np.random.Generator | None = None
    found: list[tuple[float, Partition]] = []
    while len(found) <= _MOST_NUDGES:
        partition = _cut_all(network, most_regions, cells, generator)
        error = _mass_error(partition.cells, within)
        if error <= _LARGEST_MASS_ERROR:
            return partition
        found.append((error, partition))
        generator = generator or np.random.default_rng(0)
    return min(found, key=lambda trial: trial[0])[1]


def _mass_error(cells: Cells, within: Cells | None) -> float:
    """By how much the masses of cells under the prior do not sum to that of what they divide."""
    expected = 1.0 if within is None else _total_mass(within)
    return abs(_total_mass(cells) - expected)


def _total_mass(cells: Cells) -> float:
    n_dimensions = 3
    integrals = integrate_gaussian(
        cells, np.zeros(n_dimensions), np.eye(n_dimensions), math.log(_LARGEST_MASS_ERROR / 100.0)
    )
    if integrals.errors.any():
        return 1.0  # estimates do not tell
    return float(np.exp(integrals.log_masses).sum())


def _cut_all(
    network: Network,
    most_regions: int,
    cells: Cells,
    generator: np.random.Generator | None = None,
) -> Partition:
    """Insert the cuts of all layers; with a generator, at a place a little off their own."""
    patterns: Codes = np.empty((len(cells), 0), dtype=np.uint8)
    maps, parents = AffineMaps.identity(network.n_components), np.zeros(len(cells), np.intp)
    codes = patterns
    # What cuts begins a segment; the first one has affine layers only.
    begins = [0, *(place for place, layer in enumerate(network.layers) if layer.n_codes)]
    for begin, end in itertools.pairwise(begins):
        maps, scales = compose(network.layers[begin:end], maps, parents, codes)
        layer, maps = network.layers[end], _without_noise(maps, scales) if begin else maps
        nudged = _nudged(maps, generator)
        if layer.contests is None:
            pieces = _split(cells, layer.cuts(nudged), network, most_regions)
            cells, parents, codes = pieces.cells, pieces.parents, layer.read_sides(pieces.positive)
        else:
            contest = _Contest(nudged, scales, network, most_regions)
            cells, parents, codes = contest.divide(cells, layer.contests)
        patterns = np.concatenate([patterns[parents], codes], axis=1)
    composed = ComposedMaps(network.layers[begins[-1] :], maps, parents, codes)
    return Partition(cells, patterns, composed)


def _nudged(functions: AffineMaps, generator: np.random.Generator | None) -> AffineMaps:
    if generator is None:
        return functions
    lengths = np.linalg.norm(functions.slopes, axis=2)
    _, n_units, n_dimensions = functions.slopes.shape
    # Turned as well: boundaries that nearly are parallel meet too far out to tell where.
    moves = _NUDGE * generator.uniform(-1.0, 1.0, (n_units, n_dimensions + 1))
    slopes = functions.slopes + moves[:, :-1] * lengths[:, :, None]
    return replace(functions, slopes=slopes, offsets=functions.offsets + moves[:, -1] * lengths)


@dataclass(frozen=True)
class _Contest:
    """Divides cells by which member of a group of functions is the largest."""

    functions: AffineMaps  # (R, i)
    scales: AffineMaps  # sums of the sizes of their terms
    network: Network
    most_regions: int

    def divide(
        self, cells: Cells, groups: NDArray[np.intp]
    ) -> tuple[Cells, NDArray[np.intp], Codes]:
        """Return the pieces, the cells they come from, and who wins every group there.

        A copy of each cell is made for every member, and cut down to where that member wins: so
        there is no more than one piece for each of them.
        """
        parents: NDArray[np.intp] = np.arange(len(cells))
        codes: Codes = np.empty((len(cells), len(groups)), dtype=np.uint8)
        for place, group in enumerate(groups):
            n_members = 1 + int((group[1:] != group[0]).sum())
            copies = np.repeat(np.arange(len(cells)), n_members)
            winners = np.tile(np.arange(n_members, dtype=np.uint8), len(cells))
            cells, parents, codes = cells.take(copies), parents[copies], codes[copies]
            codes[:, place] = winners
            for rival in range(n_members):
                gradients, values = self._leads(parents, group, codes[:, place], rival)
                pieces = cells.split(gradients, values)
                won = np.flatnonzero(pieces.positive)
                cells, origins = pieces.cells.take(won), pieces.parents[won]
                parents, codes = parents[origins], codes[origins]
            if len(cells) > self.most_regions:
                raise TooManyRegionsError(self.most_regions, self.network.architecture)
        return cells, parents, codes

    def _leads(
        self, parents: NDArray[np.intp], group: NDArray[np.intp], winners: Codes, rival: int
    ) -> tuple[Floats, Floats]:
        """By how much winners are ahead of a rival, in units of the slope; 1 if always, -1 never.

        Of equals, the first wins.
        """
        first, second = group[winners], group[rival]
        functions, scales = self.functions, self.scales
        lead = AffineMaps(
            (functions.slopes[parents, first] - functions.slopes[parents, second])[:, None],
            (functions.offsets[parents, first] - functions.offsets[parents, second])[:, None],
        )
        sizes = AffineMaps(
            (scales.slopes[parents, first] + scales.slopes[parents, second])[:, None],
            (scales.offsets[parents, first] + scales.offsets[parents, second])[:, None],
        )
        lead = _without_noise(lead, sizes)
        gradients, values = lead.slopes[:, 0], lead.offsets[:, 0]
        lengths = np.linalg.norm(gradients, axis=1)
        is_constant = lengths == 0.0
        ahead = (values > 0) | ((values == 0) & (winners <= rival))
        lengths = np.where(is_constant, 1.0, lengths)
        return (
            np.ascontiguousarray(gradients / lengths[:, None]),
            np.where(is_constant, np.where(ahead, 1.0, -1.0), values / lengths),
        )


def _without_noise(maps: AffineMaps, scales: AffineMaps) -> AffineMaps:
    """Put zeros where maps are zero but for rounding, given the sums of their terms' sizes."""
    slopes: Floats = np.where(np.abs(maps.slopes) > _ROUNDING * scales.slopes, maps.slopes, 0.0)
    constant = ~slopes.any(axis=2)
    zero = constant & (np.abs(maps.offsets) <= _ROUNDING * scales.offsets)
    return AffineMaps(slopes, np.where(zero, 0.0, maps.offsets))


def _split(cells: Cells, functions: AffineMaps, network: Network, most_regions: int) -> Pieces:
    """Cut cells by the zeros of functions (R, m): the pieces, with their sides of all (R, m)."""
    if isinstance(cells, Intervals):
        # So quick that the calls for the units would take longer.
        pieces = cells.split_all(functions.slopes[:, :, 0], functions.offsets)
        if len(pieces.parents) > most_regions:
            raise TooManyRegionsError(most_regions, network.architecture)
        return pieces
    regions: NDArray[np.intp] = np.arange(len(cells))
    lengths = np.linalg.norm(functions.slopes, axis=2)
    scale = np.where(lengths > 0, lengths, 1.0)
    gradients = functions.slopes / scale[:, :, None]
    values = functions.offsets / scale
    crossing, uncrossed = _find_crossing(cells, gradients, values)
    sides: Bools = np.array(np.broadcast_to(uncrossed, values.shape))
    for units in np.split(crossing, range(_UNITS_AT_A_TIME, len(crossing), _UNITS_AT_A_TIME)):
        # Pieces inherit the sides of their cells: once for all of these units.
        found = []
        for unit in units:
            slopes = np.ascontiguousarray(gradients[regions, unit])
            pieces = cells.split(slopes, values[regions, unit])
            if len(pieces.parents) > most_regions:
                raise TooManyRegionsError(most_regions, network.architecture)
            cells, regions = pieces.cells, regions[pieces.parents]
            found.append((pieces.parents, pieces.positive))
        ancestors = np.arange(len(cells))
        own = np.empty((len(cells), len(units)), dtype=bool)
        for place, (parents, positive) in reversed(list(enumerate(found))):
            own[:, place] = positive[ancestors]
            ancestors = parents[ancestors]
        sides = sides[ancestors]
        sides[:, units] = own
    return Pieces(cells, regions, sides)


def _find_crossing(
    cells: Cells, gradients: Floats, values: Floats
) -> tuple[NDArray[np.intp], Bools | bool]:
    """Find the units whose zeros may cross a cell, and the sides (R, m) of all others.

    By the corners of the cells: where some cells are unbounded, all units may.
    """
    start, points = cells.corners()
    every = np.arange(values.shape[1])
    if np.any(np.diff(start) == 0):
        return every, False
    crossing, positive = np.zeros(len(every), dtype=bool), np.empty(values.shape, dtype=bool)
    for begin in range(0, len(values), _CELLS_AT_A_TIME):
        end = min(begin + _CELLS_AT_A_TIME, len(values))
        own = slice(start[begin], start[end])
        owners = np.repeat(np.arange(begin, end), np.diff(start[begin : end + 1]))
        at_corners = np.einsum("vms,vs->vm", gradients[owners], points[own]) + values[owners]
        firsts = start[begin:end] - start[begin]
        lowest = np.minimum.reduceat(at_corners, firsts)
        highest = np.maximum.reduceat(at_corners, firsts)
        crossing |= np.any((lowest < 0.0) & (highest > 0.0), axis=0)
        positive[begin:end] = highest > 0.0
    return np.flatnonzero(crossing), positive
