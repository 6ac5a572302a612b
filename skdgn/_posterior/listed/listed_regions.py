"""Listed regions under a noise: what all that visit them have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from skdgn._network import Codes
from skdgn._noise import Noise, NoiseUnits
from skdgn._partition import Partition
from skdgn._posterior.listed.incomplete_conditionals import RegionMaps
from skdgn._posterior.listed.region_groups import bound_cells
from skdgn._posterior.listed.sparse_posteriors import Visits
from skdgn._runtime import Floats, Integers, kernel

Gaussians = tuple[Floats, Floats]  # means (n, S), lower factors of the covariances (n, S, S)


class ListedRegions(ABC):
    """Regions that have numbers, by which visits name them."""

    partition: Partition
    noise: Noise

    @property
    @abstractmethod
    def sample_bytes(self) -> float:
        """Memory that a sample takes while its regions are visited."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Partition]:
        """The regions, those whose images lie in one plane together."""

    @abstractmethod
    def parts_for(self, samples: Floats) -> Iterator[tuple[Partition, Integers]]:
        """Yield these parts, and the samples (n, D) for which each of them may matter."""

    @abstractmethod
    def generate(self, latent: Floats) -> Floats:
        """Return the images (m, D) of latent points (m, S)."""

    @abstractmethod
    def visit(self, samples: Floats) -> Visits:
        """Compute the exact posterior of samples (n, D), NaN where a value is missing."""

    @abstractmethod
    def condition(self, samples: Floats, visits: Visits) -> tuple[Floats, Floats]:
        """Compute the conditional Gaussian of every visit: factors (v, S, S), centers (v, S).

        Truncated to its region, N(factor @ center, factor @ factor') is the posterior there.
        """

    @cached_property
    def units(self) -> NoiseUnits:
        """Units of the noise, feature by feature."""
        return NoiseUnits.of(self.noise)

    @cached_property
    def region_maps(self) -> RegionMaps:
        """Maps of all regions in these units."""
        maps, deviations = self.partition.maps, self.units.deviations
        return RegionMaps(
            np.ascontiguousarray(maps.slopes / deviations[:, None]),
            np.ascontiguousarray(maps.offsets / deviations),
            self.partition.cells.facets(),
        )

    @cached_property
    def cells(self) -> Any:
        """The regions as they are in latent space, to be whitened one by one."""
        n_regions, _, n_components = self.partition.maps.shape
        return self.partition.cells.whiten(np.tile(np.eye(n_components), (n_regions, 1, 1)))

    @cached_property
    def bounds(self) -> tuple[Floats, Floats]:
        """Boxes around the regions: lower and upper ends."""
        return bound_cells(self.partition.cells)

    def find_regions(self, latent: Floats, least_depth: float = -math.inf) -> Integers:
        """Find the region in which each latent point (m, S) is deepest; on a boundary, either one.

        It is -1 if a point is not as deep as that in any.
        """
        facets = self.partition.cells.facets()
        normals = np.ascontiguousarray(facets.normals)
        return _find_deepest(facets.start, normals, facets.offsets, latent, least_depth)

    def reach(self, samples: Floats, gaussians: Gaussians) -> ListedRegions:
        """Return a visitor of the regions that matter for samples and their Gaussians, too."""
        return self

    def settle(self, visits: Visits) -> Self:
        """Return what knows the regions of visits: these are listed, all of them."""
        return self

    def explored(self, patterns: Codes, points: Floats) -> Partition:
        """Return the regions with these patterns: here, all that are listed."""
        return self.partition

    def locate(self, visits: Visits) -> Integers:
        """Return the region of every visit."""
        return visits.regions

    @property
    def is_exact(self) -> bool:
        """Whether all regions are listed: no visit is a guess."""
        return True


@kernel
def _find_deepest(
    start: Integers,
    normals: Floats,
    offsets: Floats,
    points: Floats,
    least_depth: float,
) -> Integers:
    regions = np.full(len(points), -1)
    for i in range(len(points)):
        deepest = least_depth
        for r in range(start.size - 1):
            depth = math.inf
            for f in range(start[r], start[r + 1]):
                distance = -offsets[f]
                for s in range(points.shape[1]):
                    distance += normals[f, s] * points[i, s]
                depth = min(depth, distance)
                if depth <= deepest:
                    break
            if depth > deepest:
                deepest, regions[i] = depth, r
    return regions
