"""Posteriors for four latent dimensions and more: regions are explored, not listed.

Points that stand for the posterior of a sample (`skdgn._posterior.explored.posterior_search`) are
grouped by region: these are the sample's visits, and from there on everything is as it is with
fewer dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skdgn._geometry import CellIntegrals
from skdgn._network import Codes, Network
from skdgn._noise import Noise
from skdgn._partition import Partition, add_regions, explored_partition
from skdgn._posterior.explored.likelihoods import observed_likelihoods
from skdgn._posterior.explored.point_groups import MOST_VISITS
from skdgn._posterior.explored.posterior_search import PosteriorSearch, prior_points
from skdgn._posterior.listed import Visitor, Visits, concatenate, take_samples
from skdgn._runtime import Floats, Integers

# Samples that are looked at together: enough of them to be worth the calls.
_SAMPLES_AT_A_TIME = 256


@dataclass(frozen=True)
class Explorer:
    """Visits regions without a list of them.

    ``partition`` holds those that draws from the prior met.
    """

    network: Network
    noise: Noise
    partition: Partition
    tolerance: float  # standard error of log p(x)
    seed: int  # of the points
    counts: Integers  # (R,): how many draws from the prior met each region

    @classmethod
    def prepare(cls, network: Network, noise: Noise, tolerance: float, seed: int) -> Explorer:
        """Meet the regions in which the prior has most of its mass."""
        points = prior_points(network.n_components, seed)
        patterns = network.patterns(points)
        numbers, new = add_regions(patterns[:0], patterns)
        partition = explored_partition(network, points[new], patterns[new])
        return cls(network, noise, partition, tolerance, seed, np.bincount(numbers))

    def with_noise(self, noise: Noise) -> Explorer:
        """Return the same with other noise."""
        return Explorer(self.network, noise, self.partition, self.tolerance, self.seed, self.counts)

    @property
    def prior(self) -> CellIntegrals:
        """Masses of the prior over the regions met, and their errors."""
        shares = self.counts / self.counts.sum()
        n_regions, n_components = len(shares), self.network.n_components
        return CellIntegrals(
            np.log(shares),
            self.partition.cells.interior_points(),
            np.zeros((n_regions, n_components, n_components)),
            np.sqrt((1.0 - shares) / self.counts),
        )

    @property
    def is_exact(self) -> bool:
        """Whether all regions are listed: they are not."""
        return False

    @property
    def sample_bytes(self) -> float:
        """Memory that a sample takes while its regions are visited."""
        n_components = self.network.n_components
        return 16.0 * MOST_VISITS * (n_components + 1) ** 2 + 64.0 * self.network.n_features

    def settle(self, visits: Visits) -> Visitor:
        """Return what knows the regions of these visits, by the numbers they have there."""
        return Visitor.prepare(self.explored(visits.patterns, visits.points), self.noise)

    def explored(self, patterns: Codes, points: Floats) -> Partition:
        """Return the regions with these patterns (R, c), and points (R, S) inside."""
        return explored_partition(self.network, points, patterns)

    def locate(self, visits: Visits) -> Integers:
        """Return the known region of each visit, or the most similar one."""
        return self.partition.locate(visits.patterns)[visits.regions]

    def visit(self, samples: Floats) -> Visits:
        """Estimate the posterior of samples (n, D), NaN where a value is missing."""
        parts: list[Visits] = []
        indices: list[Integers] = []
        for chosen, observed, likelihood in observed_likelihoods(self.network, self.noise, samples):
            search = PosteriorSearch(likelihood, self.tolerance, self.seed)
            for begin in range(0, len(chosen), _SAMPLES_AT_A_TIME):
                part = slice(begin, begin + _SAMPLES_AT_A_TIME)
                visits = search.visit(np.ascontiguousarray(observed[part]))
                if likelihood.noise.n_features == 0:
                    # Nothing observed: the prior, which sums to one.
                    visits.log_density[:] = 0.0
                    visits.log_density_error[:] = 0.0
                parts.append(visits)
            indices.append(chosen)
        if not parts:
            return _no_visits(self.network)
        visits = concatenate(parts)
        return (
            visits
            if len(indices) == 1
            else take_samples(visits, np.argsort(np.concatenate(indices)))
        )


def _no_visits(network: Network) -> Visits:
    n_components = network.n_components
    n_codes = sum(layer.n_codes for layer in network.layers)
    return Visits(
        np.empty(0),
        np.zeros(1, dtype=np.intp),
        np.empty(0, dtype=np.intp),
        np.empty(0),
        np.empty((0, n_components)),
        np.empty((0, n_components, n_components)),
        np.empty(0),
        np.empty((0, n_codes), dtype=np.uint8),
        np.empty((0, n_components)),
    )
