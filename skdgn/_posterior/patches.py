"""Visits of regions that are too many to be compared with samples all at once: patch by patch.

A patch is a box of latent space, together with a network that equals the generator on it and has
few units (`skdgn._network.restriction`).  So its regions are quickly listed, and their images lie
in a plane of few dimensions, in which samples are compared with them.  The posterior of a sample is
put together from its visits to the patches that matter for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skdgn._network import Network, restrict_network
from skdgn._noise import Noise
from skdgn._partition import LatentBoxes, Partition, TooManyRegionsError, build_partition
from skdgn._posterior.listed import (
    NEGLIGIBLE,
    Gaussians,
    ListedRegions,
    Visitor,
    Visits,
    unexplored,
)
from skdgn._runtime import Bools, Floats, Integers

# For so few samples it does not pay to group the regions of a patch.
_FEW_SAMPLES = 24
# Regions that are kept for one posterior: of more, cells alone would take gigabytes.
_MOST_REGIONS = 4_000_000


def list_patch(network: Network, box: LatentBoxes, most_regions: int = _MOST_REGIONS) -> Partition:
    """List the regions of a network within one box."""
    local = restrict_network(network, box.centers[0], float(box.halves[0]))
    try:
        return build_partition(local, most_regions, within=box.cells())
    except TooManyRegionsError:
        raise TooManyRegionsError(_MOST_REGIONS, network.architecture) from None


def list_patches(network: Network, boxes: LatentBoxes) -> list[Partition]:
    """List the regions of a network within each of some boxes."""
    patches, n_left = [], _MOST_REGIONS
    for number in range(len(boxes.halves)):
        patches.append(list_patch(network, boxes.take(np.array([number])), n_left))
        n_left -= len(patches[-1])
    return patches


def visit_patch(patch: Partition, noise: Noise, samples: Floats, log_floors: Floats) -> Visits:
    """Visit the regions of one patch that count, if log densities are at least floors (n,)."""
    visitor = Visitor.prepare(patch, noise, len(samples) > _FEW_SAMPLES)
    return visitor.visit(samples, log_floors=log_floors)


class KnownSample(NamedTuple):
    """What is known of a sample before its regions are visited."""

    matters: Bools  # which patches, of all
    log_floor: float  # its log density at least, about


class _Shares(NamedTuple):
    """Visits of some samples to one patch; log shares are not divided by the density yet."""

    samples: Integers  # (v,) of each visit
    regions: Integers  # (v,)
    log_shares: Floats  # (v,)
    means: Floats  # (v, S)
    covariances: Floats  # (v, S, S)

    def drop(self, log_smallest: Floats) -> _Shares:
        """Leave out shares of less than this, for each sample (n,)."""
        return self.take(self.log_shares >= log_smallest[self.samples])

    def take(self, chosen: Integers | Bools) -> _Shares:
        """Return some of the visits."""
        return _Shares(
            self.samples[chosen],
            self.regions[chosen],
            self.log_shares[chosen],
            self.means[chosen],
            self.covariances[chosen],
        )


@dataclass(frozen=True)
class PatchVisitor(ListedRegions):
    """Visits the regions of a network's patches; their numbers go on from patch to patch.

    Which patches matter for which samples may be known; for other samples, all of them do.
    """

    network: Network
    patches: list[Partition]
    noise: Noise
    known: dict[bytes, KnownSample]  # by the bytes of a sample
    visits_bytes: float  # of a sample
    explore: Callable[[Floats, Gaussians], PatchVisitor]  # anew, for samples and Gaussians

    @property
    def sample_bytes(self) -> float:
        """Memory that a sample takes while its regions are visited."""
        return self.visits_bytes

    @cached_property
    def partition(self) -> Partition:  # type: ignore[override]  # computed, not stored
        """The regions of all patches."""
        return Partition.join(self.patches)

    @cached_property
    def _start(self) -> Integers:
        return np.cumsum([0, *map(len, self.patches)])

    @property
    def parts(self) -> list[Partition]:
        """The patches."""
        return self.patches

    def parts_for(self, samples: Floats) -> Iterator[tuple[Partition, Integers]]:
        """Yield patches, and for which samples (n, D) each of them matters."""
        matters, _ = self._recall(samples)
        for patch, own in zip(self.patches, matters.T, strict=True):
            yield patch, np.flatnonzero(own)

    def reach(self, samples: Floats, gaussians: Gaussians) -> PatchVisitor:
        """Return a visitor of the patches that matter for samples and their Gaussians, too."""
        return self.explore(samples, gaussians)

    def find_regions(self, latent: Floats, least_depth: float = 0.0) -> Integers:
        """Find the regions of latent points (m, S), -1 outside of patches."""
        return super().find_regions(latent, least_depth)

    def generate(self, latent: Floats) -> Floats:
        """Return the images (m, D) of latent points (m, S), in patches or not."""
        return self.network.forward(latent)

    def _recall(self, samples: Floats) -> tuple[Bools, Floats]:
        """Tell which patches matter for samples, (n, number of patches), and log floors (n,)."""
        unknown = KnownSample(np.ones(len(self.patches), dtype=bool), -math.inf)
        known = [self.known.get(sample.tobytes(), unknown) for sample in samples]
        matters = np.reshape([own.matters for own in known], (len(samples), len(self.patches)))
        return matters, np.array([own.log_floor for own in known])

    def visit(self, samples: Floats) -> Visits:
        """Compute the exact posterior of samples (n, D), NaN where a value is missing."""
        samples = np.ascontiguousarray(samples)
        n_components = self.patches[0].maps.shape[2]
        log_density = np.full(len(samples), -np.inf)
        matters, log_floors = self._recall(samples)
        parts: list[_Shares] = []
        for number, patch in enumerate(self.patches):
            used = np.flatnonzero(matters[:, number])
            visits = visit_patch(patch, self.noise, samples[used], log_floors[used])
            log_density[used] = np.logaddexp(log_density[used], visits.log_density)
            log_floors = np.maximum(log_floors, log_density)
            counts = np.diff(visits.start)
            with np.errstate(divide="ignore"):  # a share so small that it is zero
                log_shares = np.log(visits.responsibilities)
            part = _Shares(
                np.repeat(used, counts),
                visits.regions + self._start[number],
                log_shares + np.repeat(visits.log_density, counts),
                visits.means,
                visits.covariances,
            )
            parts.append(part.drop(log_floors - NEGLIGIBLE))
        log_density[np.isnan(samples).all(axis=1)] = 0.0  # all of the prior, but for rounding
        visited = _join(parts, log_density - NEGLIGIBLE)
        counts = np.bincount(visited.samples, minlength=len(samples))
        with np.errstate(invalid="ignore"):
            log_responsibilities = visited.log_shares - log_density[visited.samples]
        # So far out that the density is zero: nothing is known, in whatever patch.
        unknown = np.isneginf(log_density)[visited.samples]
        log_responsibilities[unknown] = -np.log(counts[visited.samples[unknown]])
        return Visits(
            log_density,
            np.concatenate([[0], np.cumsum(counts)]),
            visited.regions,
            np.exp(log_responsibilities),
            visited.means,
            visited.covariances,
            np.zeros(len(samples)),
            *unexplored(n_components),
        )

    def condition(self, samples: Floats, visits: Visits) -> tuple[Floats, Floats]:
        """Compute the conditional Gaussian of every visit: factors (v, S, S), centers (v, S)."""
        factors, centers = np.empty_like(visits.covariances), np.empty_like(visits.means)
        owner = np.repeat(np.arange(len(samples)), np.diff(visits.start))
        patch_of = np.searchsorted(self._start, visits.regions, side="right") - 1
        for number in np.unique(patch_of):
            own = np.flatnonzero(patch_of == number)
            used, counts = np.unique(owner[own], return_counts=True)
            part = visits._replace(
                start=np.concatenate([[0], np.cumsum(counts)]),
                regions=visits.regions[own] - self._start[number],
            )
            visitor = Visitor.prepare(self.patches[number], self.noise, in_groups=False)
            factors[own], centers[own] = visitor.condition(samples[used], part)
        return factors, centers


def _join(parts: list[_Shares], log_smallest: Floats) -> _Shares:
    """Put visits to all patches together, those of each sample behind each other."""
    kept = [part.drop(log_smallest) for part in parts]
    joined = _Shares(*map(np.concatenate, zip(*kept, strict=True)))
    return joined.take(np.argsort(joined.samples, kind="stable"))
