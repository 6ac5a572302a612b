"""The polyhedral partition of latent space on which a network is affine.

Units are inserted one at a time, layer by layer: each splits every cell it crosses.  A cell is
thus never met twice and never missed, whatever the degeneracies of the network; there is nothing to
search for.  (The paper walks from a cell to its neighbors instead; tests compare the two.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from skdgn._geometry import Cells, Intervals, Pieces, integrate_gaussian, whole_space
from skdgn._network import AffineMaps, Network
from skdgn._partition.vertices import Vertices, find_vertices
from skdgn._runtime import Bools, Floats

# A pre-activation is constant on a cell if its slope is below this share of the terms it sums up.
_ROUNDING = 1e-13
# Masses of cells in three dimensions sum to 1 but for this, or boundaries are moved by at most so
# many prior standard deviations, so often.
_LARGEST_MASS_ERROR = 1e-12
_NUDGE = 1e-10
_MOST_NUDGES = 8


@dataclass(frozen=True)
class Partition:
    """Regions of latent space and the affine map of the network on each of them.

    Attributes
    ----------
    cells : Cells
        The regions' geometry.
    patterns : ndarray of shape (R, total hidden units)
        Side of every hidden unit (True where its pre-activation is positive).
    maps : AffineMaps
        ``g(z) = slopes[r] @ z + offsets[r]`` on region r.
    """

    cells: Cells
    patterns: Bools
    maps: AffineMaps

    def __len__(self) -> int:
        return len(self.cells)

    def locate(self, patterns: Bools) -> NDArray[np.intp]:
        """Find the region of each pattern (n, total hidden units)."""
        known = {pattern.tobytes(): region for region, pattern in enumerate(self.patterns)}
        found = [known.get(pattern.tobytes(), -1) for pattern in patterns]
        regions = np.array(found, dtype=np.intp)
        # A point within rounding of a boundary may show a pattern that no region has: it belongs to
        # the region that differs in the fewest units.
        for n in np.flatnonzero(regions < 0):
            regions[n] = np.argmin((self.patterns != patterns[n]).sum(axis=1))
        return regions

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


class TooManyRegionsError(MemoryError):
    """A network has more regions than it was allowed; raised before memory is gone."""

    def __init__(
        self, most_regions: int, n_components: int, hidden_layer_sizes: tuple[int, ...]
    ) -> None:
        super().__init__(
            f"A network with n_components={n_components} and "
            f"hidden_layer_sizes={hidden_layer_sizes} has more than {most_regions} regions in "
            "latent space, the most that can be listed. Reduce n_components or the widths in "
            "hidden_layer_sizes."
        )


def build_partition(network: Network, most_regions: int = 1_000_000) -> Partition:
    """Find all regions of a network, with unbounded cells as they are.

    Raises TooManyRegionsError as soon as there are more than ``most_regions``.

    In three dimensions, boundaries of several layers that nearly are equal and nearly meet in one
    point may, very rarely, defeat the cutting of polyhedra.  The masses of the cells tell: they no
    longer sum to 1.  Then all boundaries are moved a little, by far less than anything depends on,
    since the network is continuous: what falls on the wrong side of one has its value but for
    rounding.
    """
    if network.n_components != 3:
        return _cut_all(network, most_regions)
    generator: np.random.Generator | None = None
    found: list[tuple[float, Partition]] = []
    while len(found) <= _MOST_NUDGES:
        partition = _cut_all(network, most_regions, generator)
        error = _mass_error(partition.cells)
        if error <= _LARGEST_MASS_ERROR:
            return partition
        found.append((error, partition))
        generator = generator or np.random.default_rng(0)
    return min(found, key=lambda trial: trial[0])[1]


def _mass_error(cells: Cells) -> float:
    """By how much the masses of cells under the prior do not sum to 1."""
    n_dimensions = 3
    integrals = integrate_gaussian(
        cells, np.zeros(n_dimensions), np.eye(n_dimensions), math.log(_LARGEST_MASS_ERROR / 100.0)
    )
    if integrals.errors.any():
        return 0.0  # estimates do not tell
    return abs(float(np.exp(integrals.log_masses).sum()) - 1.0)


def _cut_all(
    network: Network, most_regions: int, generator: np.random.Generator | None = None
) -> Partition:
    """Insert all units; with a generator, at a place a little off their own."""
    cells = whole_space(network.n_components)
    upstream = AffineMaps.identity(network.n_components)
    patterns: Bools = np.empty((1, 0), dtype=bool)
    for layer in range(network.n_hidden_layers):
        functions = _without_noise(network, layer, upstream)
        boundaries = functions
        if generator is not None:
            lengths = np.linalg.norm(functions.slopes, axis=2)
            nudges = _NUDGE * generator.uniform(-1.0, 1.0, functions.offsets.shape[1])
            boundaries = replace(functions, offsets=functions.offsets + nudges * lengths)
        pieces = _split(cells, boundaries, network, most_regions)
        cells = pieces.cells
        patterns = np.concatenate([patterns[pieces.parents], pieces.positive], axis=1)
        upstream = network.activate(functions.take(pieces.parents), pieces.positive)
    return Partition(cells, patterns, network.preactivations(network.n_hidden_layers, upstream))


def _split(cells: Cells, functions: AffineMaps, network: Network, most_regions: int) -> Pieces:
    """Cut cells by the units of a layer: the pieces, with their sides of all units (R, u)."""
    error = TooManyRegionsError(most_regions, network.n_components, network.hidden_layer_sizes)
    if isinstance(cells, Intervals):
        # So quick that the calls for the units would take longer.
        pieces = cells.split_all(functions.slopes[:, :, 0], functions.offsets)
        if len(pieces.parents) > most_regions:
            raise error
        return pieces
    regions: NDArray[np.intp] = np.arange(len(cells))
    sides: Bools = np.empty(functions.offsets.shape, dtype=bool)
    lengths = np.linalg.norm(functions.slopes, axis=2)
    scale = np.where(lengths > 0, lengths, 1.0)
    gradients = functions.slopes / scale[:, :, None]
    values = functions.offsets / scale
    for unit in range(values.shape[1]):
        pieces = cells.split(np.ascontiguousarray(gradients[regions, unit]), values[regions, unit])
        if len(pieces.parents) > most_regions:
            raise error
        cells = pieces.cells
        regions = regions[pieces.parents]
        sides = sides[pieces.parents]
        sides[:, unit] = pieces.positive
    return Pieces(cells, regions, sides)


def _without_noise(network: Network, layer: int, upstream: AffineMaps) -> AffineMaps:
    """Pre-activations of a layer, with zeros where they are zero but for rounding."""
    functions = network.preactivations(layer, upstream)
    if layer == 0:
        return functions  # nothing was added up
    scales = network.preactivation_scales(layer, upstream)
    slopes: Floats = np.where(
        np.abs(functions.slopes) > _ROUNDING * scales.slopes, functions.slopes, 0.0
    )
    constant = ~slopes.any(axis=2)
    zero = constant & (np.abs(functions.offsets) <= _ROUNDING * scales.offsets)
    return AffineMaps(slopes, np.where(zero, 0.0, functions.offsets))
