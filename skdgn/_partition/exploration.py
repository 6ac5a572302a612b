"""Regions that were met by points, instead of a list of all.

With four latent dimensions and more there are too many regions to list, and nearly all of them
matter to nobody.  A region is known by its pattern, and by one point inside: maps and half-spaces
are made of these when somebody asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from skdgn._geometry import Corners, Facets, Pieces, Polytopes
from skdgn._network import AffineMaps, Codes, Layer, Network
from skdgn._partition.composed_maps import ComposedMaps
from skdgn._partition.enumeration import Partition
from skdgn._runtime import Floats, Integers

# A function is constant on a region if its slope is below this share of its largest one.
_ROUNDING = 1e-13


def explored_partition(network: Network, points: Floats, patterns: Codes) -> Partition:
    """Return the regions with these patterns (R, c), no two alike; points (R, S) are inside."""
    maps = ComposedMaps(
        network.layers,
        AffineMaps.identity(network.n_components),
        np.zeros(len(patterns), dtype=np.intp),
        patterns,
    )
    return Partition(ExploredCells(network, points, patterns), patterns, maps)


@dataclass(frozen=True)
class ExploredCells:
    """Cells of regions of which a pattern and a point inside are known.

    Every cut of the network is a half-space of every cell, redundant ones included: it would take
    longer to find out which these are than to use them.
    """

    network: Network
    points: Floats  # (R, S)
    patterns: Codes  # (R, c)

    @classmethod
    def whole_space(cls, n_dimensions: int) -> Any:
        """Return one cell, all of latent space, of the kind that these are made as."""
        return Polytopes.whole_space(n_dimensions)

    @cached_property
    def polytopes(self) -> Polytopes:
        """The cells as half-spaces."""
        maps = self.network.maps(self.patterns)[:-1]
        codes = self.network.split_patterns(self.patterns)
        gradients, values = [self.points[:, None][:, :0]], [self.points[:, :0]]
        for layer, before, own in zip(self.network.layers, maps, codes, strict=True):
            if layer.n_codes:
                functions = _distances(layer, before, own, len(self.points))
                gradients.append(functions.slopes)
                values.append(functions.offsets)
        normals, offsets = np.concatenate(gradients, axis=1), -np.concatenate(values, axis=1)
        lengths = np.linalg.norm(normals, axis=2)
        cuts = lengths > _ROUNDING * lengths.max(axis=0, initial=0.0)
        heights = np.einsum("rfs,rs->rf", normals, self.points) - offsets
        # Codes and signs may differ within rounding of a boundary: the point is inside.
        signs = np.where(heights >= 0.0, 1.0, -1.0) / np.where(cuts, lengths, 1.0)
        normals, offsets = normals * signs[:, :, None], offsets * signs
        start = np.concatenate([[0], np.cumsum(cuts.sum(axis=1))])
        return Polytopes(start, normals[cuts], offsets[cuts], self.points)

    def __len__(self) -> int:
        return len(self.points)

    def take(self, indices: Integers) -> ExploredCells:
        """Return the cells with these indices."""
        return ExploredCells(self.network, self.points[indices], self.patterns[indices])

    def split(self, gradients: Floats, values: Floats) -> Pieces:
        """Cut every cell by a hyperplane of its own."""
        return self.polytopes.split(gradients, values)

    def facets(self) -> Facets:
        """List the half-spaces of every cell."""
        return self.polytopes.facets()

    def corners(self) -> Corners:
        """List no vertices."""
        return self.polytopes.corners()

    def interior_points(self) -> Floats:
        """Return the point that is known of every cell."""
        return self.points

    def whiten(self, factors: Floats) -> Any:
        """Express cell r in coordinates y with ``z = factors[r] @ y``."""
        return self.polytopes.whiten(factors)


def _distances(layer: Layer, before: AffineMaps, codes: Codes, n_regions: int) -> AffineMaps:
    """Return the functions (R, m) that have one sign in a region, given maps into the layer."""
    everywhere = np.zeros(n_regions, dtype=np.intp) if len(before.offsets) == 1 else slice(None)
    before = before.take(everywhere)  # type: ignore[arg-type]  # a slice takes all
    if layer.contests is None:
        return layer.cuts(before)
    groups = layer.contests
    winners = groups[np.arange(len(groups)), codes][:, :, None]  # (R, c, 1)
    every = np.arange(n_regions)[:, None, None]
    rivals = np.broadcast_to(groups, (n_regions, *groups.shape))
    slopes = before.slopes[every, winners] - before.slopes[every, rivals]
    offsets = before.offsets[every, winners] - before.offsets[every, rivals]
    return AffineMaps(
        slopes.reshape(n_regions, -1, slopes.shape[-1]), offsets.reshape(n_regions, -1)
    )
