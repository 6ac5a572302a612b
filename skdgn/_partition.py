"""The polyhedral partition of latent space on which a network is affine.

Units are inserted one at a time, layer by layer: each splits every cell it crosses.  A cell is
thus never met twice and never missed, whatever the degeneracies of the network; there is nothing to
search for.  (The paper walks from a cell to its neighbours instead; tests compare the two.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skdgn._cells import Cells, Intervals, Pieces, whole_space
from skdgn._network import AffineMaps, Bools, Floats, Network

# A pre-activation is constant on a cell if its slope is below this share of the terms it sums up.
_ROUNDING = 1e-13


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
    """
    cells = whole_space(network.n_components)
    upstream = AffineMaps.identity(network.n_components)
    patterns: Bools = np.empty((1, 0), dtype=bool)
    for layer in range(network.n_hidden_layers):
        functions = _without_noise(network, layer, upstream)
        pieces = _split(cells, functions, network, most_regions)
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
